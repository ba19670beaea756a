"""A disk that is really full: a clear error, nothing lost, and a resumed set of the same bytes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from prefixbench.dataset.manifest import DatasetManifest

CONFIG = {
    "dataset_id": "full",
    "request_count": 3_000,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 300, "max": 900, "mean": 600, "std": 150},
    "target": {"hit_ratio": 0.5},
    "prefix": {"group_count": 4},
}
#: Holds about half of the data set.
SMALL_DISK = 9 << 20
SMALL_FILE = 4 << 20
ROWS_OF_A_CHUNK = 256

_LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[1]),) * 2)
from prefixbench.cli.main import main
sys.argv[1:] = sys.argv[2:]
main()
"""


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("config") / "full.yaml"
    path.write_bytes(orjson.dumps(CONFIG))  # JSON is YAML
    return path


@pytest.fixture(scope="module")
def whole(config: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("whole") / "dataset"
    assert generate(config, folder).returncode == 0
    return contents(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system with little room; skips where none may be mounted."""
    folder = tmp_path / "disk"
    folder.mkdir()
    size = f"size={SMALL_DISK}"
    mount = ["mount", "-t", "tmpfs", "-o", size, "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False, timeout=30)
    except FileNotFoundError:
        pytest.skip("this system has no mount")
    if mounted.returncode != 0:
        pytest.skip("a file system may not be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True, timeout=30)


def generate(
    config: Path, folder: Path, *options: str, largest_file: int | None = None
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "prefixbench"]
    if largest_file is not None:
        command = [sys.executable, "-c", _LIMITED, str(largest_file)]
    arguments = ["generate", "--config", str(config), "--output", str(folder), "--with-ids"]
    arguments += ["--verify", "certificate", "--quiet", *options]
    return subprocess.run(
        command + arguments, capture_output=True, text=True, check=False, timeout=120
    )


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def assert_told_and_kept(
    failed: subprocess.CompletedProcess[str], folder: Path, whole: dict[str, bytes]
) -> None:
    """Three lines of error, an error in the manifest, and whole chunks of rows."""
    assert failed.returncode == 1
    assert len(failed.stderr.splitlines()) == 3
    assert failed.stderr.startswith("the data set could not be written: ")
    assert "at: stage=content dataset_id=full" in failed.stderr
    assert "--resume" in failed.stderr
    manifest = DatasetManifest.load(folder)
    assert (manifest.status, manifest.failure["code"]) == ("partial", "storage")
    assert manifest.failure["context"]["dataset_id"] == "full"
    found = contents(folder)
    rows = found["data.jsonl"].count(b"\n")
    assert rows > 0
    assert rows % ROWS_OF_A_CHUNK == 0
    assert found["request_metadata.jsonl"].count(b"\n") == rows
    assert all(whole[name].startswith(found[name]) for name in found if name != "manifest.json")


def test_a_full_disk_is_told_and_resumed_when_there_is_room(
    config: Path, whole: dict[str, bytes], small_disk: Path
) -> None:
    folder = small_disk / "dataset"
    failed = generate(config, folder)
    assert "No space left on device" in failed.stderr
    assert_told_and_kept(failed, folder, whole)
    again = generate(config, folder, "--resume")
    assert_told_and_kept(again, folder, whole)
    grown = ["mount", "-o", "remount,size=64m", str(small_disk)]
    subprocess.run(grown, check=True, timeout=30)
    assert generate(config, folder, "--resume").returncode == 0
    assert contents(folder) == whole


@pytest.mark.skipif(sys.platform == "win32", reason="limits of files are set by POSIX systems")
def test_a_file_that_may_not_grow_is_told_and_resumed(
    config: Path, whole: dict[str, bytes], tmp_path: Path
) -> None:
    folder = tmp_path / "dataset"
    failed = generate(config, folder, largest_file=SMALL_FILE)
    assert_told_and_kept(failed, folder, whole)
    assert generate(config, folder, "--resume").returncode == 0
    assert contents(folder) == whole


def test_a_disk_without_any_room_still_says_so(
    config: Path, whole: dict[str, bytes], small_disk: Path
) -> None:
    """Not even the manifest's error fits: the partial one from the beginning stays."""
    filler = small_disk / "filler"
    assert generate(config, small_disk / "first").returncode == 1
    with filler.open("wb", buffering=0) as stream:
        while True:
            try:
                stream.write(b"x" * 4096)
            except OSError:
                break
    failed = generate(config, small_disk / "first", "--resume")
    assert failed.returncode == 1
    assert "No space left on device" in failed.stderr
    assert DatasetManifest.load(small_disk / "first").status == "partial"
    assert not list((small_disk / "first").glob(".*"))
    filler.unlink()
    subprocess.run(["mount", "-o", "remount,size=64m", str(small_disk)], check=True, timeout=30)
    assert generate(config, small_disk / "first", "--resume").returncode == 0
    assert contents(small_disk / "first") == whole
