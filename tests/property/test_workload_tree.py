"""Trees of prefixes and multi-turn sessions, against caches of token tuples."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from oracles import BlockCache, Token
from planning_samples import BLOCK, configuration, frames, orders
from prefixbench.core.errors import ConfigError
from prefixbench.workload.certificate import certificate
from prefixbench.workload.losses import losses
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.validate import validation_report


def first_turn(plan: Plan, row: int) -> list[Token]:
    """Head, the nodes' own tokens level by level, unique tokens, tail."""
    geometry, levels = plan.geometry, plan.config.prefix.tree
    path = plan.workload.group_ids[int(plan.workload.group[row])].split("/")
    shared: list[Token] = [("head", i) for i in range(geometry.head_len)]
    for depth, level in enumerate(levels):
        node = "/".join(path[: depth + 1])
        length = int(plan.workload.input_len[row]) if level.length is None else level.length
        shared += [(node, i) for i in range(length)]
    if not levels:
        shared += [(path[0], i) for i in range(int(plan.workload.input_len[row]))]
    shared = shared[: int(plan.prefix_len[row])]
    end = int(plan.workload.input_len[row]) - geometry.tail_len
    unique = [("own", row, i) for i in range(len(shared), end)]
    return [*shared, *unique, *(("tail", i) for i in range(geometry.tail_len))]


def prompts(plan: Plan) -> list[list[Token]]:
    """Every request's tokens; a later turn is the one before, its answer, and new text."""
    sessions = plan.workload.session_count or plan.workload.request_count
    made: list[list[Token]] = []
    for row in range(plan.workload.request_count):
        if row < sessions:
            made.append(first_turn(plan, row))
            continue
        before = row - sessions
        text = made[before] + answer(plan, before)
        new = int(plan.workload.input_len[row]) - len(text)
        made.append(text + [("new", row, i) for i in range(new)])
    return made


def answer(plan: Plan, row: int) -> list[Token]:
    return [("answer", row, i) for i in range(int(plan.workload.output_len[row]))]


