"""A real vLLM on a CPU counts what the plan and the simulator say, to the token.

    python live/check.py --vllm V

With a pool that evicts and several requests in flight, hits depend on which answer ended first;
then only the queries are determined (`live/README.md`).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from live_engines import vllm_server
from prefixbench.config.load import parse_config
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.rehearsal import Rehearsal, rehearse
from prefixbench.pipeline import generate_prefix_cache_dataset
from prefixbench.run.runner import RunOptions, run_dataset
from prefixbench.simulator.engine import Engine

#: vLLM on a CPU takes blocks of multiples of 32.
BLOCK = 32
ROOMY, SMALL = 4_000, 100

SHARES = {"a": 5.0, "b": 3.0, "c": 2.0}

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def roomy(vllm_model: Path) -> Iterator[str]:
    with vllm_server(vllm_model, ROOMY) as address:
        yield address


@pytest.fixture(scope="module")
def small(vllm_model: Path) -> Iterator[str]:
    with vllm_server(vllm_model, SMALL) as address:
        yield address


@pytest.fixture(scope="module")
def dataset(vllm_model: Path) -> DatasetReader:
    folder = vllm_model / "dataset"
    lengths = {"mode": "truncated_normal", "min": 128, "max": 1800, "mean": 700, "std": 300}
    groups = [{"id": name, "request_weight": share} for name, share in SHARES.items()]
    config = parse_config(
        {
            "request_count": 120,
            "block_size": BLOCK,
            "input_length": lengths,
            "output_length": 4,
            "max_model_len": 2048,
            "target": {"hit_ratio": 0.6},
            "prefix": {"groups": groups},
            "tokenizer": str(vllm_model),
        }
    )
    generate_prefix_cache_dataset(config, output_dir=folder, verify="full")
    return DatasetReader(folder)


def simulated(dataset: DatasetReader, blocks: int, concurrency: int) -> Rehearsal:
    return rehearse(
        dataset,
        lambda: Engine("vllm-0.32", blocks, block_size=BLOCK),
        concurrency=concurrency,
    )


def measured(
    dataset: DatasetReader, address: str, folder: Path, concurrency: int
) -> dict[str, Any]:
    options = RunOptions(
        dataset=dataset.folder, urls=(address,), output=folder, concurrency=concurrency
    )
    run_dataset(options)
    counters = orjson.loads((folder / "runtime/prefix_cache_metrics.json").read_bytes())
    assert counters["phases"][0]["cache_state_before"] == "salted"
    assert counters["phases"][0]["usage"]["cached_tokens"] == counters["global"]["hits"]
    return dict(counters["global"])


@pytest.mark.parametrize("concurrency", [1, 16])
def test_counters_say_what_the_simulator_says(
    dataset: DatasetReader, roomy: str, tmp_path: Path, concurrency: int
) -> None:
    expected = simulated(dataset, ROOMY, concurrency)
    counted = measured(dataset, roomy, tmp_path / "run", concurrency)
    assert expected.evicted_blocks == 0
    assert expected.tally.hits > 0
    assert (counted["hits"], counted["queries"]) == (expected.tally.hits, expected.tally.queries)


def test_counters_of_a_pool_that_evicts_say_what_the_simulator_says(
    dataset: DatasetReader, small: str, tmp_path: Path
) -> None:
    expected = simulated(dataset, SMALL, 1)
    counted = measured(dataset, small, tmp_path / "run", 1)
    assert expected.evicted_blocks > 500
    assert 0 < expected.tally.hits < simulated(dataset, ROOMY, 1).tally.hits
    assert (counted["hits"], counted["queries"]) == (expected.tally.hits, expected.tally.queries)


def test_with_sixteen_in_flight_a_pool_that_evicts_determines_the_queries(
    dataset: DatasetReader, small: str, tmp_path: Path
) -> None:
    expected = simulated(dataset, SMALL, 16).tally
    counted = measured(dataset, small, tmp_path / "run", 16)
    assert counted["queries"] == expected.queries
    assert abs(counted["hits"] - expected.hits) <= 0.03 * expected.queries


@pytest.mark.parametrize("answers", ["planned", "served"])
def test_conversations_hit_what_was_designed(
    vllm_model: Path, roomy: str, tmp_path: Path, answers: str
) -> None:
    """Served answers are sampled tokens that no text gives back, so they go on as ids."""
    config = parse_config(
        {
            "request_count": 60,
            "block_size": BLOCK,
            "input_length": {"mode": "fixed", "value": 500},
            "output_length": 45,
            "max_model_len": 2048,
            "sessions": {"turns": 4, "new_tokens": 70, "answers": answers},
            "target": {"hit_ratio": 0.8},
            "validation": {"on_failure": "warn"},
            "prefix": {"group_count": 3},
            "prompt_format": "token_ids",
            "tokenizer": str(vllm_model),
        }
    )
    generate_prefix_cache_dataset(config, output_dir=tmp_path / "dataset", verify="full")
    run_dataset(RunOptions(dataset=tmp_path / "dataset", urls=(roomy,), output=tmp_path / "run"))
    metrics = orjson.loads((tmp_path / "run/runtime/prefix_cache_metrics.json").read_bytes())
    (phase,) = metrics["phases"]
    assert phase["hits"] == phase["designed_hits"] > 0
    assert phase["queries"] == phase["designed_queries"]
    checks = {row["name"]: row["status"] for row in metrics["checks"]}
    assert checks["prompt_tokens"] == "ok"
    assert checks.get("served_answers", "ok") == "ok"
