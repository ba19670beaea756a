"""Bounds on what a request can have found, on timelines small enough to check by hand."""

from __future__ import annotations

from prefixbench.core.records import CacheScope, RequestPlan
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.scene import Scene
from prefixbench.explain.visibility import hit_bounds

BLOCK = 4


def plan(name: str, prefix: int, group: str = "a", rank: int = 0) -> RequestPlan:
    return RequestPlan(
        request_id=name,
        prefix_group_id=group,
        input_len=100,
        planned_prefix_len=prefix,
        planned_dp_id=rank,
    )


def flight(name: str, sent: int, answered: int | None) -> ObservedRequest:
    status = "timeout" if answered is None else "ok"
    return ObservedRequest(
        request_id=name, phase="cold", status=status, sent_ns=sent, first_token_ns=answered
    )


def bounds(
    plans: list[RequestPlan], flights: list[ObservedRequest], head_len: int = 0, **changes: object
) -> dict[str, tuple[int, int]]:
    fields = {"scope": CacheScope.GLOBAL, "granularity": BLOCK, "head_len": head_len, **changes}
    scene = Scene(requests=tuple(plans), **fields)  # type: ignore[arg-type]
    found = hit_bounds(scene, {row.request_id: row for row in flights})
    return {name: (each.least, each.most) for name, each in found.items()}


def test_one_after_the_other_leaves_no_doubt() -> None:
    plans = [plan("1", 8), plan("2", 12), plan("3", 40)]
    flights = [flight("1", 0, 5), flight("2", 6, 9), flight("3", 10, 15)]
    assert bounds(plans, flights) == {"1": (0, 0), "2": (8, 8), "3": (12, 12)}


def test_who_is_still_computing_may_or_may_not_be_seen() -> None:
    plans = [plan("1", 8), plan("2", 12), plan("3", 20)]
    flights = [flight("1", 0, 5), flight("2", 4, 20), flight("3", 6, 21)]
    assert bounds(plans, flights) == {"1": (0, 8), "2": (0, 12), "3": (8, 12)}


def test_an_answer_at_the_moment_of_sending_is_seen_for_sure() -> None:
    plans = [plan("1", 8), plan("2", 8)]
    assert bounds(plans, [flight("1", 0, 5), flight("2", 5, 9)])["2"] == (8, 8)


def test_the_deepest_of_all_others_counts_not_the_latest() -> None:
    plans = [plan("1", 12), plan("2", 4), plan("3", 8), plan("4", 16)]
    flights = [flight(str(number), number, 100) for number in (1, 2, 3, 4)]
    assert bounds(plans, flights)["4"] == (0, 12)
    assert bounds(plans, flights)["1"] == (0, 12)


def test_a_second_of_equal_depth_is_not_the_request_itself() -> None:
    plans = [plan("1", 16), plan("2", 8), plan("3", 12), plan("4", 4)]
    flights = [flight(str(number), number, 100) for number in (1, 2, 3, 4)]
    assert bounds(plans, flights)["1"] == (0, 12)


def test_other_groups_leave_the_head_alone_and_other_ranks_nothing() -> None:
    plans = [plan("1", 16, "a"), plan("2", 16, "b"), plan("3", 16, "a", rank=1)]
    flights = [flight("1", 0, 1), flight("2", 2, 3), flight("3", 4, 5)]
    assert bounds(plans, flights, head_len=9)["2"] == (8, 8)
    local = bounds(plans, flights, head_len=9, scope=CacheScope.DP_LOCAL)
    assert local["3"] == (0, 0)


def test_tokens_in_front_of_every_prompt_shift_head_and_prefix() -> None:
    plans = [plan("1", 8, "a"), plan("2", 8, "b")]
    flights = [flight("1", 0, 1), flight("2", 2, 3)]
    assert bounds(plans, flights, head_len=6)["2"] == (4, 4)
    assert bounds(plans, flights, head_len=6, extra_head_len=2)["2"] == (8, 8)
    scene = Scene(
        requests=tuple(plans), scope=CacheScope.GLOBAL, granularity=4, head_len=6, extra_head_len=2
    )
    assert [row.expected_hit_len for row in scene.outcomes()] == [0, 8]
    assert [row.input_len for row in scene.outcomes()] == [102, 102]


def test_a_warm_up_is_seen_by_all() -> None:
    plans = [plan("1", 8), plan("2", 16)]
    flights = [flight("1", 0, 5), flight("2", 0, 5)]
    assert bounds(plans, flights, warm={"a": 16}) == {"1": (8, 8), "2": (16, 16)}


def test_a_request_without_an_answer_may_have_left_its_blocks() -> None:
    flights = [flight("1", 0, None), flight("2", 50, 60)]
    found = bounds([plan("2", 8)], flights, unanswered=(plan("1", 8),))
    assert found == {"2": (0, 8)}
