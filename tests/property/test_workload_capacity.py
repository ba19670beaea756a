"""Planning for caches of limited size, against an LRU of single blocks, one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cache_oracles import LruBlocks
from planning_samples import BLOCK, configuration, frames, orders, routings
from prefixbench.core.errors import ConfigError
from prefixbench.core.progress import telling
from prefixbench.simulator import compiled
from prefixbench.workload.planner import Plan, plan_setting, plan_workload
from prefixbench.workload.setting import Setting
from prefixbench.workload.validate import validation_report


def lru_hits(plan: Plan, capacity: int) -> list[int]:
    """Blocks each request finds, in sending order, in LRU caches of so many blocks."""
    caches: dict[int, LruBlocks] = {}
    lag, waited_for = plan.config.planning.concurrency, plan.waited_for
    if plan.domains.warmed:
        _warm_up(plan, capacity, caches)
    paths = [_path(plan, int(row)) for row in plan.order]
    waiting: list[int] = []
    hits = []
    for place, row in enumerate(plan.order):
        stored = [
            earlier
            for earlier in waiting
            if earlier <= place - lag or earlier < waited_for <= place
        ]
        for earlier in stored:
            cache = int(plan.routes.cache[plan.order[earlier]])
            caches.setdefault(cache, LruBlocks(capacity)).serve(paths[earlier])
            waiting.remove(earlier)
        cached = caches.setdefault(int(plan.routes.cache[row]), LruBlocks(capacity)).blocks
        depth = 0
        while depth < int(plan.prefix_blocks[row]) and paths[place][depth] in cached:
            depth += 1
        hits.append(depth)
        waiting.append(place)
    return hits


def _path(plan: Plan, row: int) -> list[tuple[Any, ...]]:
    """The full blocks of a prompt and its answer: head, group's own, request's own."""
    head, prefix = plan.geometry.head_blocks, int(plan.prefix_blocks[row])
    tokens = int(plan.workload.input_len[row]) + int(plan.workload.output_len[row]) - 1
    group = int(plan.workload.group[row])
    blocks = [("head", depth) for depth in range(head)]
    blocks += [("group", group, depth) for depth in range(head, prefix)]
    return [*blocks, *(("own", row, depth) for depth in range(prefix, tokens // BLOCK))]


def _warm_up(plan: Plan, capacity: int, caches: dict[int, LruBlocks]) -> None:
    """Each group's longest prefix in each cache, in the order of sending."""
    longest: dict[tuple[int, int], int] = {}
    for row in plan.order.tolist():
        domain = (int(plan.routes.cache[row]), int(plan.workload.group[row]))
        if domain not in longest or plan.prefix_blocks[row] > plan.prefix_blocks[longest[domain]]:
            longest[domain] = row
    place = {row: place for place, row in enumerate(plan.order.tolist())}
    for (cache, _), row in sorted(longest.items(), key=lambda item: place[item[1]]):
        shared = [block for block in _path(plan, row) if block[0] != "own"]
        caches.setdefault(cache, LruBlocks(capacity)).serve(shared)


@st.composite
def limited_plans(draw: st.DrawFn) -> Plan:
    groups = draw(st.integers(1, 5))
    warmed = draw(st.booleans())
    config = configuration(
        seed=draw(st.integers(0, 10_000)),
        request_count=draw(st.integers(groups, 40)),
        output_length=draw(st.sampled_from([1, 6])),
        target={"hit_ratio": draw(st.integers(0, 50)) / 100},
        prefix={
            "mode": "multi_prefix",
            "group_count": groups,
            "minimum_non_shared_length": draw(st.integers(0, 6)),
        },
        request_order={"mode": draw(orders)},
        routing=draw(routings),
        execution={"mode": "warmup" if warmed else "progressive_prefix_fill"},
        planning={
            "capacity_blocks": draw(st.integers(1, 120)),
            "concurrency": draw(st.sampled_from([1, 1, 3])),
        },
    )
    return plan_workload(config, BLOCK, draw(frames))


@settings(max_examples=120, deadline=None)
@given(limited_plans())
def test_an_lru_of_blocks_finds_what_the_plan_says(plan: Plan) -> None:
    capacity = plan.capacity_blocks
    assert capacity is not None
    expected = lru_hits(plan, capacity)
    assert plan.depths.hits[plan.order].tolist() == expected
    assert plan.hit_blocks == sum(expected) == plan.group_hit_blocks.sum()


@settings(max_examples=120, deadline=None)
@given(limited_plans())
def test_a_target_is_met_to_the_block_at_the_planned_capacity(plan: Plan) -> None:
    if plan.reachable:
        # Where a longer prefix is also warmed up, it may evict what another request would find.
        assert (plan.coarse_steps is not None) >= plan.domains.warmed
        if plan.coarse_steps is None:
            assert plan.residual_blocks == 0
        elif plan.config.request_order.mode != "prefix_len_asc":
            assert abs(plan.residual_blocks) <= 2
    else:
        assert plan.hit_blocks in (plan.range.most, plan.range.least)


