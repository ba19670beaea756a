"""Five requests, blocks of four tokens, every number worked out by hand.

| request | tokens | blocks    | found without limit | places in the order of last use |
|---------|--------|-----------|---------------------|---------------------------------|
| 0       | 10     | 1 2 3     | -                   |                                 |
| 1       | 11     | 1 2 4     | 1 2                 | 1, 2                            |
| 2       | 10     | 1 2 3     | 1 2 3               | 1, 2, 4                         |
| 3       | 5      | 5 6       | -                   |                                 |
| 4       | 11     | 1 2 4     | 1 2 4               | 3, 4, 6                         |
"""

from __future__ import annotations

from fractions import Fraction

import pytest

from prefixbench.core.tally import HitTally, Unit
from prefixbench.simulator.hit_definition import MEANINGS, HitDefinition, hit_ratio
from prefixbench.simulator.trace import TraceRequest, runs_of_ids
from prefixbench.simulator.trace_cache import CacheRules, IndexedTrace, Policy, TraceCache

ROWS = [(10, [1, 2, 3]), (11, [1, 2, 4]), (10, [1, 2, 3]), (5, [5, 6]), (11, [1, 2, 4])]
REQUESTS = [
    TraceRequest(input_len=tokens, blocks=runs_of_ids(ids), arrival_ms=second * 1000)
    for second, (tokens, ids) in enumerate(ROWS)
]
TRACE = IndexedTrace(REQUESTS)
BLOCK = 4
WITHOUT_LIMIT = [0, 2, 3, 0, 3]


def hits(capacity: int | None, **rules: object) -> list[int]:
    return TraceCache(TRACE, CacheRules(**rules)).hit_blocks(capacity)  # type: ignore[arg-type]


def trace_of(*paths: list[int]) -> IndexedTrace:
    return IndexedTrace(
        [TraceRequest(input_len=len(ids), blocks=runs_of_ids(ids)) for ids in paths]
    )


def test_lru_at_each_capacity() -> None:
    assert [sum(hits(capacity)) for capacity in range(8)] == [0, 2, 4, 5, 7, 7, 8, 8]
    assert hits(4) == [0, 2, 3, 0, 2]
    assert hits(None) == WITHOUT_LIMIT


def test_reuse_distances_are_the_places() -> None:
    steps = TraceCache(TRACE).reuse_distances.steps
    found = [sum(step for place, step in steps.items() if place <= p) for p in range(1, 8)]
    assert found == [2, 2, 1, 2, 0, 1, 0]


def test_first_in_first_out_forgets_what_is_used() -> None:
    assert hits(4, policy=Policy.FIFO) == [0, 2, 3, 0, 0]


def test_the_optimum_keeps_what_comes_back() -> None:
    assert hits(4, policy=Policy.OPTIMAL) == WITHOUT_LIMIT
    assert hits(2, policy=Policy.OPTIMAL) == [0, 2, 2, 0, 2]
    assert hits(2) == [0, 2, 2, 0, 0]


def test_a_request_in_flight_is_not_seen() -> None:
    assert hits(None, lag=2) == [0, 0, 3, 0, 3]
    assert hits(None, lag=4) == [0, 0, 0, 0, 2]


def test_a_block_that_is_not_used_in_time_is_gone() -> None:
    assert hits(None, ttl_ms=1_000) == [0, 2, 2, 0, 0]
    assert hits(None, ttl_ms=2_000) == [0, 2, 3, 0, 2]


@pytest.mark.parametrize(
    ("definition", "tally", "ratio"),
    [
        (HitDefinition.BLOCKS, HitTally(8, 14, Unit.BLOCK), Fraction(8, 14)),
        (HitDefinition.TOKENS_CAPPED, HitTally(29, 47), Fraction(29, 47)),
        (HitDefinition.TOKENS_ENGINE, HitTally(24, 47), Fraction(24, 47)),
        (HitDefinition.FULL_BLOCKS, HitTally(6, 9, Unit.BLOCK), Fraction(6, 9)),
        (HitDefinition.MEAN_BLOCK_RATIO, None, (Fraction(2, 3) + 2) / 5),
        (HitDefinition.MEAN_TOKEN_RATIO, None, (Fraction(8, 11) + 2) / 5),
    ],
)
def test_definitions(definition: HitDefinition, tally: HitTally | None, ratio: Fraction) -> None:
    found = hit_ratio(definition, REQUESTS, WITHOUT_LIMIT, BLOCK)
    assert found.tally == tally
    assert found.ratio == pytest.approx(float(ratio), abs=1e-15)
    assert (found.window, found.block_size, found.requests) == (1.0, BLOCK, "all requests")


