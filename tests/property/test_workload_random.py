"""Random configurations: every reachable target is met, every other one gets advice that works."""

from __future__ import annotations

import random
import re

import pytest

from prefixbench.config.load import parse_config, with_changes
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.setting import Frame
from prefixbench.workload.suggestions import Advice, advise
from prefixbench.workload.validate import validation_report
from random_configurations import random_configuration, random_frame

NORMAL, DEEP = range(150), range(150, 2000)


def plan_number(number: int) -> tuple[Plan, Frame]:
    draw = random.Random(number)
    frame = random_frame(draw)
    config = parse_config(random_configuration(draw))
    assert config.block_size is not None
    return plan_workload(config, config.block_size, frame), frame


def check_statement(plan: Plan, advice: Advice) -> None:
    """What is said where no change suffices must not contradict itself."""
    assert advice.statement is not None
    below = "the lowest ratio" in advice.statement or "moves the lowest" in advice.statement
    if not below:
        assert f"{float(advice.highest_ratio):.4f}" in advice.statement
    words = r"reaches ([0-9.]+); the (lowest|highest) ratio any reaches is ([0-9.]+)"
    told = re.search(words, advice.statement)
    if told is not None:
        target, end, ratio = float(told[1]), told[2], float(told[3])
        assert target <= ratio if end == "lowest" else ratio <= target
    if plan.targets.by_group is None:
        assert below is (plan.targets.total < plan.range.least)


def check(number: int) -> str:
    """Plan it and hold the plan, or the advice, to what is promised; says which it was."""
    plan, frame = plan_number(number)
    residual = plan.counted_hits(plan.prefix_blocks) - plan.targets.total
    if plan.reachable:
        if plan.coarse_steps is None:
            assert residual == 0, number
            assert not any(plan.residual_blocks_by_group), number
        return "met"
    advice = advise(plan, frame)
    report = validation_report(plan, advice)
    assert report["validation_status"] == "FAIL"
    assert report["unreachable_reasons"]
    for suggestion in advice.suggestions:
        changed = with_changes(plan.config, suggestion.change)
        block = changed.block_size
        assert block is not None
        followed = plan_workload(changed, block, frame)
        assert followed.reachable, (number, suggestion)
        missed = followed.counted_hits(followed.prefix_blocks) - followed.targets.total
        assert abs(followed.ratio(missed)) <= 0.01, (number, suggestion)
        assert validation_report(followed)["validation_status"] != "FAIL", (number, suggestion)
        if not (followed.arrangement.needs_prefixes and followed.hits_depend_on_order):
            assert followed.ratio(followed.range.most) == suggestion.would_reach
        assert suggestion.would_reach <= advice.highest_ratio
    if advice.statement is not None:
        check_statement(plan, advice)
        return "no change suffices"
    return "advised"


def test_random_configurations_are_met_or_advised() -> None:
    seen = [check(number) for number in NORMAL]
    assert seen.count("met") > 50
    assert seen.count("advised") > 10
    assert seen.count("no change suffices") > 0


@pytest.mark.deep
@pytest.mark.parametrize("start", range(DEEP.start, DEEP.stop, 50))
def test_two_thousand_random_configurations_are_met_or_advised(start: int) -> None:
    assert all(check(number) for number in range(start, start + 50))
