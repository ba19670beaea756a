"""Where real engines are found for the tests of `live/`, and how they are served."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shared_folder import shared_folder

#: Names the Python of an environment with vLLM.
VLLM = "PREFIXBENCH_VLLM_PYTHON"
SCRIPTS = shared_folder() / "oracle"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def vllm_server(model: Path, usable_blocks: int) -> Iterator[str]:
    """The address of a fresh server; one block more than the usable ones is its null block."""
    port = free_port()
    environment = Path(os.environ[VLLM]).parents[1]
    log = model / f"vllm-{port}.log"
    serve = ["bash", SCRIPTS / "serve_vllm.sh", environment, model, str(port), log]
    started = subprocess.run(
        [*serve, "--num-gpu-blocks-override", str(usable_blocks + 1)],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=400,
    )
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        os.kill(int(started.stdout), signal.SIGINT)
