"""Worked cases of data parallel and routers: how a group's hits shrink when it is spread.

Sources: vLLM 0.33 with two DP ranks, executed; the arithmetic of cold starts; the published
conversation trace of Mooncake, played over four workers by two independent programs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from prefixbench.core.tally import HitTally
from prefixbench.simulator.cluster import Cluster
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival, CacheAware, LeastLoaded, RoundRobin, Sticky
from prefixbench.simulator.tokens import TokenRuns
from shared_folder import shared_folder
from simulated import request, text

TRACE = shared_folder() / "traces" / "mooncake-fast25" / "conversation_trace.jsonl"


def cluster(places: int, router, profile: str = "vllm-0.33", **options) -> Cluster:
    return Cluster([Engine(profile, **options) for _ in range(places)], router)


def played(engines: Cluster, arrivals: list[Arrival], concurrency: int = 1) -> list[int]:
    hits = engines.play(arrivals, concurrency)
    engines.check_integrity()
    return [hits[each.request.request_id] for each in arrivals]


def test_an_identical_prompt_is_cold_once_on_each_rank() -> None:
    arrivals = [Arrival(request(text((1, 330)))) for _ in range(8)]
    assert played(cluster(2, LeastLoaded()), arrivals) == [0, 0] + [320] * 6


def test_a_pinned_rank_is_the_one_that_is_asked() -> None:
    arrivals = [Arrival(request(text((1, 330))), pinned=rank) for rank in (0, 0, 1, 1, 0)]
    assert played(cluster(2, LeastLoaded()), arrivals) == [0, 320, 0, 320, 320]


@pytest.mark.parametrize(("router", "cold"), [(RoundRobin, 4), (Sticky, 1)])
def test_one_group_over_four_ranks_is_cold_on_each_of_them(router, cold: int) -> None:
    """In turn: (N - 4) / N of the requests find the prefix; kept together: (N - 1) / N."""
    engines = cluster(4, router())
    arrivals = [Arrival(request(text((1, 64), 8)), "group") for _ in range(20)]
    assert sorted(played(engines, arrivals)) == [0] * cold + [64] * (20 - cold)
    by_place = [engines.tally_at(place) for place in range(4)]
    assert sum(tally.hits for tally in by_place) == 64 * (20 - cold)
    assert engines.by_domain[0, "group"] == by_place[0]
    assert len(engines.by_domain) == cold


def test_cache_aware_routing_keeps_groups_together() -> None:
    engines = cluster(2, CacheAware())
    groups = [(name, seed) for _ in range(5) for seed, name in enumerate("abcdef")]
    arrivals = [Arrival(request(text((seed, 96), 32)), name) for name, seed in groups]
    assert sum(played(engines, arrivals)) == 96 * (30 - 6)
    assert len(engines.by_domain) == 6
    assert {place for place, _ in engines.by_domain} == {0, 1}


def test_engines_move_in_the_order_in_which_their_steps_end() -> None:
    """The second engine serves two short prompts while the first computes a long one."""
    engines = cluster(2, RoundRobin(), cost=CostModel(prefill_token_ns=1))
    for length in (1000, 100):
        engines.submit(Arrival(request(text(length), name=str(length))))
    order: list[str] = []
    while engines.has_work:
        for outcome in engines.step():
            order += outcome.finished
        if order == ["100"]:
            engines.submit(Arrival(request(text(300), name="300"), pinned=1))
    assert order == ["100", "300", "1000"]
    assert [engine.clock.now_ns() for engine in engines.engines] == [1000, 400]


def test_an_engine_that_was_idle_has_the_time_of_the_others() -> None:
    engines = cluster(2, RoundRobin(), cost=CostModel(prefill_token_ns=1))
    played(engines, [Arrival(request(text(length))) for length in (500, 70)])
    assert [engine.clock.now_ns() for engine in engines.engines] == [500, 570]


def trace_requests() -> Iterator[EngineRequest]:
    """Each hash id stands for 512 tokens of its own; the last may be partial."""
    for number, line in enumerate(TRACE.read_text().splitlines()):
        row = json.loads(line)
        runs = [range(id_ * 512, (id_ + 1) * 512) for id_ in row["hash_ids"]]
        excess = len(runs) * 512 - row["input_length"]
        runs[-1] = runs[-1][: 512 - excess]
        output = range(1 << 50, (1 << 50) + 1)
        yield EngineRequest(f"r{number}", TokenRuns(runs), output)


@pytest.mark.skipif(not TRACE.exists(), reason="the published trace is not here")
def test_the_conversation_trace_over_four_workers_in_turn() -> None:
    """Tokens of full blocks, at most n-1: 0.3734 on one worker, 0.1955 over four."""
    rates = []
    for places in (1, 4):
        engines = cluster(
            places, RoundRobin(), "vllm-0.33", block_size=512, max_num_batched_tokens=1 << 20
        )
        engines.play(map(Arrival, trace_requests()))
        tally = sum((engines.tally_at(place) for place in range(places)), HitTally(0, 0))
        rates.append(float(tally.ratio or 0))
    assert rates == [pytest.approx(0.373379905854133, abs=1e-15), pytest.approx(0.19551, abs=5e-6)]
