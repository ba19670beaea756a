"""The recorded block names are still what vLLM gives; needs an environment that has it."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from shared_folder import REPOSITORY

#: Names the Python of an environment with vLLM and xxhash.
VARIABLE = "PREFIXBENCH_VLLM_PYTHON"

SCRIPT = Path(__file__).with_name("vllm_block_hashes.py")
RECORDED = REPOSITORY / "tests" / "golden" / "data" / "block_hashes_vllm.json"


@pytest.mark.live
@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with vLLM")
def test_vllm_still_gives_the_recorded_names(tmp_path: Path) -> None:
    done = subprocess.run(
        [os.environ[VARIABLE], SCRIPT],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    if "xxhash is required" in done.stderr:
        pytest.skip(f"the environment of {VARIABLE} has no xxhash")
    assert done.returncode == 0, done.stderr[-2000:]
    given, recorded = json.loads(done.stdout), json.loads(RECORDED.read_text())
    assert given["rows"] == recorded["rows"]
