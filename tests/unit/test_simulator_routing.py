"""Routers: vLLM's balancing, the cache-aware rule of routers, and planned routing."""

from __future__ import annotations

import pytest

from prefixbench.simulator.routing import (
    Arrival,
    Bound,
    CacheAware,
    Hashed,
    LeastLoaded,
    RankLoad,
    RoundRobin,
    Router,
    Sticky,
    TwoLevels,
)
from simulated import request, text


def load(in_flight: int = 0, running: int = 0, waiting: int = 0, kv_usage: float = 0) -> RankLoad:
    return RankLoad(in_flight=in_flight, running=running, waiting=waiting, kv_usage=kv_usage)


def arrival(affinity: str = "", *parts: tuple[int, int] | int) -> Arrival:
    return Arrival(request(text(*(parts or (8,)))), affinity)


def picks(router: Router, affinities: str, places: int) -> list[int]:
    return [router.pick(arrival(name), [load()] * places) for name in affinities]


@pytest.mark.parametrize(
    ("rank", "score"),
    [
        (load(), 0),
        (load(in_flight=5, running=2, waiting=1), 5),
        (load(in_flight=1, running=3, waiting=4), 7),
        (load(waiting=4, kv_usage=0.5), 4),
        (load(waiting=4, kv_usage=0.75), 4 + 6 * 4 * 0.25),
        (load(running=4, kv_usage=1.0), 4),
    ],
)
def test_a_queue_before_a_full_pool_weighs_most(rank: RankLoad, score: float) -> None:
    assert rank.score == score


def test_the_lowest_score_wins_wherever_the_scan_starts() -> None:
    router = LeastLoaded()
    loads = [load(in_flight=2), load(in_flight=1), load(in_flight=3)]
    assert [router.pick(arrival(), loads) for _ in range(4)] == [1, 1, 1, 1]


def test_equal_ranks_take_turns() -> None:
    assert picks(LeastLoaded(), "aaaa", 2) == [0, 1, 0, 1]


def test_in_turn_sticky_hashed_and_bound() -> None:
    assert picks(RoundRobin(), "aabca", 3) == [0, 1, 2, 0, 1]
    assert picks(Sticky(), "abacdab", 3) == [0, 1, 0, 2, 0, 0, 1]
    assert picks(Bound({"a": 2, "b": 0}), "aba", 3) == [2, 0, 2]
    hashed = picks(Hashed(), "abcdefgh", 4)
    assert hashed == picks(Hashed(), "abcdefgh", 4)
    assert set(hashed) == {0, 1, 2, 3}


def test_instances_spread_over_their_own_ranks() -> None:
    router = TwoLevels(RoundRobin(), [LeastLoaded(), LeastLoaded()])
    assert picks(router, "aaaaaa", 4) == [0, 2, 1, 3, 0, 2]


def test_a_router_before_instances_sees_the_sum_of_their_ranks() -> None:
    router = TwoLevels(LeastLoaded(), [RoundRobin(), RoundRobin()])
    loads = [load(in_flight=1), load(in_flight=3), load(in_flight=2), load(in_flight=1)]
    assert router.pick(arrival(), loads) == 2


# The cache-aware rule.

SHARED = (1, 100)


def test_a_known_start_of_more_than_the_threshold_is_followed() -> None:
    router = CacheAware()
    first = router.pick(arrival("", SHARED), [load(), load()])
    assert (first, router.pick(arrival("", 50), [load(), load()])) == (0, 1)
    # 90 of 299 tokens are more than 0.3, of 300 they are not; then the smaller tree is taken.
    assert router.pick(arrival("", (1, 90), 209), [load(), load()]) == 0
    assert router.pick(arrival("", (1, 90), 210), [load(), load()]) == 1


def test_the_longest_match_wins() -> None:
    router = CacheAware()
    router.pick(arrival("", (1, 80)), [load(), load()])
    router.pick(arrival("", (2, 300)), [load(), load()])
    # Sent to the second place although the first one knows 80 of its tokens: loads differ.
    busy = [load(in_flight=70), load()]
    assert router.pick(arrival("", (1, 100)), busy) == 1
    assert router.pick(arrival("", (1, 120)), [load(), load()]) == 1


@pytest.mark.parametrize(
    ("in_flight", "place"),
    [((64, 0), 0), ((65, 0), 1), ((195, 130), 0), ((196, 131), 0), ((197, 131), 1)],
)
def test_loads_count_once_they_differ_by_more_than_64_and_half(
    in_flight: tuple[int, int], place: int
) -> None:
    router = CacheAware()
    assert router.pick(arrival("", SHARED), [load(), load()]) == 0
    assert router.pick(arrival("", SHARED), [load(count) for count in in_flight]) == place


def test_a_sequential_client_never_sees_the_balance_branch() -> None:
    """Measured: 6 prefixes x 5 requests, all on one of two workers, which shared their start."""
    router = CacheAware()
    prompts = [((9, 100), (prefix, 100), 20) for prefix in range(6) for _ in range(5)]
    assert {router.pick(arrival("", *parts), [load(), load()]) for parts in prompts} == {0}


def test_a_tree_is_trimmed_to_its_limit() -> None:
    router = CacheAware(tree_limit_len=120)
    router.pick(arrival("", SHARED), [load()])
    assert router.pick(arrival("", 100), [load()]) == 0
    (tree,) = router._trees
    assert tree.evictable_len <= 120
