"""Generation killed at random moments and resumed: the same bytes every time."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

from prefixbench.dataset.manifest import DatasetManifest

CONFIG = {
    "dataset_id": "killed",
    "request_count": 4_000,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 500, "max": 3000, "mean": 1500, "std": 500},
    "target": {"hit_ratio": 0.5},
    "prefix": {"mode": "multi_prefix", "group_count": 5},
}


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Path], subprocess.Popen[bytes]]:
    """Starts `generate` on a folder, or goes on with what it holds."""
    config = tmp_path_factory.mktemp("killed") / "killed.yaml"
    config.write_bytes(orjson.dumps(CONFIG))  # JSON is YAML

    def run(folder: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "prefixbench", "generate", "--quiet", "--resume"]
        command += [
            "--with-ids",
            "--verify",
            "certificate",
            "--config",
            str(config),
            "--output",
            str(folder),
        ]
        return subprocess.Popen(command, stderr=subprocess.PIPE)

    return run


def finished(process: subprocess.Popen[bytes]) -> None:
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def kill_and_resume(
    start: Callable[[Path], subprocess.Popen[bytes]], folder: Path, whole: Path, kills: int
) -> int:
    """Kill so many times at moments spread over a whole generation; how many came before its end.

    Every other time the killed folder is killed again instead of being finished.
    """
    began = time.monotonic()
    finished(start(whole))
    duration = time.monotonic() - began
    draws = random.Random(kills)
    came_before_the_end = 0
    for number in range(kills):
        process = start(folder)
        time.sleep(draws.uniform(0.1, 1.0) * duration)
        process.kill()
        process.communicate()
        came_before_the_end += process.returncode != 0
        if number % 2 == 0 and folder.is_dir() and (folder / "manifest.json").is_file():
            assert DatasetManifest.load(folder).status in ("partial", "complete")
            continue
        finished(start(folder))
        assert contents(folder) == contents(whole)
        for path in folder.iterdir():
            path.unlink()
    finished(start(folder))
    assert contents(folder) == contents(whole)
    return came_before_the_end


def test_a_killed_generation_ends_with_the_same_bytes(
    start: Callable[[Path], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert kill_and_resume(start, tmp_path / "killed", tmp_path / "whole", 5) > 0


@pytest.mark.deep
def test_fifty_kills_end_with_the_same_bytes(
    start: Callable[[Path], subprocess.Popen[bytes]], tmp_path: Path
) -> None:
    assert kill_and_resume(start, tmp_path / "killed", tmp_path / "whole", 50) > 10
