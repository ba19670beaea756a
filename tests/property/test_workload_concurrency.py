"""Planning for requests in flight, against a cache of token tuples that forgets recent requests."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import ToyRequest, lagged_hits
from planning_samples import BLOCK, configuration, frames, orders, routings, toys
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.validate import validation_report

leaders = st.sampled_from(["none", "first", "barrier"])


@st.composite
def lagged_plans(draw: st.DrawFn) -> Plan:
    groups = draw(st.integers(1, 6))
    config = configuration(
        seed=draw(st.integers(0, 10_000)),
        request_count=draw(st.integers(groups, 40)),
        target={"hit_ratio": draw(st.integers(0, 60)) / 100},
        prefix={
            "mode": "multi_prefix",
            "group_count": groups,
            "minimum_non_shared_length": draw(st.integers(0, 6)),
        },
        request_order={"mode": draw(orders), "leaders": draw(leaders)},
        routing=draw(routings),
        planning={
            "concurrency": draw(st.integers(2, 12)),
            "budget_policy": draw(st.sampled_from(["global_ratio", "proportional"])),
        },
    )
    return plan_workload(config, BLOCK, draw(frames))


@settings(max_examples=150, deadline=None)
@given(lagged_plans())
def test_a_forgetful_cache_finds_what_the_plan_says(plan: Plan) -> None:
    served = lagged_hits(
        toys(plan),
        plan.config.planning.concurrency,
        block=BLOCK,
        head=plan.geometry.head_len,
        tail=plan.geometry.tail_len,
        waited_for=plan.waited_for,
    )
    assert served == (plan.depths.hits[plan.order] * BLOCK).tolist()
    assert sum(served) == plan.hit_blocks * BLOCK
    assert plan.group_hit_blocks.sum() == plan.hit_blocks


@settings(max_examples=150, deadline=None)
@given(lagged_plans())
def test_a_target_is_met_to_the_block_at_the_planned_concurrency(plan: Plan) -> None:
    if plan.reachable:
        assert plan.coarse_steps is not None or plan.hit_blocks == plan.targets.total
        # An order that follows the prefixes may make every step larger than one block.
        rising = plan.config.request_order.mode == "prefix_len_asc" and not plan.domains.warmed
        assert (plan.coarse_steps is not None) <= rising
    else:
        assert plan.hit_blocks in (plan.range.most, plan.range.least)
    assert (plan.least_prefixes <= plan.prefix_blocks).all()
    assert (plan.prefix_blocks <= plan.most_prefixes).all()


@pytest.mark.parametrize("lag", [1, 2, 3, 5])
@pytest.mark.parametrize("groups", [1, 3])
def test_every_whole_number_of_hits_is_planned_at_every_lag(lag: int, groups: int) -> None:
    def planned(ratio: float) -> Plan:
        config = configuration(
            request_count=12,
            prefix={"mode": "multi_prefix", "group_count": groups},
            target={"hit_ratio": ratio},
            request_order={"mode": "shuffle"},
            planning={"concurrency": lag},
        )
        return plan_workload(config, BLOCK)

    some = planned(0.0)
    assert some.range.least == 0
    for blocks in range(some.range.most + 1):
        plan = planned(blocks * BLOCK / some.workload.input_tokens)
        assert plan.targets.total == blocks
        assert plan.hit_blocks == blocks


@pytest.mark.parametrize("lag", [1, 2, 3])
@pytest.mark.parametrize("groups", [(0, 0, 0, 0), (0, 1, 0, 1)])
def test_the_largest_prefixes_hit_most_and_cutting_the_end_passes_every_number(
    lag: int, groups: tuple[int, ...]
) -> None:
    caps = (3, 2, 3, 2)

    def hits(prefixes: tuple[int, ...]) -> int:
        requests = [
            ToyRequest(cache=0, group=g, input_len=4 * p + 5, prefix_len=4 * p)
            for g, p in zip(groups, prefixes, strict=True)
        ]
        return sum(lagged_hits(requests, lag, block=4)) // 4

    most = max(hits(prefixes) for prefixes in product(*(range(cap + 1) for cap in caps)))
    assert hits(caps) == most
    cut = {hits((*caps[:k], x, *([0] * (3 - k)))) for k in range(4) for x in range(caps[k] + 1)}
    assert cut == set(range(most + 1))


@given(st.integers(2, 6), st.integers(2, 5), st.integers(0, 500))
def test_with_a_barrier_behind_the_leaders_concurrency_costs_nothing(
    groups: int, members: int, seed: int
) -> None:
    given: dict[str, Any] = {
        "seed": seed,
        "request_count": groups * members,
        "prefix": {"mode": "multi_prefix", "group_count": groups},
        "target": {"hit_ratio": 0.3},
    }
    order = {"mode": "shuffle", "leaders": "barrier"}
    plan = plan_workload(configuration(**given, request_order=order), BLOCK)
    assert plan.lag_model.largest_lag_keeping(plan.hit_blocks) == groups * members


def test_the_report_says_what_the_planned_concurrency_costs() -> None:
    config = configuration(
        request_count=200,
        request_order={"within_group": "input_len_asc", "across_group": "grouped"},
        target={"hit_ratio": 0.4},
        planning={"concurrency": 16},
    )
    plan = plan_workload(config, BLOCK)
    report = validation_report(plan)
    assert report["validation_status"] == "PASS"
    assert report["designed_hit_ratio"] == report["designed_hit_ratio_at_concurrency"]["16"]
    loss = report["concurrency_loss"]
    one, sixteen = (report["designed_hit_ratio_at_concurrency"][lag] for lag in ("1", "16"))
    assert loss["lost_pp"] == pytest.approx(100 * (one - sixteen))
    assert loss["lost_pp"] > 5
    assert report["robust_to_concurrency"] < 16


def test_nothing_is_lost_where_the_order_is_robust() -> None:
    config = configuration(
        request_count=60,
        prefix={"mode": "multi_prefix", "group_count": 20},
        target={"hit_ratio": 0.2},
        execution={"concurrency": 16},
    )
    report = validation_report(plan_workload(config, BLOCK))
    assert report["robust_to_concurrency"] >= 16
    assert report["concurrency_loss"] is None
