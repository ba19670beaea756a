"""vLLM's own scheduler still does what its recordings say, and the simulator what it does.

Needs an environment with vLLM and the shared folder, whose scripts drive the scheduler:

    PREFIXBENCH_VLLM_PYTHON=V/bin/python python -m pytest -m live tests/live
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from prefixbench.simulator.replay import replay_file
from shared_folder import REPOSITORY, shared_folder

VARIABLE = "PREFIXBENCH_VLLM_PYTHON"
RECORDER = Path(__file__).with_name("record_vllm_groups.py")
RECORDED = REPOSITORY / "tests" / "golden" / "data"

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with vLLM"),
    pytest.mark.skipif(
        not (shared_folder() / "oracle").is_dir(),
        reason="the shared folder with its scripts is absent",
    ),
]


def record(*arguments: str | Path) -> None:
    environment = os.environ | {"PREFIXBENCH_SHARED": str(shared_folder())}
    done = subprocess.run(
        [os.environ[VARIABLE], RECORDER, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """New recordings of this version, of a seed that no recording in the repository has."""
    folder = tmp_path_factory.mktemp("fresh")
    record(folder, "--seed", "live", "--count", "8")
    return sorted(folder.glob("*.json"))


def test_new_recordings_are_replayed_exactly(fresh: list[Path]) -> None:
    assert len(fresh) == 24
    differences = {path.name: str(replay_file(path).difference) for path in fresh}
    assert set(differences.values()) == {"None"}, differences


def test_the_kept_recordings_are_what_the_scheduler_does(fresh: list[Path], tmp_path: Path) -> None:
    version = json.loads(fresh[0].read_text())["engine_version"]
    kept = sorted((RECORDED / f"vllm-{version.rpartition('.')[0]}").glob("*.json"))
    if not kept:
        pytest.skip(f"no recordings of vLLM {version} are kept")
    copies = [Path(shutil.copy(path, tmp_path)) for path in kept]
    record("--fill", *copies)
    for path, copy in zip(kept, copies, strict=True):
        assert json.loads(copy.read_text()) == json.loads(path.read_text()), path.name
