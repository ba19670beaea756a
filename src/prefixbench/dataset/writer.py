"""Writes a data set: rows as they come, the two documents at the end.

A partial manifest stands on disk from the first moment and is replaced only when everything else
is written, so a stage that fails, a full disk or a kill leaves `status: partial` and the rows that
were done. Rows come in chunks; a resumed writer keeps whole chunks and drops the rest.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from prefixbench.core.errors import (
    ErrorContext,
    OutputExistsError,
    PrefixBenchError,
    Stage,
    StorageError,
)
from prefixbench.core.version import FORMAT_VERSION, __version__
from prefixbench.dataset.layout import (
    DATA,
    FILES,
    ID_FILES,
    ID_OFFSETS,
    IDS,
    MANIFEST,
    METADATA,
    REPORT,
    document,
)
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.row_files import HashedFile, whole_chunks

#: What one chunk of rows adds to each file that grows, in pieces.
RowChunk = Mapping[str, Iterable[bytes]]


class DatasetWriter:
    """Context manager around a data set that is being written.

    `identity` names what determines the bytes (configuration, tokenizer, corpus, rules): a folder
    is resumed only by the same identity. Inside, `chunks_done` says how many chunks are already on
    disk. With `with_ids` the ids of all prompts stand in two more files.
    """

    def __init__(
        self,
        folder: Path,
        *,
        dataset_id: str,
        identity: str,
        resume: bool = False,
        overwrite: bool = False,
        with_ids: bool = False,
    ) -> None:
        self.folder = folder
        self.with_ids = with_ids
        self._dataset_id = dataset_id
        self._identity = identity
        self._resume = resume
        self._overwrite = overwrite
        self._is_done = False
        self.chunks_done = 0

    def __enter__(self) -> Self:
        try:
            self._prepare()
            # Small files first: of rows that are on disk, everything is.
            names = (METADATA, ID_OFFSETS, DATA, IDS) if self.with_ids else (METADATA, DATA)
            ends = whole_chunks(self.folder, names)
            self._files = {name: HashedFile(self.folder / name, ends[name][-1]) for name in names}
        except OSError as error:
            raise _storage_error(error, self._dataset_id) from error
        self.chunks_done = len(ends[DATA]) - 1
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or self._is_done:
            return
        self._close_quietly()
        self._keep_whole_chunks()
        if isinstance(error, OSError):
            storage = _storage_error(error, self._dataset_id)
            self._note_failure(storage.to_json())
            raise storage from error
        if isinstance(error, PrefixBenchError):
            self._note_failure(error.to_json())
        else:
            self._note_failure({"code": "interrupted", "message": type(error).__name__})

    def write(self, chunk: RowChunk) -> None:
        for name, file in self._files.items():
            for piece in chunk[name]:
                file.write(piece)

    def finish(self, manifest: Mapping[str, Any], report: Mapping[str, Any]) -> None:
        """Write the report and, last of all, the complete manifest with the files' hashes."""
        files = {name: file.close() for name, file in self._files.items()}
        files[REPORT] = self._write_document(REPORT, report)
        self._write_manifest(manifest, files=files, status="complete")

    def finish_without_data(
        self, manifest: Mapping[str, Any], report: Mapping[str, Any], error: PrefixBenchError
    ) -> None:
        """Leave the report and a partial manifest, no rows: the target cannot be reached."""
        self._close_quietly()
        for name in self._files:
            (self.folder / name).unlink(missing_ok=True)
        files = {REPORT: self._write_document(REPORT, report)}
        self._write_manifest(manifest, files=files, status="partial", error=error.to_json())
        self._is_done = True

    def _prepare(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        present = {path.name for path in self.folder.iterdir()}
        if present and not (self._resume or self._overwrite):
            raise OutputExistsError(
                "the output folder is not empty",
                context=ErrorContext(
                    stage=Stage.CONTENT, dataset_id=self._dataset_id, field="output"
                ),
                hint="choose an empty folder, or say --resume or --overwrite",
            )
        if self._resume and MANIFEST in present:
            self._check_same_identity()
        elif present:
            for name in (*FILES, *ID_FILES, MANIFEST):
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

    def _write_manifest(self, manifest: Mapping[str, Any], **more: Any) -> None:
        self._write_document(MANIFEST, {**manifest, "identity_sha256": self._identity, **more})

    def _note_failure(self, error: Mapping[str, Any]) -> None:
        """Say in the manifest what went wrong; where even that has no room, it stays partial."""
        with suppress(OSError):
            self._write_partial(error)

    def _write_partial(self, error: Mapping[str, Any] | None) -> None:
        known = {
            "dataset_id": self._dataset_id,
            "format_version": FORMAT_VERSION,
            "prefixbench_version": __version__,
        }
        failure = {} if error is None else {"error": error}
        self._write_manifest(known, status="partial", **failure)

    def _write_document(self, name: str, value: Mapping[str, Any]) -> dict[str, Any]:
        content = document(value)
        draft = self.folder / f".{name}.draft"
        try:
            draft.write_bytes(content)
        except OSError:
            draft.unlink(missing_ok=True)
            raise
        draft.replace(self.folder / name)
        return {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}

    def _keep_whole_chunks(self) -> None:
        """Cut off what a resumed writer would drop; on a full disk the manifest needs the room."""
        for name, ends in whole_chunks(self.folder, tuple(self._files)).items():
            os.truncate(self.folder / name, ends[-1])

    def _close_quietly(self) -> None:
        for file in self._files.values():
            with suppress(OSError):  # a full disk refuses the last buffered bytes
                file.close()


def _storage_error(error: OSError, dataset_id: str) -> StorageError:
    return StorageError(
        f"the data set could not be written: {error.strerror or type(error).__name__}",
        context=ErrorContext(stage=Stage.CONTENT, dataset_id=dataset_id, field="output"),
        hint="free some room or choose another folder, then continue with --resume",
    )
