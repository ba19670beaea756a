"""Theorems of planning for warm caches, heads and budgets, each against a brute force."""

from __future__ import annotations

from collections import defaultdict
from fractions import Fraction
from itertools import permutations
from operator import le
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import BlockCache, ToyRequest, tokens_of
from planning_samples import BLOCK, configuration, frames, orders, routings, toys
from prefixbench.workload.budgets import proportional_budgets
from prefixbench.workload.certificate import certificate
from prefixbench.workload.domains import Runs
from prefixbench.workload.plan import plan_by_blocks
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.setting import Frame
from prefixbench.workload.shape import Growth, Shape
from prefixbench.workload.targets import target_blocks

#: Mean length of the requests whose rounding is looked at, in tokens.
MEAN = 4096


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    groups = draw(st.integers(1, 6))
    config = configuration(
        seed=draw(st.integers(0, 10_000)),
        request_count=draw(st.integers(groups, 40)),
        target={"hit_ratio": draw(st.integers(0, 100)) / 100},
        prefix={"group_count": groups, "minimum_non_shared_length": draw(st.integers(0, 6))},
        request_order={"mode": draw(orders)},
        routing=draw(routings),
        execution={"mode": draw(st.sampled_from(["warmup", "progressive_prefix_fill"]))},
    )
    return plan_workload(config, BLOCK, draw(frames))


def found_in_turn(plan: Plan, requests: list[ToyRequest]) -> list[int]:
    """Hit blocks of every request; a warm-up sends each (cache, group) its longest prefix first."""
    head, tail = plan.geometry.head_len, plan.geometry.tail_len
    caches: dict[int, BlockCache] = defaultdict(lambda: BlockCache(BLOCK))
    if plan.config.execution.mode == "warmup":
        longest: dict[tuple[int, int], int] = {}
        for request in requests:
            key = (request.cache, request.group)
            longest[key] = max(longest.get(key, 0), request.prefix_len)
        for number, ((cache, group), length) in enumerate(longest.items()):
            filled = ToyRequest(cache, group, length + tail + 1, length)
            caches[cache].serve(tokens_of(filled, -1 - number, head, tail))
    return [
        caches[request.cache].serve(tokens_of(request, number, head, tail)) // BLOCK
        for number, request in enumerate(requests)
    ]


@settings(max_examples=150, deadline=None)
@given(plans())
def test_warm_or_cold_a_cache_of_token_tuples_finds_what_is_planned(plan: Plan) -> None:
    found = found_in_turn(plan, toys(plan))
    assert found == plan.depths.hits[plan.order].tolist()
    assert sum(found) == plan.hit_blocks == plan.sequential_hit_blocks
    if plan.reachable:
        assert sum(found) == plan.targets.total
    else:
        assert sum(found) in (plan.range.least, plan.range.most)


@settings(max_examples=100, deadline=None)
@given(plans())
def test_the_certificate_states_what_each_domain_computes_once(plan: Plan) -> None:
    requests, proof = toys(plan), certificate(plan)
    found, head = found_in_turn(plan, requests), plan.geometry.head_blocks
    lost: dict[tuple[str, int], int] = defaultdict(int)
    first = {request.cache: place for place, request in reversed([*enumerate(requests)])}
    openers = [] if proof["warmed"] else [*first.values()]
    for number, (request, hits) in enumerate(zip(requests, found, strict=True)):
        name = plan.workload.group_ids[request.group]
        missed = request.prefix_len // BLOCK - hits
        lost[name, request.cache] += missed - head * (number in openers)
    rows = proof["cold_loss_by_domain"]
    stated = {(row["prefix_group_id"], row["cache"]): row["blocks"] for row in rows}
    largest = sorted(lost.values(), reverse=True)[: len(stated)]
    assert sorted(stated.values(), reverse=True) == largest
    assert all(lost[domain] == blocks for domain, blocks in stated.items())
    assert proof["cold_loss_blocks"] == sum(lost.values())
    assert proof["head_loss_blocks"] == head * len(openers)
    added = proof["sum_prefix_blocks"] - proof["cold_loss_blocks"] - proof["head_loss_blocks"]
    assert added == proof["sequential_hit_blocks"] == sum(found)


@settings(max_examples=60, deadline=None)
@given(st.integers(2, 8), st.integers(2, 6), st.integers(0, 1000), st.sampled_from([4, 9]))
def test_in_flight_an_equal_round_robin_loses_the_head_alone(
    groups: int, members: int, seed: int, head_len: int
) -> None:
    config = configuration(
        seed=seed,
        request_count=groups * members,
        prefix={"group_count": groups},
        request_order={"within_group": "shuffle", "across_group": "lag_robust"},
        target={"hit_ratio": 0.4},
    )
    plan = plan_workload(config, BLOCK, Frame(head_len=head_len, shortest=head_len + 2))
    head = head_len // BLOCK
    for in_flight in range(1, groups + 1):
        lost = plan.sequential_hit_blocks - plan.lag_model.hits(in_flight)
        assert lost == head * (in_flight - 1)