def test_an_engine_always_computes_a_token() -> None:
    """Two equal prompts of two full blocks: the second finds one of them."""
    twins = [TraceRequest(input_len=8, blocks=(range(2),))] * 2
    found = TraceCache(IndexedTrace(twins)).hit_blocks()
    assert found == [0, 2]
    assert hit_ratio(HitDefinition.TOKENS_ENGINE, twins, found, BLOCK).tally == HitTally(4, 16)
    assert hit_ratio(HitDefinition.TOKENS_CAPPED, twins, found, BLOCK).tally == HitTally(8, 16)


def test_a_window_measures_the_end() -> None:
    found = hit_ratio(HitDefinition.BLOCKS, REQUESTS, WITHOUT_LIMIT, BLOCK, window=0.4)
    assert found.tally == HitTally(3, 5, Unit.BLOCK)
    with pytest.raises(ValueError, match="share of the requests"):
        hit_ratio(HitDefinition.BLOCKS, REQUESTS, WITHOUT_LIMIT, BLOCK, window=0)


@pytest.mark.parametrize("count", [10, 20, 100, 1000])
@pytest.mark.parametrize("tenths", range(1, 11))
def test_a_window_of_tenths_measures_tenths(count: int, tenths: int) -> None:
    requests = [TraceRequest(input_len=BLOCK, blocks=(range(1),))] * count
    found = hit_ratio(HitDefinition.BLOCKS, requests, [1] * count, BLOCK, window=tenths / 10)
    assert found.tally is not None
    assert found.tally.queries == count * tenths // 10


def test_nothing_queried_is_no_ratio() -> None:
    for definition in HitDefinition:
        assert hit_ratio(definition, [], [], BLOCK).ratio is None
    short = [TraceRequest(input_len=3, blocks=(range(1),))]
    assert hit_ratio(HitDefinition.FULL_BLOCKS, short, [1], BLOCK).ratio is None


def test_every_definition_is_explained() -> None:
    assert set(MEANINGS) == set(HitDefinition)


def test_blocks_behind_the_first_miss_do_not_hit() -> None:
    assert TraceCache(trace_of([1, 2, 3], [9, 2, 3])).hit_blocks() == [0, 0]


def test_the_tail_goes_before_the_head() -> None:
    trace = trace_of([1, 2, 3, 4], [5, 6], [1, 2, 7, 8])
    assert TraceCache(trace).hit_blocks(4) == [0, 0, 2]


def test_content_ids_hit_behind_their_own_parent_alone() -> None:
    cache = TraceCache(trace_of([1, 2], [3, 4], [1, 4]))
    assert cache.hit_blocks() == [0, 0, 1]
    assert cache.trace.tree.repeated_ids() == 1


@pytest.mark.parametrize(
    "rules",
    [{"lag": 0}, {"policy": Policy.FIFO, "lag": 2}, {"policy": Policy.OPTIMAL, "ttl_ms": 1.0}],
)
def test_rules_that_make_no_sense_are_refused(rules: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="lag"):
        CacheRules(**rules)  # type: ignore[arg-type]


def test_fifo_and_the_optimum_have_no_curve_in_one_pass() -> None:
    with pytest.raises(ValueError, match="no curve"):
        TraceCache(TRACE, CacheRules(policy=Policy.FIFO)).lru_curve()


def test_a_time_to_live_needs_arrivals() -> None:
    cache = TraceCache(trace_of([1], [1]), CacheRules(ttl_ms=1.0))
    with pytest.raises(ValueError, match="arrival"):
        cache.hit_blocks()
