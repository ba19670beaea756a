"""The timing model against real vLLM 0.19 runs (published with LLMServingSim, MIT).

300 requests on each of four setups; none shares a prefix with another. The runs are not part of
the repository: they are looked for in `../shared/traces`. What proves the fit without them is
`tests/unit/test_simulator_cost_run.py`.
"""

from __future__ import annotations

import json
from functools import partial
from typing import NamedTuple

import pytest

from prefixbench.core.percentiles import percentile
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.cost_run import MeasuredRequest, errors_of, fit_run, play_measured
from prefixbench.simulator.engine import Engine
from shared_folder import shared_folder

RUNS = shared_folder() / "traces" / "llmservingsim-vllm-runs"

pytestmark = pytest.mark.skipif(
    not RUNS.is_dir(), reason="the published runs are not here (../shared/traces)"
)


class Setup(NamedTuple):
    """A run, what its engine was started with, and bounds of the median errors (ttft, e2e)."""

    name: str
    usable_blocks: int | None
    max_num_seqs: int
    dp_size: int
    bounds: tuple[float, float]


SETUPS = [
    Setup("RTXPRO6000_Llama-3.1-8B", None, 128, 1, (0.03, 0.02)),
    Setup("RTX4090_Llama-3.1-8B", 2587, 256, 1, (0.02, 0.02)),
    Setup("RTXPRO6000_Qwen3-32B", None, 128, 1, (0.02, 0.01)),
    # Two ranks behind vLLM's own balancing, whose arrivals at the ranks are not recorded.
    Setup("RTXPRO6000_Qwen3-30B-A3B-Instruct-2507", None, 128, 2, (0.25, 0.03)),
]


def requests_of(name: str) -> tuple[list[MeasuredRequest], list[float]]:
    """The requests in the order they came, and how long each was queued (ns)."""
    with (RUNS / f"{name}.requests.jsonl").open() as file:
        rows = sorted(map(json.loads, file), key=lambda row: row["queued_ts"])
    requests = [
        MeasuredRequest(
            input_len=row["input_toks"],
            output_len=row["output_toks"],
            sent_ns=round(row["queued_ts"] * 1e9),
            first_token_ns=round(row["first_token_ts"] * 1e9),
            finished_ns=round(row["last_token_ts"] * 1e9),
        )
        for row in rows
    ]
    return requests, [(row["scheduled_ts"] - row["queued_ts"]) * 1e9 for row in rows]


def make_engine(setup: Setup, cost: CostModel) -> Engine:
    return Engine("vllm-0.19", setup.usable_blocks, 2048, setup.max_num_seqs, cost=cost)


@pytest.mark.deep
@pytest.mark.parametrize("setup", SETUPS, ids=lambda setup: setup.name)
def test_a_fitted_model_plays_the_run(setup: Setup) -> None:
    requests, queued_ns = requests_of(setup.name)
    assert len(requests) == 300
    make = partial(make_engine, setup)
    found = fit_run(requests, make, setup.dp_size)
    for (name, error), bound in zip(found.errors.items(), setup.bounds, strict=True):
        print(f"{setup.name} {name}: median {error.median:.2%}, p95 {error.p95:.2%}")  # noqa: T201
        assert error.median is not None
        assert error.median < bound
    watch = play_measured(requests, found.model, make, setup.dp_size)
    played = [watch.moments[str(number)].queued_ns for number in range(300)]
    for q in (50, 95):
        real, ours = percentile(queued_ns, q), percentile(played, q)
        assert real is not None
        assert ours is not None
        print(f"  queued p{q}: {real / 1e9:.2f} s measured, {ours / 1e9:.2f} s played")  # noqa: T201
        assert abs(ours - real) < 1e9 + 0.1 * real


def test_prices_of_the_first_half_hold_for_the_second() -> None:
    """Fitted to the first 150 requests; judged by the 150 after them, with their queue."""
    setup = SETUPS[0]
    requests, _queued = requests_of(setup.name)
    make = partial(make_engine, setup)
    model = fit_run(requests[:150], make).model
    watch = play_measured(requests, model, make)
    later = errors_of(requests, watch, since=150)
    print({name: (error.median, error.p95) for name, error in later.items()})  # noqa: T201
    assert later["e2e"].median is not None
    assert later["e2e"].median < 0.1
