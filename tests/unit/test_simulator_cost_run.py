"""Prices out of measured requests: what a known server took is found again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.simulator.cluster import Cluster
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.cost_file import cost_document, read_cost
from prefixbench.simulator.cost_fit import PRICES
from prefixbench.simulator.cost_run import MeasuredRequest, fit_run, play_measured
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival, RoundRobin
from prefixbench.simulator.stopwatch import Stopwatch

TRUE = CostModel(
    step_ns=8e6, prefill_token_ns=40_000, context_token_ns=60, decode_sequence_ns=150_000
)
UNIX_NS = 1_700_000_000_000_000_000


def make_engine(cost: CostModel) -> Engine:
    return Engine("vllm-0.33", max_num_batched_tokens=1024, max_num_seqs=16, cost=cost)


def measured_by_a_known_server(rate_per_s: float, count: int = 60) -> list[MeasuredRequest]:
    """Requests with the times that a server of the true prices gives them."""
    draw = Random(1)
    asked, now = [], UNIX_NS
    for _ in range(count):
        now += round(draw.expovariate(rate_per_s) * 1e9)
        input_len = draw.randrange(50, 3000)
        asked.append(
            MeasuredRequest(
                input_len=input_len,
                output_len=draw.randrange(1, 120),
                cached_len=draw.randrange(input_len) // 16 * 16,
                sent_ns=now,
                first_token_ns=0,
                finished_ns=0,
            )
        )
    moments = play_measured(asked, TRUE, make_engine).moments
    return [
        replace(
            one,
            first_token_ns=one.sent_ns + moments[str(number)].ttft_ns,
            finished_ns=one.sent_ns + moments[str(number)].e2e_ns,
        )
        for number, one in enumerate(asked)
    ]


@pytest.mark.parametrize("rate_per_s", [0.5, 4, 40])
def test_known_prices_are_found_through_queues_and_batches(rate_per_s: float) -> None:
    """Alone, in batches, and with a queue of seconds before 16 seats."""
    found = fit_run(measured_by_a_known_server(rate_per_s), make_engine)
    for error in found.errors.values():
        assert error.median is not None
        assert error.median < 0.03
    assert found.model.prefill_token_ns == pytest.approx(TRUE.prefill_token_ns, rel=0.15)


def test_the_order_of_rows_does_not_matter() -> None:
    rows = measured_by_a_known_server(4, count=20)
    assert fit_run(rows[::-1], make_engine) == fit_run(rows, make_engine)


def test_one_request_at_a_time_does_not_tell_a_sequence_from_a_step() -> None:
    """Prompts of one token: each step of prefill and of decoding costs the same."""
    rows = [
        MeasuredRequest(
            input_len=1,
            output_len=11,
            sent_ns=number * 10**9,
            first_token_ns=number * 10**9 + 10**7,
            finished_ns=number * 10**9 + 11 * 10**7,
        )
        for number in range(5)
    ]
    found = fit_run(rows, make_engine)
    assert found.model.step_ns == pytest.approx(1e7, rel=0.01)
    assert found.unknown.keys() == set(PRICES) - {"step_ns"}
    assert found.errors["e2e"].median == pytest.approx(0, abs=0.01)


def test_arrivals_in_time_wait_for_the_step_that_is_running() -> None:
    """A step of 1 ms for each prompt; the second comes in the middle of the first one's step."""
    cluster = Cluster([Engine("vllm-0.33", cost=CostModel(step_ns=1e6))] * 1, RoundRobin())
    cluster.watch = watch = Stopwatch()
    cluster.play_in_time(
        (at_ns, Arrival(EngineRequest(name, range(10), range(100, 102))))
        for name, at_ns in (("a", 0), ("b", 500_000), ("c", 9_000_000))
    )
    moments = {
        name: (one.sent_ns, one.admitted_ns, one.first_token_ns, one.finished_ns)
        for name, one in watch.moments.items()
    }
    assert moments == {
        "a": (0, 0, 1_000_000, 2_000_000),
        "b": (500_000, 1_000_000, 2_000_000, 3_000_000),
        "c": (9_000_000, 9_000_000, 10_000_000, 11_000_000),
    }
    # From the middle of the first step to the end of the third.
    work = watch.work_between(0, 500_000, 3_000_000)
    assert (work.steps, work.prefill_tokens, work.decode_sequences) == (2.5, 5 + 10, 2)
    assert watch.work_between(0, 3_000_000, 9_000_000).steps == 0


def test_an_idle_rank_begins_when_its_request_comes() -> None:
    engines = [Engine("vllm-0.33", cost=CostModel(step_ns=1e6)) for _ in range(2)]
    cluster = Cluster(engines, RoundRobin())
    cluster.watch = watch = Stopwatch()
    cluster.play_in_time(
        (at_ns, Arrival(EngineRequest(name, range(10), range(100, 101))))
        for name, at_ns in (("a", 0), ("b", 300_000))
    )
    assert watch.moments["b"].first_token_ns == 1_300_000


def test_a_cost_file_keeps_prices_and_says_what_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    document = cost_document(TRUE, {"context_token_ns": "why"}, requests=3)
    assert document["context_token_ns"] is None
    path.write_text(json.dumps(document))
    assert read_cost(path) == replace(TRUE, context_token_ns=0.0)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "no valid JSON in UTF-8 (Expecting property name enclosed in double quotes: line 1"),
        ("[]", "format is not prefixbench-cost/1"),
        ('{"format": "prefixbench-cost/1", "step_ns": "1"}', "step_ns is no price"),
        ('{"format": "prefixbench-cost/1", "step_ns": -1}', "step_ns is no price"),
        ('{"format": "prefixbench-cost/1", "step_ns": true}', "step_ns is no price"),
    ],
)
def test_a_wrong_cost_file_is_named(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"cost\.json is no cost model") as raised:
        read_cost(path)
    assert reason in raised.value.message
