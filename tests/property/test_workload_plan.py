"""The theorems the planner rests on, against a cache of token tuples that knows none of them."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oracles import ToyRequest, lagged_hits, served_hits
from planning_samples import BLOCK, configuration, frames, orders, routings, toys
from prefixbench.workload.planner import Plan, plan_workload


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    frame = draw(frames)
    groups = draw(st.integers(1, 6))
    config = configuration(
        seed=draw(st.integers(0, 10_000)),
        request_count=draw(st.integers(groups, 40)),
        target={"hit_ratio": draw(st.integers(0, 100)) / 100},
        prefix={
            "mode": "multi_prefix",
            "group_count": groups,
            "minimum_non_shared_length": draw(st.integers(0, 6)),
        },
        request_order={"mode": draw(orders)},
        routing=draw(routings),
    )
    return plan_workload(config, BLOCK, frame)


@settings(max_examples=150, deadline=None)
@given(plans())
def test_a_cache_of_token_tuples_finds_what_the_plan_says(plan: Plan) -> None:
    head, tail = plan.geometry.head_len, plan.geometry.tail_len
    served = served_hits(toys(plan), block=BLOCK, head=head, tail=tail)
    assert served == (plan.depths.hits[plan.order] * BLOCK).tolist()
    assert sum(served) == plan.hit_blocks * BLOCK
    assert plan.group_hit_blocks.sum() == plan.hit_blocks


@settings(max_examples=150, deadline=None)
@given(plans())
def test_every_reachable_target_is_met_to_the_block(plan: Plan) -> None:
    residual = plan.hit_blocks - plan.targets.total
    if plan.reachable:
        assert residual == 0
    else:
        nearest = plan.range.most if residual < 0 else plan.range.least
        assert plan.hit_blocks == nearest
    prefixes = plan.prefix_blocks
    assert (plan.least_prefixes <= prefixes).all()
    assert (prefixes <= plan.most_prefixes).all()


@settings(max_examples=150, deadline=None)
@given(plans(), st.integers(1, 12))
def test_the_lag_model_matches_a_cache_that_forgets_recent_requests(plan: Plan, lag: int) -> None:
    head, tail = plan.geometry.head_len, plan.geometry.tail_len
    expected = lagged_hits(toys(plan), lag, block=BLOCK, head=head, tail=tail)
    assert (plan.lag_model.depths(lag).hits[plan.order] * BLOCK).tolist() == expected


@settings(max_examples=60, deadline=None)
@given(plans())
def test_the_stated_concurrency_is_the_largest_that_costs_nothing(plan: Plan) -> None:
    count = plan.workload.request_count
    keeping = [lag for lag in range(1, count + 1) if plan.lag_model.hits(lag) == plan.hit_blocks]
    assert plan.lag_model.largest_lag_keeping(plan.hit_blocks) == max(keeping)


@pytest.mark.parametrize("groups", [(0, 0, 0, 0), (0, 0, 1, 1), (0, 1, 1, 2)])
def test_range_order_and_unit_step_on_all_small_plans(groups: tuple[int, ...]) -> None:
    caps = (2, 3, 3, 1)
    by_plan = {}
    for prefixes in product(*(range(cap + 1) for cap in caps)):
        requests = [
            ToyRequest(cache=0, group=g, input_len=4 * p + 5, prefix_len=4 * p)
            for g, p in zip(groups, prefixes, strict=True)
        ]
        totals = {sum(served_hits(order, block=4)) // 4 for order in permutations(requests)}
        assert len(totals) == 1
        by_plan[prefixes] = totals.pop()
        largest = [
            max(p for g, p in zip(groups, prefixes, strict=True) if g == group)
            for group in set(groups)
        ]
        assert by_plan[prefixes] == sum(prefixes) - sum(largest)
    assert set(by_plan.values()) == set(range(by_plan[caps] + 1))
    for prefixes, hits in by_plan.items():
        for place in range(len(caps)):
            longer = tuple(p + (i == place) for i, p in enumerate(prefixes))
            assert by_plan.get(longer, hits) - hits in (0, 1)


@given(st.integers(2, 8), st.integers(2, 6), st.integers(0, 1000))
def test_round_robin_over_equal_groups_is_exact_up_to_as_many_in_flight(
    groups: int, members: int, seed: int
) -> None:
    config = configuration(
        seed=seed,
        request_count=groups * members,
        prefix={"mode": "multi_prefix", "group_count": groups},
        request_order={"within_group": "shuffle", "across_group": "lag_robust"},
        target={"hit_ratio": 0.3},
    )
    plan = plan_workload(config, BLOCK)
    assert plan.lag_model.hits(groups) == plan.hit_blocks


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.integers(1, 12), min_size=1, max_size=6),
    st.lists(st.integers(0, 100), min_size=6, max_size=6),
    st.sampled_from(["global_ratio", "proportional"]),
    st.integers(0, 99),
)
def test_group_targets_and_budgets_are_exact(
    counts: list[int], ratios: list[int], policy: str, seed: int
) -> None:
    groups = [{"id": f"g{i}", "request_count": count} for i, count in enumerate(counts)]
    common = {"seed": seed, "request_count": sum(counts)}
    prefix = {"mode": "multi_prefix", "groups": groups}
    own = [{"id": f"g{i}", "hit_ratio": ratios[i] / 100} for i in range(len(counts))]
    separate = plan_workload(
        configuration(**common, prefix=prefix, target={"scope": "per_group", "groups": own}), BLOCK
    )
    assert separate.targets.by_group is not None
    for group, wanted in enumerate(separate.targets.by_group):
        most = separate.group_range.most[group]
        assert separate.group_hit_blocks[group] == min(wanted, most)
    shared = plan_workload(
        configuration(
            **common,
            prefix=prefix,
            target={"hit_ratio": ratios[0] / 100},
            planning={"budget_policy": policy},
        ),
        BLOCK,
    )
    assert shared.hit_blocks == min(shared.targets.total, shared.range.most)


def test_dithered_prefixes_have_no_bias_where_a_floor_loses_half_a_block() -> None:
    config = configuration(
        request_count=4000,
        input_length={
            "mode": "truncated_normal",
            "min": 1024,
            "max": 8192,
            "mean": 4096,
            "std": 900,
        },
        block_size=128,
        target={"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
        prefix={"mode": "single_prefix"},
    )
    plan = plan_workload(config, 128)
    share = plan.prefix_blocks * 128 / plan.workload.input_len
    windows = np.convolve(share, np.ones(1000) / 1000, "valid")
    assert np.abs(windows - 0.5).max() < 128 / (10 * 4096)
    floored = plan_workload(
        config.model_copy(
            update={
                "planning": config.planning.model_copy(update={"block_residual_calibration": False})
            }
        ),
        128,
    )
    assert plan.hit_blocks == plan.targets.total
    assert floored.ratio(floored.hit_blocks) - Fraction(1, 2) < Fraction(-15, 1000)


def test_target_zero_plans_no_prefix_that_nobody_reads() -> None:
    assert plan_workload(configuration(target={"hit_ratio": 0.0}), BLOCK).prefix_blocks.sum() == 0


def test_unnested_members_of_a_group_share_one_length() -> None:
    config = configuration(
        request_count=200,
        prefix={"mode": "multi_prefix", "group_count": 3, "nested_prefix": False},
        target={"hit_ratio": 0.15},
    )
    plan = plan_workload(config, BLOCK)
    by_group = [set(plan.prefix_blocks[plan.workload.group == g].tolist()) for g in range(3)]
    assert [len(lengths) for lengths in by_group] == [1, 1, 1]
    assert abs(plan.ratio(plan.hit_blocks) - Fraction(15, 100)) < Fraction(3, 100)
