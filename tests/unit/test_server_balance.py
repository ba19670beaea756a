"""vLLM's balancing rule, engine-semantics section 10."""

from __future__ import annotations

import pytest

from prefixbench.server.balance import Balancer, RankLoad


def load(in_flight: int = 0, running: int = 0, waiting: int = 0, kv_usage: float = 0) -> RankLoad:
    return RankLoad(in_flight=in_flight, running=running, waiting=waiting, kv_usage=kv_usage)


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
    balancer = Balancer()
    loads = [load(in_flight=2), load(in_flight=1), load(in_flight=3)]
    assert [balancer.pick(loads) for _ in range(4)] == [1, 1, 1, 1]


def test_equal_ranks_take_turns() -> None:
    balancer = Balancer()
    assert [balancer.pick([load(), load()]) for _ in range(4)] == [0, 1, 0, 1]
