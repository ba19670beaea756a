"""Writes a data set: rows as they come, the two documents at the end.

A partial manifest stands on disk from the first moment and is replaced only when everything else
is written, so a stage that fails, a full disk or a kill leaves `status: partial` and the rows that
were done. Rows come in chunks; a resumed writer keeps whole chunks and drops the rest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from prefixbench.core.errors import (
    ErrorContext,
    OutputExistsError,
    PrefixBenchError,
    Stage,
    StorageError,
)
from prefixbench.core.version import FORMAT_VERSION, __version__
from prefixbench.dataset.appended_file import AppendedFile
from prefixbench.dataset.layout import DATA, MANIFEST, METADATA, REPORT, document
from prefixbench.dataset.manifest import DatasetManifest

#: Rows a chunk: what one worker composes at a time and what a resumed writer keeps.
CHUNK_ROWS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChunk:
    """Lines of data.jsonl, in pieces, and of request_metadata.jsonl for the same requests."""

    data: Iterable[bytes]
    metadata: bytes


class _HashedFile:
    """An open file that knows its size and SHA-256; bytes already on disk are read back once."""

    def __init__(self, path: Path, keep_bytes: int) -> None:
        self._file = AppendedFile(path, keep_bytes)
        with path.open("rb") as kept:
            self._digest = hashlib.file_digest(kept, "sha256")
        self.size = keep_bytes

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._digest.update(data)
        self.size += len(data)

    def close(self) -> dict[str, Any]:
        self._file.close()
        return {"bytes": self.size, "sha256": self._digest.hexdigest()}


class DatasetWriter:
    """Context manager around a data set that is being written.

    `identity` names what determines the bytes (configuration, tokenizer, corpus, rules): a folder
    is resumed only by the same identity. `chunks_done` says how many chunks are already on disk.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dataset_id: str,
        identity: str,
        resume: bool = False,
        overwrite: bool = False,
    ) -> None:
        self.folder = folder
        self._dataset_id = dataset_id
        self._identity = identity
        self._error: PrefixBenchError | None = None
        self.chunks_done = 0
        self._prepare(resume=resume, overwrite=overwrite)
        keep = _whole_chunks(folder) if resume else (0, 0, 0)
        self.chunks_done = keep[0]
        self._data = _HashedFile(folder / DATA, keep[1])
        self._metadata = _HashedFile(folder / METADATA, keep[2])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            return
        self._close_quietly()
        if isinstance(error, PrefixBenchError):
            self._write_partial(error.to_json())
        elif isinstance(error, OSError):
            storage = _storage_error(error, self._dataset_id)
            self._write_partial(storage.to_json())
            raise storage from error
        else:
            self._write_partial({"code": "interrupted", "message": type(error).__name__})

    def write(self, chunk: RowChunk) -> None:
        for piece in chunk.data:
            self._data.write(piece)
        self._metadata.write(chunk.metadata)

    def finish(self, manifest: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        """Write the report and, last of all, the complete manifest with the files' hashes."""
        files = {DATA: self._data.close(), METADATA: self._metadata.close()}
        files[REPORT] = self._write_document(REPORT, report)
        self._write_document(MANIFEST, {**manifest, "files": files, "status": "complete"})

    def finish_without_data(
        self, manifest: Mapping[str, Any], report: Mapping[str, Any], error: PrefixBenchError
    ) -> None:
        """Leave the report and a partial manifest, no rows: the target cannot be reached."""
        self._close_quietly()
        for name in (DATA, METADATA):
            (self.folder / name).unlink(missing_ok=True)
        files = {REPORT: self._write_document(REPORT, report)}
        self._write_document(
            MANIFEST,
            {**manifest, "files": files, "status": "partial", "error": error.to_json()},
        )

    def _prepare(self, *, resume: bool, overwrite: bool) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in self.folder.iterdir()}
        if present and not (resume or overwrite):
            raise OutputExistsError(
                "the output folder is not empty",
                context=ErrorContext(
                    stage=Stage.CONTENT, dataset_id=self._dataset_id, field="output"
                ),
                hint="choose an empty folder, or say --resume or --overwrite",
            )
        if resume and MANIFEST in present:
            self._check_same_identity()
        elif present:
            for name in (DATA, METADATA, REPORT, MANIFEST):
                (self.folder / name).unlink(missing_ok=True)
        self._write_partial(None)

    def _check_same_identity(self) -> None:
        found = DatasetManifest.load(self.folder).data.get("identity_sha256")
        if found != self._identity:
            raise OutputExistsError(
                "the data set in the output folder comes from other inputs",
                context=ErrorContext(
                    stage=Stage.CONTENT, dataset_id=self._dataset_id, field="output"
                ),
                hint="resume with the same configuration, tokenizer and corpus, or --overwrite",
            )

    def _write_partial(self, error: Mapping[str, Any] | None) -> None:
        partial: dict[str, Any] = {
            "dataset_id": self._dataset_id,
            "format_version": FORMAT_VERSION,
            "prefixbench_version": __version__,
            "identity_sha256": self._identity,
            "status": "partial",
        }
        if error is not None:
            partial["error"] = error
        self._write_document(MANIFEST, partial)

    def _write_document(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
        content = document(value)
        draft = self.folder / f".{name}.draft"
        draft.write_bytes(content)
        draft.replace(self.folder / name)
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def _close_quietly(self) -> None:
        for file in (self._data, self._metadata):
            try:
                file.close()
            except OSError:  # a full disk refuses the last buffered bytes; the rows before stay
                continue


def _whole_chunks(folder: Path) -> tuple[int, int, int]:
    """Chunks that both row files hold entirely, and the bytes they take in each."""
    ends = [_chunk_ends(folder / name) for name in (DATA, METADATA)]
    chunks = min(len(column) for column in ends) - 1
    return chunks, ends[0][chunks], ends[1][chunks]


def _chunk_ends(path: Path) -> list[int]:
    """Byte offsets after 0, 1, 2, ... whole chunks of lines."""
    offsets, position, lines = [0], 0, 0
    if not path.is_file():
        return offsets
    with path.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            lines += 1
            if lines % CHUNK_ROWS == 0:
                offsets.append(position)
    return offsets


def _storage_error(error: OSError, dataset_id: str) -> StorageError:
    return StorageError(
        f"the data set could not be written: {error.strerror or type(error).__name__}",
        context=ErrorContext(stage=Stage.CONTENT, dataset_id=dataset_id, field="output"),
        hint="free some room or choose another folder, then continue with --resume",
    )
