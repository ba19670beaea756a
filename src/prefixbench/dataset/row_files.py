"""The files of a data set that grow row by row, and where their whole chunks end.

Two hold lines. Two more are written on demand: the ids of all prompts, one after the other, and
where each begins there (one number more than there are requests, the first of them 0).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from prefixbench.content.tape import Ids
from prefixbench.dataset.appended_file import AppendedFile
from prefixbench.dataset.layout import DATA, ID_OFFSETS, IDS, METADATA

#: Rows a chunk: what one worker composes at a time and what a resumed writer keeps.
CHUNK_ROWS = 256

ID_TYPE = np.dtype("<u4")
OFFSET_TYPE = np.dtype("<u8")


#: Files that are written at once: where the disk is full, they hold what the large ones hold.
SMALL_FILES = (METADATA, ID_OFFSETS)


class _UnbufferedFile:
    """Appends behind the first `keep_bytes` of a file, nothing of it in memory."""

    def __init__(self, path: Path, keep_bytes: int) -> None:
        path.touch()
        self._file = path.open("r+b", buffering=0)
        self._file.truncate(keep_bytes)
        self._file.seek(keep_bytes)

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]

    def close(self) -> None:
        self._file.close()


class HashedFile:
    """An open file that knows its size and SHA-256; bytes already on disk are read back once."""

    def __init__(self, path: Path, keep_bytes: int) -> None:
        kind = _UnbufferedFile if path.name in SMALL_FILES else AppendedFile
        self._file: _UnbufferedFile | AppendedFile = kind(path, keep_bytes)
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


def id_bytes(prompts: list[Ids], *, first_offset: int) -> dict[str, list[bytes]]:
    """What a chunk adds to the two files of ids; `first_offset` counts the ids before it."""
    offsets = first_offset + np.cumsum([len(ids) for ids in prompts])
    if first_offset == 0:
        offsets = np.concatenate([[0], offsets])
    return {
        IDS: [ids.astype(ID_TYPE).tobytes() for ids in prompts],
        ID_OFFSETS: [offsets.astype(OFFSET_TYPE).tobytes()],
    }


def read_ids(folder: Path) -> Iterator[Ids]:
    """The ids of each request, in sending order; ValueError if the files do not fit together."""
    offsets = np.memmap(folder / ID_OFFSETS, dtype=OFFSET_TYPE, mode="r").astype(np.int64)
    ids = np.memmap(folder / IDS, dtype=ID_TYPE, mode="r")
    if offsets[0] != 0 or offsets[-1] != len(ids) or (np.diff(offsets) < 0).any():
        raise ValueError("offsets do not part the ids")
    for start, stop in zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
        yield np.asarray(ids[start:stop], dtype=np.uint32)


def whole_chunks(folder: Path, names: tuple[str, ...]) -> dict[str, list[int]]:
    """For each file the bytes up to the end of 0, 1, 2, ... chunks that all of them hold."""
    ends = {name: _chunk_ends(folder, name) for name in names}
    chunks = min(len(column) for column in ends.values())
    return {name: column[:chunks] for name, column in ends.items()}


def _chunk_ends(folder: Path, name: str) -> list[int]:
    path = folder / name
    if not path.is_file():
        return [0]
    if name in (DATA, METADATA):
        return _line_chunk_ends(path)
    offsets = _chunk_offsets(folder / ID_OFFSETS)
    if name == ID_OFFSETS:
        width = OFFSET_TYPE.itemsize
        return [0, *((number * CHUNK_ROWS + 1) * width for number in range(1, len(offsets)))]
    size = path.stat().st_size
    return [end for end in (offsets * ID_TYPE.itemsize).tolist() if end <= size]


def _chunk_offsets(path: Path) -> npt.NDArray[np.int64]:
    """Ids up to the end of 0, 1, 2, ... chunks."""
    if not path.is_file():
        return np.zeros(1, dtype=np.int64)
    whole = path.stat().st_size // OFFSET_TYPE.itemsize
    offsets = np.fromfile(path, dtype=OFFSET_TYPE, count=whole).astype(np.int64)
    return offsets[::CHUNK_ROWS] if whole else np.zeros(1, dtype=np.int64)


def _line_chunk_ends(path: Path) -> list[int]:
    offsets, position, lines = [0], 0, 0
    with path.open("rb") as stream:
        for line in stream:
            if not line.endswith(b"\n"):
                break
            position += len(line)
            lines += 1
            if lines % CHUNK_ROWS == 0:
                offsets.append(position)
    return offsets
