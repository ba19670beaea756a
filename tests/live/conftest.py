"""A model for a real vLLM; tests that need it are skipped where vLLM is not installed."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from live_engines import SCRIPTS, VLLM


@pytest.fixture(scope="session")
def vllm_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a tiny random model and its tokenizer."""
    if VLLM not in os.environ:
        pytest.skip(f"{VLLM} names no Python with vLLM")
    if not SCRIPTS.is_dir():
        pytest.skip("the shared folder with its scripts is absent")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    script = SCRIPTS / "make_tiny_model.py"
    subprocess.run([os.environ[VLLM], script, folder], check=True, timeout=120)
    return folder
