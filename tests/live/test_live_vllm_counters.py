"""A real vLLM on a CPU counts what the plan and the simulator say, to the token.

Needs an environment with vLLM and the shared folder, whose scripts make a tiny model and serve it:

    PREFIXBENCH_VLLM_PYTHON=V/bin/python python -m pytest -m live tests/live
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from prefixbench.config.load import parse_config
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.rehearsal import rehearse
from prefixbench.pipeline import generate_prefix_cache_dataset
from prefixbench.run.runner import RunOptions, run_dataset
from prefixbench.simulator.engine import Engine
from shared_folder import shared_folder

VARIABLE = "PREFIXBENCH_VLLM_PYTHON"
SCRIPTS = shared_folder() / "oracle"

#: vLLM on a CPU takes blocks of multiples of 32; one block of the pool is its null block.
BLOCK = 32
USABLE_BLOCKS = 4_000

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} names no Python with vLLM"),
    pytest.mark.skipif(not SCRIPTS.is_dir(), reason="the shared folder with its scripts is absent"),
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "tiny"
    script = SCRIPTS / "make_tiny_model.py"
    subprocess.run([os.environ[VARIABLE], script, folder], check=True, timeout=120)
    return folder


@pytest.fixture(scope="module")
def address(model: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = Path(os.environ[VARIABLE]).parents[1]
    serve = ["bash", SCRIPTS / "serve_vllm.sh", environment, model, str(port), model / "vllm.log"]
    pool = ["--num-gpu-blocks-override", str(USABLE_BLOCKS + 1)]
    started = subprocess.run(
        [*serve, *pool], stdout=subprocess.PIPE, text=True, check=True, timeout=400
    )
    yield f"http://127.0.0.1:{port}"
    os.kill(int(started.stdout), signal.SIGINT)


@pytest.fixture(scope="module")
def dataset(model: Path) -> DatasetReader:
    folder = model / "dataset"
    config = parse_config(
        {
            "request_count": 120,
            "block_size": BLOCK,
            "input_length": {
                "mode": "truncated_normal",
                "min": 128,
                "max": 1800,
                "mean": 700,
                "std": 300,
            },
            "output_length": 4,
            "max_model_len": 2048,
            "target": {"hit_ratio": 0.6},
            "prefix": {
                "groups": [{"id": name, "request_weight": share} for name, share in SHARES.items()]
            },
            "tokenizer": str(model),
        }
    )
    generate_prefix_cache_dataset(config, output_dir=folder, verify="full")
    return DatasetReader(folder)


SHARES = {"a": 5.0, "b": 3.0, "c": 2.0}


@pytest.mark.parametrize("concurrency", [1, 16])
def test_counters_say_what_the_simulator_says(
    dataset: DatasetReader, address: str, tmp_path: Path, concurrency: int
) -> None:
    simulated = rehearse(
        dataset,
        lambda: Engine("vllm-0.32", USABLE_BLOCKS, block_size=BLOCK),
        concurrency=concurrency,
    ).tally
    run_dataset(
        RunOptions(
            dataset=dataset.folder,
            urls=(address,),
            output=tmp_path / "run",
            concurrency=concurrency,
        )
    )
    measured = orjson.loads((tmp_path / "run/runtime/prefix_cache_metrics.json").read_bytes())
    assert measured["phases"][0]["cache_state_before"] == "salted"
    assert simulated.hits > 0
    assert measured["global"]["hits"] == simulated.hits
    assert measured["global"]["queries"] == simulated.queries
    assert measured["phases"][0]["usage"]["cached_tokens"] == simulated.hits
