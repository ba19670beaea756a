"""Files of rows written around the page cache: the same bytes as any other way of writing."""

from __future__ import annotations

import errno
import random
import resource
import sys
from io import FileIO
from pathlib import Path

import pytest

from prefixbench.dataset import appended_file
from prefixbench.dataset.appended_file import BUFFER_BYTES, AppendedFile

SIZES = [0, 1, 4_095, 4_096, BUFFER_BYTES - 1, BUFFER_BYTES, 3 * BUFFER_BYTES + 17]

linux = pytest.mark.skipif(sys.platform != "linux", reason="O_DIRECT is a flag of Linux")


def pieces(sizes: list[int]) -> list[bytes]:
    return [random.Random(size).randbytes(size) for size in sizes]


def append(path: Path, parts: list[bytes], keep_bytes: int = 0) -> None:
    file = AppendedFile(path, keep_bytes)
    for part in parts:
        file.write(part)
    file.close()


@pytest.mark.parametrize("seed", range(3))
def test_a_file_holds_what_was_written_in_pieces_of_any_size(tmp_path: Path, seed: int) -> None:
    parts = pieces(random.Random(seed).sample(SIZES, len(SIZES)))
    append(tmp_path / "rows", parts)
    assert (tmp_path / "rows").read_bytes() == b"".join(parts)


@pytest.mark.parametrize("keep", [0, 1, 4_096, 5_000, BUFFER_BYTES + 4_095, 2 * BUFFER_BYTES])
def test_what_is_kept_stays_and_the_rest_is_cut_off(tmp_path: Path, keep: int) -> None:
    path = tmp_path / "rows"
    (before,) = pieces([2 * BUFFER_BYTES + 99])
    path.write_bytes(before)
    parts = pieces([100, BUFFER_BYTES + 1])
    append(path, parts, keep)
    assert path.read_bytes() == before[:keep] + b"".join(parts)


@linux
def test_whole_buffers_go_around_the_page_cache_unless_the_system_refuses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data,) = pieces([2 * BUFFER_BYTES + 5])
    wished: list[int] = []

    def refuse(file: FileIO, command: int, flags: int = 0) -> int:
        wished.append(flags)
        if flags:
            raise OSError(errno.EINVAL, "no such flag here")
        return 0

    monkeypatch.setattr(appended_file.fcntl, "fcntl", refuse)
    append(tmp_path / "rows", [data])
    assert any(flags & appended_file.os.O_DIRECT for flags in wished)
    assert (tmp_path / "rows").read_bytes() == data


@linux
def test_a_direct_write_that_is_refused_is_done_the_usual_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a disk whose blocks are larger than ours: offsets are no multiples of them."""
    monkeypatch.setattr(appended_file, "_BLOCK_BYTES", 1)
    path = tmp_path / "rows"
    path.write_bytes(b"kept")
    (data,) = pieces([2 * BUFFER_BYTES + 5])
    append(path, [data], len(b"kept"))
    assert path.read_bytes() == b"kept" + data


@linux
@pytest.mark.parametrize("room", [BUFFER_BYTES + 8_192, BUFFER_BYTES + 5_000])
def test_a_full_disk_keeps_what_it_took_and_says_so(tmp_path: Path, room: int) -> None:
    path = tmp_path / "rows"
    (data,) = pieces([3 * BUFFER_BYTES])
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    file = AppendedFile(path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, limits[1]))
    try:
        with pytest.raises(OSError, match="large"):
            file.write(data)
        file.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == data[:room]