@settings(max_examples=60, deadline=None)
@given(limited_plans())
def test_compiled_caches_give_the_same_plan(plan: Plan) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("prefixbench.workload.capacity.is_worth_compiling", lambda _requests: True)
        patch.setattr(compiled, "_compiled", lambda loop: loop)
        other = plan_setting(
            Setting(
                config=plan.config,
                workload=plan.workload,
                geometry=plan.geometry,
                targets=plan.targets,
            )
        )
        assert (other.prefix_blocks == plan.prefix_blocks).all()
        assert (other.order == plan.order).all()
        assert (other.depths.before == plan.depths.before).all()


def test_slow_walks_are_announced_and_tell_how_far_they_are(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 100)
    monkeypatch.setattr(compiled, "find_spec", lambda _name: None)
    heard = []
    with telling(lambda *word: heard.append(word)):
        plan_workload(configuration(planning={"capacity_blocks": 16}, target={"hit_ratio": 0.1}), 4)
    assert set(heard) == {("simulating_caches", 0, 20), ("simulating_caches", 20, 20)}
    (line,) = caplog.messages
    assert "prefixbench[fast]" in line
    monkeypatch.setattr(compiled, "find_spec", lambda name: name)
    monkeypatch.setattr(compiled, "_compiled", lambda loop: loop)
    caplog.clear()
    plan_workload(configuration(planning={"capacity_blocks": 16}, target={"hit_ratio": 0.1}), 4)
    assert not caplog.messages


@settings(max_examples=120, deadline=None)
@given(limited_plans())
def test_a_cache_that_holds_everything_loses_nothing(plan: Plan) -> None:
    lru = plan.lru
    assert lru is not None
    enough = int(plan.stored.blocks.sum()) + plan.geometry.head_blocks + 1
    found = replace(lru, capacity_blocks=enough).hits_each(plan.prefix_blocks[plan.order])
    assert found.sum() == plan.lag_model.hits(plan.config.planning.concurrency)


@settings(max_examples=120, deadline=None)
@given(limited_plans(), st.data())
def test_more_shared_prefix_never_hits_less(plan: Plan, data: st.DataObject) -> None:
    lru = plan.lru
    assert lru is not None
    assume(not lru.warmed)
    prefixes = plan.prefix_blocks[plan.order]
    most = plan.most_prefixes[plan.order]
    place = data.draw(st.integers(0, len(prefixes) - 1))
    if prefixes[place] < most[place]:
        longer = prefixes.copy()
        longer[place] += 1
        assert lru.hits_each(longer).sum() >= lru.hits_each(prefixes).sum()


@settings(max_examples=120, deadline=None)
@given(limited_plans())
def test_the_curve_is_what_an_lru_finds_at_each_capacity(plan: Plan) -> None:
    assume(plan.config.planning.concurrency == 1)
    found = plan.hits_by_capacity
    capacities = found.capacities(12)
    assert len(capacities) <= 12
    for capacity in capacities:
        assert found.hits(capacity) == sum(lru_hits(plan, capacity))
    assert found.hits(found.lossless) == plan.sequential_hit_blocks
    if found.lossless:
        assert found.hits(found.lossless - 1) < plan.sequential_hit_blocks


def test_the_report_holds_the_target_at_the_capacity_and_says_what_more_would_give() -> None:
    common: dict[str, Any] = {
        "request_count": 300,
        "input_length": {"mode": "truncated_normal", "min": 8, "max": 90, "mean": 50, "std": 20},
        "prefix": {"mode": "multi_prefix", "group_count": 10},
        "target": {"hit_ratio": 0.4},
    }
    limited = configuration(**common, planning={"capacity_blocks": 200})
    report = validation_report(plan_workload(limited, BLOCK))
    assert report["validation_status"] == "PASS"
    assert report["designed_hit_ratio"] == report["designed_hit_ratio_at_capacity"]
    assert abs(report["deviation_pp"]) < 0.05
    assert report["designed_hit_ratio_unlimited"] > 0.42
    assert report["lossless_capacity_blocks"] > 200
    ratios = [point["hit_ratio"] for point in report["capacity_curve"]]
    assert ratios == sorted(ratios)
    assert 20 < len(ratios) <= 200
    assert ratios[-1] == report["designed_hit_ratio_unlimited"]
    unlimited = validation_report(plan_workload(configuration(**common), BLOCK))
    assert unlimited["designed_hit_ratio_at_capacity"] is None
    assert unlimited["lossless_capacity_blocks"] > 200


def test_group_targets_and_a_limited_cache_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="cannot be used together with a target for each group"):
        configuration(
            prefix={"mode": "multi_prefix", "group_count": 1},
            target={"scope": "per_group", "groups": [{"id": "group_0", "hit_ratio": 0.5}]},
            planning={"capacity_blocks": 10},
        )
