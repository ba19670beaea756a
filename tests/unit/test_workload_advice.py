"""What is said about an unreachable target: reasons with prices, and the smallest changes."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest

from oracles import served_hits
from planning_samples import configuration, toys
from prefixbench.config.load import parse_config, with_changes
from prefixbench.config.overrides import as_options
from prefixbench.workload.certificate import certificate
from prefixbench.workload.losses import losses, unreachable_reasons
from prefixbench.workload.planner import plan_workload
from prefixbench.workload.setting import Frame
from prefixbench.workload.suggestions import Advice, advise
from prefixbench.workload.validate import validation_report

SMALL: dict[str, Any] = {
    "request_count": 60,
    "block_size": 128,
    "input_length": {"mode": "truncated_normal", "min": 600, "max": 4000, "mean": 1500, "std": 700},
    "target": {"hit_ratio": 0.6},
    "prefix": {"mode": "multi_prefix", "group_count": 30},
}


def advice_on(**changes: Any) -> Advice:
    config = parse_config(SMALL | changes)
    assert config.block_size is not None
    return advise(plan_workload(config, config.block_size), Frame())


def value_of(advice: Advice, key: str) -> str:
    """The value that a suggestion gives to one key."""
    for suggestion in advice.suggestions:
        for setting in suggestion.change:
            if setting.startswith(f"{key}="):
                return setting.removeprefix(f"{key}=")
    raise AssertionError(f"no suggestion sets {key}")


def reachable(change: str, **changes: Any) -> bool:
    config = with_changes(parse_config(SMALL | changes), [change])
    assert config.block_size is not None
    return plan_workload(config, config.block_size).reachable


@pytest.mark.parametrize(
    ("key", "smaller_change"), [("request_count", -1), ("prefix.group_count", 1)]
)
def test_the_smallest_change_of_a_kind_is_suggested(key: str, smaller_change: int) -> None:
    value = int(value_of(advice_on(), key))
    assert reachable(f"{key}={value}")
    assert not reachable(f"{key}={value + smaller_change}")


def test_one_group_is_not_called_groups() -> None:
    advice = advice_on(prefix={"mode": "multi_prefix", "group_count": 2}, request_count=4)
    words = " ".join(suggestion.sentence for suggestion in advice.suggestions)
    assert "1 prefix group instead of 2" in words


def test_unshared_tokens_are_given_up_only_as_far_as_needed() -> None:
    changes = {
        "prefix": {"mode": "single_prefix", "minimum_non_shared_length": 700},
        "target": {"hit_ratio": 0.7},
    }
    kept = int(value_of(advice_on(**changes), "prefix.minimum_non_shared_length"))
    assert reachable(f"prefix.minimum_non_shared_length={kept}", **changes)
    assert not reachable(f"prefix.minimum_non_shared_length={kept + 1}", **changes)


def test_the_largest_block_that_suffices_is_suggested_with_its_gain() -> None:
    advice = advice_on(
        prefix={"mode": "single_prefix", "minimum_non_shared_length": 1}, target={"hit_ratio": 0.94}
    )
    (blocks,) = [s for s in advice.suggestions if s.change == ("block_size=64",)]
    plan = plan_workload(
        parse_config(SMALL | {"prefix": {"mode": "single_prefix", "minimum_non_shared_length": 1}}),
        128,
    )
    gain = 100 * (blocks.would_reach - plan.ratio(plan.range.most))
    assert gain > 1
    assert blocks.sentence == (
        f"blocks of 64 tokens instead of 128, if the server allows it: adds {float(gain):.1f} pp"
    )


def test_one_very_long_request_is_named_and_can_be_cut() -> None:
    values = [1000, 1100, 9000, 1200, 1000, 900]
    changes = {
        "request_count": 6,
        "block_size": 16,
        "input_length": {"mode": "explicit", "values": values},
        "prefix": {"mode": "single_prefix"},
    }
    plan = plan_workload(parse_config(SMALL | changes), 16)
    worst = losses(plan)[0]
    assert worst.reason == "largest_request"
    assert worst.message.startswith("r000002, the longest of group_0")
    assert worst.tokens == 9000 // 16 * 16 - 1200 // 16 * 16
    cut = value_of(advice_on(**changes), "input_length.values")
    longest = max(map(int, cut.strip("[]").split(",")))
    assert 1200 < longest < 9000
    longer = [min(value, longest + 64) for value in values]
    assert not reachable(f"input_length.values={longer}", **changes)


def test_a_cut_of_a_distribution_moves_its_upper_edge() -> None:
    changes = {
        "prefix": {"mode": "multi_prefix", "group_count": 12},
        "target": {"hit_ratio": 0.625},
    }
    assert int(value_of(advice_on(**changes), "input_length.max")) < 4000
    bins = [{"range": [600, 1500], "weight": 8}, {"range": [1500, 9000], "weight": 1}]
    changes |= {
        "input_length": {"mode": "histogram", "bins": bins},
        "target": {"hit_ratio": 0.5},
    }
    assert '"weight": 8' in value_of(advice_on(**changes), "input_length.bins")


def test_requests_in_flight_and_small_caches_have_remedies_of_their_own() -> None:
    in_flight = advice_on(
        prefix={"mode": "single_prefix"},
        planning={"concurrency": 40},
        request_order={"mode": "input_len_asc"},
        block_size=16,
    )
    assert value_of(in_flight, "request_order.leaders") == "barrier"
    fewer = int(value_of(in_flight, "planning.concurrency"))
    assert 1 <= fewer < 40
    small = advice_on(
        prefix={"mode": "multi_prefix", "group_count": 4},
        planning={"capacity_blocks": 300},
        block_size=16,
    )
    blocks = int(value_of(small, "planning.capacity_blocks"))
    changes = {"prefix": {"mode": "multi_prefix", "group_count": 4}, "block_size": 16}
    assert reachable(f"planning.capacity_blocks={blocks}", **changes)
    assert not reachable(f"planning.capacity_blocks={blocks - 1}", **changes)


def test_where_no_single_change_suffices_two_are_tried_together() -> None:
    listed = {
        "input_length": {"mode": "fixed", "value": 1000},
        "prefix": {
            "groups": [{"id": f"g{i}", "request_count": 2} for i in range(30)],
            "minimum_non_shared_length": 400,
        },
        "execution": {"mode": "progressive_prefix_fill"},
        "target": {"hit_ratio": 0.85},
    }
    advice = advice_on(**listed)
    assert len(advice.suggestions) == 2
    assert advice.suggestions[0].sentence.startswith("together: ")
    assert advice.statement is None


def test_where_nothing_suffices_the_highest_ratio_is_stated() -> None:
    advice = advice_on(target={"hit_ratio": 1.0})
    assert advice.statement is not None
    assert advice.statement.startswith("no listed change reaches 1.0000; the highest ratio")
    assert f"{float(advice.highest_ratio):.4f}" in advice.statement
    ratios = [change.would_reach for change in advice.partial]
    assert len(ratios) >= 4
    assert ratios == sorted(ratios, reverse=True)
    assert max(ratios) <= advice.highest_ratio
    (lowered,) = advice.suggestions
    assert lowered.change[0].startswith("target.hit_ratio=")


def test_points_lost_to_a_common_length_are_not_blamed_on_rounding() -> None:
    changes = {
        "request_count": 4,
        "block_size": 16,
        "input_length": {"mode": "explicit", "values": [160, 1600, 1600, 1600]},
        "prefix": {"mode": "single_prefix", "nested_prefix": False},
    }
    plan = plan_workload(parse_config(SMALL | changes), 16)
    by_reason = {loss.reason: loss.tokens for loss in losses(plan)}
    assert by_reason["common_length"] == 3 * (1600 - 160)
    assert "block_rounding" not in by_reason
    worst = unreachable_reasons(plan)[0]
    assert worst.message.startswith("with nested_prefix: false")


@pytest.mark.parametrize("name", ["true", "a, b", "{x}", "12", "it's", 'say "hi"', "ü😀: #"])
def test_groups_of_any_name_get_targets_they_can_have(name: str) -> None:
    changes = {
        "block_size": 16,
        "prefix": {"groups": [{"id": name}, {"id": "other"}]},
        "target": {
            "scope": "per_group",
            "groups": [{"id": name, "hit_ratio": 1.0}, {"id": "other", "hit_ratio": 0.5}],
        },
    }
    config = parse_config(SMALL | changes)
    advice = advise(plan_workload(config, 16), Frame())
    lowered = advice.suggestions[-1]
    assert lowered.sentence.startswith("for each group the nearest target")
    assert plan_workload(with_changes(config, lowered.change), 16).reachable
    (option, text) = shlex.split(as_options(lowered.change))
    assert (option, text) == ("--set", lowered.change[0])


def test_one_of_a_thing_is_not_called_many() -> None:
    config = configuration(
        request_count=4,
        input_length={"mode": "explicit", "values": [9, 9, 30, 30]},
        prefix={"mode": "single_prefix", "minimum_non_shared_length": 1},
        target={"hit_ratio": 0.9},
        planning={"capacity_blocks": 1},
    )
    plan = plan_workload(config, 4, Frame(head_len=1, tail_len=1, shortest=3))
    said = [loss.message for loss in losses(plan)]
    assert "a cache of 1 block evicts prefixes before they are asked for again" in said
    assert "every prompt ends with 1 template token" in said
    assert "every request keeps 1 token unshared" in said
    assert not [line for line in said if re.search(r"\b1 \w+s\b", line)]


def test_a_target_below_what_sessions_repeat_names_their_histories() -> None:
    config = configuration(
        request_count=8,
        input_length=20,
        output_length=12,
        sessions={"turns": 2, "new_tokens": 8, "answers": "served"},
        target={"hit_ratio": 0.05},
    )
    plan = plan_workload(config, 4, Frame(head_len=4, shortest=6))
    history, head = unreachable_reasons(plan)
    assert (history.reason, head.reason) == ("session_history", "shared_head")
    assert history.tokens == plan.history_hits * 4
    assert history.tokens + head.tokens == plan.range.least * 4


def test_a_target_below_the_head_names_the_head() -> None:
    config = parse_config(SMALL | {"target": {"hit_ratio": 0.01}, "block_size": 16})
    frame = Frame(head_len=70, shortest=80)
    plan = plan_workload(config, 16, frame)
    (reason,) = unreachable_reasons(plan)
    assert reason.reason == "shared_head"
    assert reason.tokens == 4 * 16 * 59
    advice = advise(plan, frame)
    longer = int(value_of(advice, "input_length"))
    assert re.search(r": takes \d\.\d pp off the least$", advice.suggestions[0].sentence)
    assert "pp" not in advice.suggestions[-1].sentence
    change = with_changes(config, [f"input_length={longer}"])
    assert plan_workload(change, 16, frame).reachable


def test_losses_and_the_maximum_account_for_every_token() -> None:
    common = {"block_size": 16, "request_count": 80, "target": {"hit_ratio": 0.99}}
    variants: list[dict[str, Any]] = [
        {},
        {"routing": {"cache_scope": "dp_local", "dp_size": 3, "policy": "round_robin"}},
        {"planning": {"concurrency": 7}},
        {"planning": {"capacity_blocks": 150, "concurrency": 3}},
        {"execution": {"mode": "warmup"}},
        {"execution": {"mode": "warmup"}, "planning": {"capacity_blocks": 150}},
    ]
    for changes in variants:
        for frame in (Frame(), Frame(head_len=37, tail_len=5, shortest=50)):
            plan = plan_workload(parse_config(SMALL | common | changes), 16, frame)
            lost = sum(loss.tokens for loss in losses(plan))
            assert lost + plan.range.most * 16 == plan.workload.input_tokens


@pytest.mark.parametrize("policy", ["bound", "sticky", "round_robin", "hash"])
def test_the_certificate_says_what_each_routing_computes_cold(policy: str) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": 3}
    order = {"mode": "shuffle"}
    plan = plan_workload(configuration(routing=routing, request_order=order), 4)
    costs = {row["policy"]: row for row in certificate(plan)["routing_costs"]}
    assert [row["policy"] for row in costs.values() if row["planned"]] == ["bound"]
    routed = configuration(routing=routing | {"policy": policy}, request_order=order)
    other = plan_workload(routed, 4)
    requests = [
        type(toy)(cache, toy.group, toy.input_len, toy.prefix_len)
        for toy, cache in zip(toys(plan), other.routes.cache[other.order].tolist(), strict=True)
    ]
    hits = sum(served_hits(requests, block=4)) // 4
    assert int(plan.prefix_blocks.sum()) - hits == costs[policy]["lost_blocks"]


def test_one_rank_has_no_routing_to_compare() -> None:
    assert certificate(plan_workload(configuration(), 4))["routing_costs"] == []


def test_the_report_carries_the_whole_advice() -> None:
    plan = plan_workload(parse_config(SMALL), 128)
    advice = advise(plan, Frame())
    report = validation_report(plan, advice)
    assert report["suggestions"][0]["change"] == list(advice.suggestions[0].change)
    assert report["no_change_suffices"] is None
    assert report["highest_suggested_hit_ratio"] == float(advice.highest_ratio)
    assert report["unreachable_reasons"][0]["cost_pp"] > 10


@pytest.mark.parametrize(
    "changes",
    [
        {"request_count": 1, "input_length": 846, "block_size": 96},
        {"request_count": 3, "input_length": 90, "block_size": 32},
        {"request_count": 3, "input_length": {"mode": "explicit", "values": [905, 334, 126]}},
    ],
)
def test_no_change_is_suggested_that_whole_blocks_make_fail(changes: dict[str, Any]) -> None:
    """A few requests can hold half of nine blocks no better than four of them."""
    changes = {"prefix": {"mode": "single_prefix"}, "target": {"hit_ratio": 0.5}, **changes}
    advice = advice_on(**changes)
    assert advice.suggestions
    for suggestion in advice.suggestions:
        changed = with_changes(parse_config(SMALL | changes), suggestion.change)
        assert changed.block_size is not None
        report = validation_report(plan_workload(changed, changed.block_size))
        assert report["validation_status"] != "FAIL", suggestion


def test_a_group_of_a_few_requests_is_offered_a_target_that_its_blocks_can_have() -> None:
    """One group is out of reach; the other's five blocks are never 45 % of its tokens."""
    groups = [{"id": "large", "request_count": 20}, {"id": "small", "request_count": 2}]
    asked = [{"id": "large", "hit_ratio": 0.99}, {"id": "small", "hit_ratio": 0.45}]
    changes: dict[str, Any] = {
        "request_count": 22,
        "input_length": 310,
        "prefix": {"mode": "multi_prefix", "groups": groups},
        "target": {"scope": "per_group", "groups": asked},
        "execution": {"mode": "warmup"},
    }
    targets = [
        change
        for suggestion in advice_on(**changes).suggestions
        for change in suggestion.change
        if change.startswith("target.groups=")
    ]
    changed = with_changes(parse_config(SMALL | changes), targets)
    assert changed.block_size is not None
    report = validation_report(plan_workload(changed, changed.block_size))
    assert report["validation_status"] == "PASS"
