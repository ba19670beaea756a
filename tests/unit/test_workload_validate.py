"""Verdicts, reasons and suggestions."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

import prefixbench.workload.interface as interface
from prefixbench.config.load import parse_config, with_changes
from prefixbench.config.prefix import PrefixGroupConfig
from prefixbench.config.target import TargetHitRateConfig
from prefixbench.core.errors import ConfigError
from prefixbench.core.records import PrefixGroupPlan, RequestPlan, ValidationStatus
from prefixbench.workload.certificate import certificate
from prefixbench.workload.groups import allocate_prefix_groups
from prefixbench.workload.planner import plan_workload
from prefixbench.workload.setting import Frame
from prefixbench.workload.suggestions import advise
from prefixbench.workload.validate import validation_report
from prefixbench.workload.verdict import status_of

ONE_REQUEST_A_GROUP: dict[str, Any] = {
    "request_count": 10,
    "block_size": 16,
    "input_length": 400,
    "target": {"hit_ratio": 0.6},
    "prefix": {"mode": "multi_prefix", "group_count": 10},
}


@pytest.mark.parametrize(
    ("deviation", "status"),
    [
        ("0.01", "PASS"),
        ("-0.01", "PASS"),
        ("0.010001", "PASS_WITH_WARNING"),
        ("-0.02", "PASS_WITH_WARNING"),
        ("0.020001", "FAIL"),
    ],
)
def test_both_tolerances_are_inclusive(deviation: str, status: str) -> None:
    verdict = status_of(Fraction(deviation), Fraction("0.01"), Fraction("0.02"))
    assert verdict is ValidationStatus(status)


def test_every_suggestion_reaches_the_target_when_followed() -> None:
    config = parse_config(ONE_REQUEST_A_GROUP)
    plan = plan_workload(config, 16)
    assert not plan.reachable
    report = validation_report(plan, advise(plan, Frame()))
    assert report["validation_status"] == "FAIL"
    assert report["unreachable_reasons"][0]["reason"] == "cold_start"
    assert len(report["suggestions"]) >= 3
    for suggestion in report["suggestions"]:
        changed = with_changes(config, suggestion["change"])
        followed = plan_workload(changed, 16)
        assert followed.reachable, suggestion
        assert followed.hit_blocks == followed.targets.total
        assert float(followed.ratio(followed.range.most)) == suggestion["would_reach"]


def test_a_shared_head_alone_can_exceed_a_low_target() -> None:
    config = parse_config({**ONE_REQUEST_A_GROUP, "target": {"hit_ratio": 0.0}})
    plan = plan_workload(config, 16, Frame(head_len=40, shortest=41))
    assert plan.range.least == 2 * 9
    assert not plan.reachable
    assert plan.hit_blocks == plan.range.least


def test_a_certificate_adds_up() -> None:
    config = parse_config({**ONE_REQUEST_A_GROUP, "request_count": 80})
    proof = certificate(plan_workload(config, 16, Frame(head_len=20, shortest=30)))
    total = proof["sum_prefix_blocks"] - proof["cold_loss_blocks"] - proof["head_loss_blocks"]
    assert total == proof["hit_blocks"] == proof["wanted_blocks"]
    assert proof["residual_blocks"] == 0


def test_a_static_plan_run_cold_is_judged_by_what_it_hits() -> None:
    config = parse_config(
        {
            "request_count": 4,
            "input_length": 1600,
            "target_prefix_ratio": 0.5,
            "execution": {"mode": "cold"},
        }
    )
    plan = plan_workload(config, 16)
    assert plan.counted_hits(plan.prefix_blocks) == plan.targets.total == 200
    assert plan.hit_blocks == 150
    assert validation_report(plan)["validation_status"] == "FAIL"


def test_the_record_interfaces_plan_what_they_are_given() -> None:
    requests = [
        RequestPlan(request_id=f"q{i}", prefix_group_id="", input_len=length, order_index=i)
        for i, length in enumerate((16, 20, 24, 28))
    ]
    groups = allocate_prefix_groups(requests, PrefixGroupConfig.model_validate({}))
    target = TargetHitRateConfig(hit_ratio=0.5)
    reach = interface.validate_target_reachability(groups, target, 4, 4)
    assert reach.reachable
    assert reach.max_reachable_hit_ratio == 48 / 88
    planned = interface.plan_prefix_lengths(groups, target, 4, 4)
    assert planned.designed_hit_tokens == planned.target_hit_tokens == 44
    rows = [row for group in planned.groups.values() for row in group.requests]
    assert [row.request_id for row in rows] == ["q0", "q1", "q2", "q3"]
    for row in rows:
        assert row.planned_prefix_len + row.divergence_len + row.suffix_len == row.input_len
    far = interface.validate_target_reachability(groups, TargetHitRateConfig(hit_ratio=0.9), 4, 4)
    assert not far.reachable
    assert far.unreachable_reasons


def test_planned_records_come_back_in_the_order_they_were_given() -> None:
    def group(name: str, *places: int) -> PrefixGroupPlan:
        requests = tuple(
            RequestPlan(request_id=f"{name}{i}", prefix_group_id=name, input_len=20, order_index=i)
            for i in places
        )
        return PrefixGroupPlan(
            group_id=name, request_count=len(requests), requests=requests, request_weight=7.0
        )

    given = {"late": group("late", 5, 2), "empty": group("empty"), "early": group("early", 4, 0, 3)}
    planned = interface.plan_prefix_lengths(given, TargetHitRateConfig(hit_ratio=0.3), 4, 4)
    assert list(planned.groups) == ["late", "empty", "early"]
    for name, before in given.items():
        after = planned.groups[name]
        assert [row.request_id for row in after.requests] == [
            row.request_id for row in before.requests
        ]
        assert (after.request_weight, after.request_count) == (7.0, len(before.requests))
    hits = sum(after.designed_hit_tokens for after in planned.groups.values())
    assert hits == planned.designed_hit_tokens == planned.target_hit_tokens > 0
    longest = max(row.planned_prefix_len for row in planned.groups["early"].requests)
    assert longest == planned.groups["early"].master_prefix_len


def test_popularity_wins_over_a_reuse_distance_and_the_report_says_so() -> None:
    config = parse_config(
        {
            "request_count": 2000,
            "block_size": 16,
            "input_length": 400,
            "target": {"hit_ratio": 0.5},
            "prefix": {"group_count": 100, "popularity": {"exponent": 1.0}},
            "request_order": {"reuse_distance": 50},
        }
    )
    plan = plan_workload(config, 16)
    report = validation_report(plan)
    assert plan.hit_blocks == plan.targets.total
    (line,) = report["wishes_left_out"]
    assert line.startswith("9 groups have too many of the 2,000 requests to stand 50 apart")
    distances = report["reuse_distance"]
    assert distances["wanted"] == distances["p90"] == 50
    assert 0.3 < distances["as_wanted"] < 0.7
    assert distances["p10"] < 50
    even = parse_config({**config.model_dump(exclude_unset=True), "prefix": {"group_count": 100}})
    report = validation_report(plan_workload(even, 16))
    assert report["wishes_left_out"] == []
    assert report["reuse_distance"]["as_wanted"] > 0.95


@pytest.mark.parametrize(
    ("given", "path"),
    [
        ({"request_order": {"mode": "shuffle", "reuse_distance": 5}}, "reuse_distance"),
        ({"request_order": {"across_group": "grouped", "reuse_distance": 5}}, "reuse_distance"),
        (
            {"prefix": {"groups": [{"id": "a"}], "popularity": {"exponent": 1}}},
            "popularity",
        ),
    ],
)
def test_wishes_that_say_the_same_twice_are_refused(given: dict[str, Any], path: str) -> None:
    with pytest.raises(ConfigError, match=path):
        parse_config({**ONE_REQUEST_A_GROUP, **given})


ASCENDING = {"mode": "input_len_asc"}
BY_PREFIX = {"mode": "prefix_len_asc"}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, None),
        ({"planning": {"concurrency": 8}}, None),
        ({"planning": {"capacity_blocks": 40}}, None),
        ({"planning": {"profile": "monotone"}, "request_order": ASCENDING}, None),
        ({"request_order": BY_PREFIX}, None),
        ({"execution": {"mode": "warmup"}}, None),
        ({"planning": {"block_residual_calibration": False}}, "plain formula"),
        ({"prefix": {"nested_prefix": False}}, "moves all requests of a group"),
        (
            {"planning": {"profile": "monotone", "concurrency": 8}, "request_order": ASCENDING},
            "shorter than an earlier one",
        ),
        (
            {"planning": {"capacity_blocks": 40}, "request_order": BY_PREFIX},
            "shorter than an earlier one",
        ),
        ({"planning": {"concurrency": 8}, "request_order": BY_PREFIX}, "shorter than an earlier"),
        ({"planning": {"capacity_blocks": 40}, "execution": {"mode": "warmup"}}, "warm-up stores"),
    ],
)
def test_a_plan_says_what_keeps_it_from_being_exact(
    given: dict[str, Any], words: str | None
) -> None:
    lengths = {"mode": "explicit", "values": [100 + 7 * place for place in range(20)]}
    config = parse_config(
        {
            "request_count": 20,
            "block_size": 16,
            "input_length": lengths,
            "target": {"hit_ratio": 0.2},
            **given,
        }
    )
    report = validation_report(plan_workload(config, 16))
    if words is None:
        assert report["coarse_steps"] is None
        assert report["residual_blocks"] == 0
    else:
        assert words in report["coarse_steps"]


def test_group_targets_have_residuals_of_their_own() -> None:
    groups = [{"id": name, "hit_ratio": ratio} for name, ratio in (("a", 0.31), ("b", 0.47))]
    config = parse_config(
        {
            "request_count": 30,
            "block_size": 16,
            "input_length": 400,
            "prefix": {"groups": [{"id": "a"}, {"id": "b"}]},
            "target": {"scope": "per_group", "groups": groups},
        }
    )
    report = validation_report(plan_workload(config, 16))
    assert [row["residual_blocks"] for row in report["per_group"]] == [0, 0]
    plain = with_changes(config, ["planning.block_residual_calibration=false"])
    report = validation_report(plan_workload(plain, 16))
    missed = [row["residual_blocks"] for row in report["per_group"]]
    assert sum(missed) == report["residual_blocks"]
    assert any(missed)


def test_more_in_flight_than_there_are_requests_cost_a_warmed_run_nothing() -> None:
    warmed = ONE_REQUEST_A_GROUP | {"execution": {"mode": "warmup", "concurrency": 64}}
    report = validation_report(plan_workload(parse_config(warmed), 16))
    assert report["robust_to_concurrency"] == 10
    assert report["concurrency_loss"] is None


def test_a_cache_without_room_for_a_request_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """400 tokens and an answer of 16, the last of which is not stored, fill 26 blocks of 16."""
    for capacity, warned in ((26, False), (25, True)):
        caplog.clear()
        planning = {"planning": {"capacity_blocks": capacity}, "target": {"hit_ratio": 0}}
        plan_workload(parse_config(ONE_REQUEST_A_GROUP | planning), 16)
        assert ("plan.requests_do_not_fit" in caplog.text) is warned