def even_plan(*, block: int, groups: int, across: str = "lag_robust") -> Plan:
    """Half of every request shared, lengths around 4,096 tokens; no cap binds."""
    config = configuration(
        request_count=8400,
        input_length={
            "mode": "truncated_normal",
            "min": 1024,
            "max": 8192,
            "mean": MEAN,
            "std": 900,
        },
        block_size=block,
        target={"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
        prefix={"group_count": groups},
        request_order={"within_group": "sequential", "across_group": across},
    )
    return plan_workload(config, block)


def shares_of(plan: Plan) -> np.ndarray[Any, np.dtype[np.float64]]:
    return plan.prefix_blocks * plan.geometry.block_size / plan.workload.input_len


@pytest.mark.parametrize("block", [16, 128])
@pytest.mark.parametrize(("groups", "windowed"), [(1, 1), (7, 7), (89, 0), (1200, 0)])
def test_no_window_of_requests_or_ranks_is_biased(block: int, groups: int, windowed: int) -> None:
    plan, window = even_plan(block=block, groups=groups, across="interleave"), 1000
    shares = shares_of(plan)
    in_groups = [shares[plan.workload.group == group] for group in range(windowed)]
    for values in (shares, shares[plan.order], *in_groups):
        assert len(values) >= window
        means = np.convolve(values, np.ones(window) / window, "valid")
        assert np.abs(means - 0.5).max() < block / (10 * MEAN)


@pytest.mark.parametrize("block", [16, 128])
def test_neither_short_nor_long_requests_are_biased(block: int) -> None:
    plan = even_plan(block=block, groups=7)
    by_length = np.array_split(np.argsort(plan.workload.input_len), 4)
    for quarter in by_length:
        assert abs(shares_of(plan)[quarter].mean() - 0.5) < block / (10 * MEAN)


@pytest.mark.parametrize("groups", [2, 1000])
def test_large_data_sets_are_met_to_the_block(groups: int) -> None:
    for percent in range(3, 40, 4):
        ratio = Fraction(percent, 100)
        config = configuration(
            seed=percent,
            request_count=3000,
            prefix={"group_count": groups},
            target={"hit_ratio": float(ratio)},
        )
        plan = plan_workload(config, BLOCK)
        deepest: dict[int, int] = defaultdict(int)
        hits = 0
        for row in plan.order.tolist():
            group, prefix = int(plan.workload.group[row]), int(plan.prefix_blocks[row])
            hits += min(prefix, deepest[group])
            deepest[group] = max(prefix, deepest[group])
        missed = hits * BLOCK - ratio * int(plan.workload.input_len.sum())
        assert Fraction(-BLOCK, 2) < missed <= Fraction(BLOCK, 2) or not plan.reachable
        assert hits == plan.targets.total or not plan.reachable


@pytest.mark.parametrize(("missing", "longer"), [(3, 4), (4, 6), (6, 8), (7, 10)])
def test_no_more_blocks_are_added_than_the_target_needs(missing: int, longer: int) -> None:
    rows = 12
    shape = Shape(
        weight=np.full(rows, 20),
        granularity=4,
        dither=np.full(rows, 1 << 31, np.uint32),
        least=0,
        most=np.full(rows, 4),
    )
    runs = Runs(starts=np.array([0, 4, 8]), head_blocks=0, head_loss=0, cold=True)
    all_alike = 3 * (rows - 3)
    planned = plan_by_blocks(Growth(shape=shape), runs, all_alike + missing)
    # The first longer one of each run of four gains nothing.
    assert planned.prefix_blocks.tolist() == [4] * longer + [3] * (rows - longer)


def test_half_a_block_is_rounded_up() -> None:
    assert [target_blocks(Fraction(1, 2), tokens, 4) for tokens in (4, 11, 12, 13)] == [1, 1, 2, 2]


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_single_blocks_gain_what_the_hits_then_grow_by(data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=3))
    domain = [number for number, size in enumerate(sizes) for _ in range(size)]
    prefixes = data.draw(st.lists(st.integers(0, 5), min_size=len(domain), max_size=len(domain)))
    raised = data.draw(st.permutations([*range(len(domain))] * 2))

    def hits(blocks: list[int]) -> int:
        deepest: dict[int, int] = defaultdict(int)
        total = 0
        for number, prefix in zip(domain, blocks, strict=True):
            total += min(prefix, deepest[number])
            deepest[number] = max(prefix, deepest[number])
        return total

    now, gained, values = list(prefixes), [], []
    for place in raised:
        before = hits(now)
        now[place] += 1
        values.append(now[place])
        gained.append(hits(now) - before)
    starts = np.cumsum(sizes) - np.array(sizes)
    runs = Runs(starts=starts, head_blocks=0, head_loss=0, cold=True)
    found = runs.gains(np.array(prefixes), np.array(raised), np.array(values))
    assert found.tolist() == gained
    assert set(gained) <= {0, 1}


@st.composite
def budget_questions(draw: st.DrawFn) -> tuple[list[int], list[int], list[int], int]:
    groups = draw(st.integers(1, 4))
    weights = draw(st.lists(st.integers(1, 9), min_size=groups, max_size=groups))
    least = draw(st.lists(st.integers(0, 3), min_size=groups, max_size=groups))
    most = [low + draw(st.integers(0, 5)) for low in least]
    return weights, least, most, draw(st.integers(-1, 40))


@settings(max_examples=200, deadline=None)
@given(budget_questions())
def test_budgets_are_the_whole_numbers_nearest_to_proportional(
    question: tuple[list[int], list[int], list[int], int],
) -> None:
    weights, least, most, total = question
    budgets = proportional_budgets(weights=weights, least=least, most=most, total=total)
    assert all(map(le, least, budgets))
    assert all(map(le, budgets, most))
    assert sum(budgets) == min(max(total, sum(least)), sum(most))

    def unevenness(split: list[int]) -> float:
        return sum(part * part / weight for part, weight in zip(split, weights, strict=True))

    # No block moved from one group to another makes the split more even by weight.
    for giver, taker in permutations(range(len(budgets)), 2):
        moved = list(budgets)
        moved[giver] -= 1
        moved[taker] += 1
        if least[giver] <= moved[giver] and moved[taker] <= most[taker]:
            assert unevenness(moved) >= unevenness(budgets) - 1e-9