def served(plan: Plan) -> list[int]:
    """Blocks found by each request in sending order, one cache each, requests in flight unseen."""
    texts = prompts(plan)
    sessions = plan.workload.session_count or plan.workload.request_count
    lag, waited_for = plan.config.planning.concurrency, plan.waited_for
    kept = plan.config.sessions is not None and plan.config.sessions.answers == "served"
    sent = plan.order.tolist()
    hits = []
    for place, row in enumerate(sent):
        cache = BlockCache(BLOCK)
        for earlier, other in enumerate(sent[:place]):
            finished = earlier <= place - lag or earlier < waited_for <= place
            own_history = other % sessions == row % sessions
            same_cache = plan.routes.cache[other] == plan.routes.cache[row]
            if same_cache and (finished or own_history):
                cache.serve(texts[other] + (answer(plan, other)[:-1] if kept else []))
        hits.append(cache.serve(texts[row]) // BLOCK)
    return hits


@st.composite
def trees(draw: st.DrawFn) -> list[dict[str, Any]]:
    depth = draw(st.integers(1, 3))
    levels = [
        {
            "name": f"level{k}",
            "count": draw(st.integers(1, 3)),
            "length": draw(st.integers(1, 14)),
            "popularity": draw(st.sampled_from([None, {"exponent": 1.0}])),
        }
        for k in range(depth)
    ]
    if draw(st.booleans()):
        del levels[-1]["length"]
    return levels


@st.composite
def tree_plans(draw: st.DrawFn) -> Plan:
    levels = draw(trees())
    leaves = 1
    for level in levels:
        leaves *= level["count"]
    config = configuration(
        seed=draw(st.integers(0, 999)),
        request_count=draw(st.integers(leaves, leaves + 25)),
        target={"hit_ratio": draw(st.integers(0, 70)) / 100},
        prefix={"tree": levels, "minimum_non_shared_length": draw(st.integers(0, 5))},
        request_order={"mode": draw(orders), "leaders": draw(st.sampled_from(["none", "barrier"]))},
        routing=draw(
            st.sampled_from(
                [{}, {"cache_scope": "dp_local", "dp_size": 2, "policy": "round_robin"}]
            )
        ),
        planning={
            "concurrency": draw(st.sampled_from([1, 1, 2, 5])),
            "profile": draw(st.sampled_from(["proportional", "ramp"])),
        },
    )
    return plan_workload(config, BLOCK, draw(frames))


@settings(max_examples=100, deadline=None)
@given(tree_plans())
def test_a_cache_of_token_tuples_finds_what_the_tree_says(plan: Plan) -> None:
    found = served(plan)
    assert plan.depths.hits[plan.order].tolist() == found
    assert plan.hit_blocks == sum(found) == plan.group_hit_blocks.sum()


@settings(max_examples=100, deadline=None)
@given(tree_plans())
def test_every_whole_number_of_hits_in_the_range_of_a_tree_is_met(plan: Plan) -> None:
    # An order that follows the prefixes may make every step larger than one block.
    assume(plan.config.request_order.mode != "prefix_len_asc" or plan.keeps_all)
    if plan.reachable:
        assert plan.hit_blocks == plan.targets.total
    else:
        assert plan.hit_blocks in (plan.range.least, plan.range.most)
    assert (plan.prefix_blocks <= plan.most_prefixes).all()


@settings(max_examples=100, deadline=None)
@given(tree_plans())
def test_hits_are_depths_minus_the_union_of_the_paths(plan: Plan) -> None:
    assume(plan.config.planning.concurrency == 1)
    texts = prompts(plan)
    union = {
        (int(plan.routes.cache[row]), tuple(texts[row][: (depth + 1) * BLOCK]))
        for row in range(plan.workload.request_count)
        for depth in range(int(plan.prefix_blocks[row]))
    }
    assert plan.hit_blocks == int(plan.prefix_blocks.sum()) - len(union)
    proof = certificate(plan)
    total = proof["sum_prefix_blocks"] - proof["cold_loss_blocks"] - proof["head_loss_blocks"]
    assert total == proof["sequential_hit_blocks"] == plan.hit_blocks


@settings(max_examples=100, deadline=None)
@given(tree_plans())
def test_losses_in_a_tree_account_for_every_token(plan: Plan) -> None:
    lost = sum(loss.tokens for loss in losses(plan))
    assert lost + plan.range.most * BLOCK == plan.workload.input_tokens


@st.composite
def session_plans(draw: st.DrawFn) -> Plan:
    prefix = draw(
        st.sampled_from(
            [
                {"group_count": 2},
                {"tree": [{"name": "system", "length": 9}, {"name": "tenant", "count": 2}]},
            ]
        )
    )
    turns = draw(st.integers(1, 4))
    config = configuration(
        seed=draw(st.integers(0, 999)),
        request_count=draw(st.integers(2 * turns, 2 * turns + 14)),
        output_length=draw(st.sampled_from([1, 7, 12])),
        target={"hit_ratio": draw(st.integers(0, 90)) / 100},
        prefix=prefix | {"minimum_non_shared_length": draw(st.integers(0, 5))},
        request_order={"mode": draw(orders)},
        sessions={
            "turns": turns,
            "new_tokens": draw(st.sampled_from([3, 10])),
            "answers": draw(st.sampled_from(["planned", "served"])),
        },
        planning={"concurrency": draw(st.sampled_from([1, 1, 4]))},
    )
    return plan_workload(config, BLOCK, draw(frames))


@settings(max_examples=100, deadline=None)
@given(session_plans())
def test_later_turns_find_their_history_and_first_turns_what_is_planned(plan: Plan) -> None:
    found = served(plan)
    assert plan.depths.hits[plan.order].tolist() == found
    assert plan.hit_blocks == sum(found) == plan.group_hit_blocks.sum()
    sessions = plan.workload.session_count
    assert sessions is not None
    for session in range(sessions):
        turns = [row // sessions for row in plan.order.tolist() if row % sessions == session]
        assert turns == sorted(turns)


@settings(max_examples=100, deadline=None)
@given(session_plans())
def test_the_range_of_sessions_begins_at_their_histories(plan: Plan) -> None:
    assume(plan.config.request_order.mode != "prefix_len_asc" or plan.keeps_all)
    assert plan.range.least >= plan.history_hits
    if plan.reachable:
        assert plan.hit_blocks == plan.targets.total
    else:
        assert plan.hit_blocks in (plan.range.least, plan.range.most)
    lost = sum(loss.tokens for loss in losses(plan))
    assert lost + plan.range.most * BLOCK == plan.workload.input_tokens


def test_the_last_token_of_an_answer_is_never_stored() -> None:
    config = configuration(
        request_count=2,
        block_size=16,
        input_length=20,
        output_length=12,
        prefix={"group_count": 1},
        target={"hit_ratio": 0.2},
        sessions={"turns": 2, "new_tokens": 40, "answers": "served"},
    )
    plan = plan_workload(config, 16)
    assert plan.history_blocks.tolist() == [1]
    report = validation_report(plan)
    assert report["min_reachable_hit_ratio"] == 16 / (20 + 20 + 12 + 40)
    assert report["sessions"] == {
        "count": 1,
        "later_turns": 1,
        "history_hit_tokens": 16,
        "history_hit_ratio": 16 / 92,
    }


def test_the_report_of_a_tree_has_a_row_a_level() -> None:
    config = configuration(
        request_count=60,
        prefix={
            "tree": [
                {"name": "system", "length": 8},
                {"name": "tenant", "count": 3, "length": 12},
                {"name": "documents", "count": 2},
            ]
        },
        target={"hit_ratio": 0.5},
    )
    plan = plan_workload(config, BLOCK)
    report = validation_report(plan)
    assert report["validation_status"] == "PASS"
    assert [(row["name"], row["nodes"], row["ends_at"]) for row in report["tree"]] == [
        ("system", 1, 8),
        ("tenant", 3, 20),
        ("documents", 6, None),
    ]
    lost = sum(row["cold_start_loss"] for row in report["tree"])
    assert lost // BLOCK == certificate(plan)["cold_loss_blocks"]
    assert report["capacity_curve"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prefix": {"tree": [{"name": "a"}, {"name": "b", "length": 3}]}}, "without a length"),
        ({"prefix": {"tree": [{"name": "a", "length": 3}, {"name": "a"}]}}, "two levels named a"),
        ({"prefix": {"tree": [{"name": "a", "count": 2}], "group_count": 2}}, "group_count"),
        ({"prefix": {"tree": [{"name": "a"}], "nested_prefix": False}}, "nested prefixes"),
        ({"prefix": {"tree": [{"name": "a"}]}, "planning": {"capacity_blocks": 9}}, "limited"),
        (
            {"sessions": {"turns": 2, "new_tokens": 5}, "planning": {"capacity_blocks": 9}},
            "sessions do not allow",
        ),
        (
            {
                "sessions": {"turns": 2, "new_tokens": 5},
                "routing": {"cache_scope": "dp_local", "dp_size": 2, "policy": "round_robin"},
            },
            "sessions do not allow",
        ),
    ],
)
def test_what_a_tree_or_a_session_excludes_is_refused(changes: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        configuration(**changes)
