"""A file of rows that grows, written around the page cache where the system can do so.

Gigabytes that are written once and read much later push everything else out of memory, and to copy
them there costs more processor time than to compose them. Linux writes whole blocks out of aligned
memory straight to the disk (`O_DIRECT`); where the system or the file system knows no such thing,
the same bytes are written as usual. Files below one buffer are always written as usual.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from io import FileIO
from mmap import mmap
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

BUFFER_BYTES = 1 << 20

#: Offsets of direct writes are multiples of it: the largest block of usual disks.
_BLOCK_BYTES = 4_096


class AppendedFile:
    """Appends behind the first `keep_bytes` of a file; what stood there before is cut off.

    Up to one buffer of what was written last is in memory alone until `close`.
    """

    def __init__(self, path: Path, keep_bytes: int = 0) -> None:
        path.touch()
        self._file: FileIO = path.open("r+b", buffering=0)
        if path.stat().st_size > keep_bytes:  # else ext4 would copy all to the disk on closing
            self._file.truncate(keep_bytes)
        start = keep_bytes // _BLOCK_BYTES * _BLOCK_BYTES
        self._buffer = mmap(-1, BUFFER_BYTES)
        self._file.seek(start)
        self._filled = self._file.readinto(memoryview(self._buffer)[: keep_bytes - start]) or 0
        self._file.seek(start)
        self._is_direct: bool | None = None

    def write(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            taken = rest[: BUFFER_BYTES - self._filled]
            stop = self._filled + len(taken)
            self._buffer[self._filled : stop] = taken
            self._filled = stop
            rest = rest[len(taken) :]
            if stop == BUFFER_BYTES:
                self._drain()

    def close(self) -> None:
        """Write the last buffer, which need not be whole blocks, and close the file, once."""
        if self._file.closed:
            return
        with self._file:
            if self._is_direct:
                self._set_direct(False)
            self._is_direct = False
            self._drain()

    def _drain(self) -> None:
        """Write the buffer; what the disk refuses is not tried again."""
        if self._is_direct is None:
            self._set_direct(True)
        pending = memoryview(self._buffer)[: self._filled]
        self._filled = 0
        while pending:
            pending = pending[self._write_some(pending) :]

    def _write_some(self, pending: memoryview) -> int:
        try:
            return self._file.write(pending)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._is_direct:
                raise
        self._set_direct(False)  # blocks are larger here, or a full disk took only a part of one
        return self._file.write(pending)

    def _set_direct(self, wanted: bool) -> None:
        """Write around the page cache from now on, or not; where the system can do so."""
        self._is_direct = False
        flag = getattr(os, "O_DIRECT", 0)
        if not flag or fcntl is None:
            return
        with suppress(OSError):
            flags = fcntl.fcntl(self._file, fcntl.F_GETFL) & ~flag
            fcntl.fcntl(self._file, fcntl.F_SETFL, flags | flag if wanted else flags)
            self._is_direct = wanted
