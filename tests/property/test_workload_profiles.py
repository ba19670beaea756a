"""How prefixes grow over the run: the shape each profile promises, the total exact in each."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planning_samples import BLOCK, configuration, frames, orders, routings
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.validate import validation_report


@st.composite
def profiled_plans(draw: st.DrawFn) -> Plan:
    groups = draw(st.integers(1, 5))
    config = configuration(
        seed=draw(st.integers(0, 10_000)),
        request_count=draw(st.integers(groups, 50)),
        target={"hit_ratio": draw(st.integers(0, 80)) / 100},
        prefix={
            "mode": "multi_prefix",
            "group_count": groups,
            "minimum_non_shared_length": draw(st.integers(0, 6)),
            "nested_prefix": draw(st.sampled_from([True, True, True, False])),
        },
        request_order={"mode": draw(orders)},
        routing=draw(routings),
        planning={
            "profile": draw(st.sampled_from(["monotone", "ramp"])),
            "budget_policy": draw(st.sampled_from(["global_ratio", "proportional"])),
        },
    )
    return plan_workload(config, BLOCK, draw(frames))


@settings(max_examples=150, deadline=None)
@given(profiled_plans())
def test_the_total_is_exact_under_every_profile(plan: Plan) -> None:
    if plan.reachable and plan.config.prefix.nested_prefix:
        assert plan.hit_blocks == plan.targets.total
    assert (plan.least_prefixes <= plan.prefix_blocks).all()
    assert (plan.prefix_blocks <= plan.most_prefixes).all()


@settings(max_examples=150, deadline=None)
@given(profiled_plans())
def test_a_wanted_profile_is_had_or_the_report_says_why_not(plan: Plan) -> None:
    report = validation_report(plan)
    if report["planned_profile"] == plan.config.planning.profile:
        assert not any("profile" in line for line in report["wishes_left_out"])
    else:
        assert report["planned_profile"] == "proportional"
        assert any("profile" in line for line in report["wishes_left_out"])
    if report["planned_profile"] == "monotone":
        for group in range(len(plan.workload.group_ids)):
            sent = plan.order[plan.workload.group[plan.order] == group]
            assert (np.diff(plan.prefix_blocks[sent]) >= 0).all()


@pytest.mark.parametrize("ratio", [0.1, 0.3, 0.5, 0.7])
def test_under_a_ramp_the_cumulative_ratio_grows(ratio: float) -> None:
    def by_tenths(profile: str) -> list[Fraction]:
        config = configuration(
            request_count=2000,
            input_length={
                "mode": "truncated_normal",
                "min": 100,
                "max": 900,
                "mean": 500,
                "std": 200,
            },
            request_order={"within_group": "shuffle", "across_group": "interleave"},
            target={"hit_ratio": ratio},
            planning={"profile": profile},
        )
        plan = plan_workload(config, BLOCK)
        assert plan.hit_blocks == plan.targets.total
        hits = np.cumsum(plan.depths.hits[plan.order]) * BLOCK
        tokens = np.cumsum(plan.workload.input_len[plan.order])
        return [Fraction(int(hits[k]), int(tokens[k])) for k in range(199, 2000, 200)]

    ramp, even = by_tenths("ramp"), by_tenths("proportional")
    assert ramp == sorted(ramp)
    assert ramp[0] < ramp[-1] / 2
    # From a cold cache both end at the target, but only the ramp is on its way for long.
    assert even[2] > Fraction(9, 10) * even[-1]
    assert ramp[-1] - even[-1] == 0


def test_a_falling_order_leaves_monotone_prefixes_no_room() -> None:
    config = configuration(
        request_count=60,
        request_order={"mode": "input_len_desc"},
        target={"hit_ratio": 0.6},
        planning={"profile": "monotone"},
    )
    plan = plan_workload(config, BLOCK)
    assert plan.hit_blocks == plan.targets.total
    (line,) = plan.gave_way
    assert line.startswith("profile: monotone allows 0.")
    assert line.endswith("the target was kept, prefixes are proportional")
