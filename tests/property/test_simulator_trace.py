"""Every policy of the analytic engine against a list, on traces that branch, repeat and nest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

import trace_oracles as oracle
from prefixbench.simulator.cluster import Cluster
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.prefix_tree import PrefixTree
from prefixbench.simulator.routing import RoundRobin
from prefixbench.simulator.trace import TraceRequest, runs_of_ids
from prefixbench.simulator.trace_cache import CacheRules, IndexedTrace, Policy, TraceCache
from prefixbench.simulator.trace_play import play_trace, play_trace_alone
from prefixbench.simulator.trace_statistics import Popularity, capacities_for_shares

#: Few ids, so that paths share heads and the same ids stand behind different parents.
IDS = st.lists(st.integers(0, 3), max_size=9)
TRACES = st.lists(IDS, min_size=1, max_size=25)
CAPACITIES = st.integers(1, 40)
EVERYTHING = 25 * 9 + 1


def trace_of(trace: list[list[int]], arrivals: list[float] | None = None) -> IndexedTrace:
    times = arrivals or [None] * len(trace)
    return IndexedTrace(
        [
            TraceRequest(input_len=len(ids), blocks=runs_of_ids(ids), arrival_ms=time)
            for ids, time in zip(trace, times, strict=True)
        ]
    )


def hits(trace: list[list[int]], capacity: int | None, **rules: object) -> list[int]:
    return TraceCache(trace_of(trace), CacheRules(**rules)).hit_blocks(capacity)  # type: ignore[arg-type]


@given(IDS)
def test_runs_of_ids_and_back_is_the_identity(ids: list[int]) -> None:
    runs = runs_of_ids(ids)
    assert [block for run in runs for block in run] == ids
    assert all(a.stop != b.start for a, b in pairwise(runs))


@given(TRACES)
def test_the_tree_holds_every_distinct_path_once(trace: list[list[int]]) -> None:
    tree = PrefixTree()
    paths = [tree.insert(runs_of_ids(ids)) for ids in trace]
    assert len(tree) == len({node for ids in trace for node in oracle.nodes_of(ids)})
    assert [sum(depth for _, depth in path) for path in paths] == list(map(len, trace))


@given(TRACES)
def test_repeated_ids_are_ids_with_another_path(trace: list[list[int]]) -> None:
    tree = PrefixTree()
    for ids in trace:
        tree.insert(runs_of_ids(ids))
    nodes = {node for ids in trace for node in oracle.nodes_of(ids)}
    assert tree.repeated_ids() == len(nodes) - len({node[-1] for node in nodes})


@given(TRACES)
def test_popularity_counts_the_requests_of_each_block(trace: list[list[int]]) -> None:
    uses = Counter(node for ids in trace for node in oracle.nodes_of(ids))
    popularity = Popularity.of(trace_of(trace).paths)
    assert dict(popularity.uses) == Counter(uses.values())
    for blocks in (0, 1, 5, len(uses)):
        most_used = sorted(uses.values(), reverse=True)[:blocks]
        assert popularity.accesses_of_top(blocks) == sum(most_used)


@given(TRACES, CAPACITIES)
def test_lru_is_an_ordered_dictionary(trace: list[list[int]], capacity: int) -> None:
    assert hits(trace, capacity) == oracle.lru(trace, capacity)


@given(TRACES, CAPACITIES, st.integers(2, 6))
def test_a_lag_hides_the_latest_requests(trace: list[list[int]], capacity: int, lag: int) -> None:
    assert hits(trace, capacity, lag=lag) == oracle.lru(trace, capacity, lag)


@given(TRACES, CAPACITIES)
def test_block_lru_uses_one_block_at_a_time(trace: list[list[int]], capacity: int) -> None:
    assert hits(trace, capacity, policy=Policy.BLOCK_LRU) == oracle.block_lru(trace, capacity)


@given(TRACES, CAPACITIES)
def test_fifo_is_a_queue(trace: list[list[int]], capacity: int) -> None:
    assert hits(trace, capacity, policy=Policy.FIFO) == oracle.fifo(trace, capacity)


@given(TRACES, CAPACITIES)
def test_optimal_keeps_what_is_needed_soonest(trace: list[list[int]], capacity: int) -> None:
    found = hits(trace, capacity, policy=Policy.OPTIMAL)
    assert found == oracle.optimal(trace, capacity)
    for policy in (Policy.LRU, Policy.BLOCK_LRU, Policy.FIFO):
        assert sum(found) >= sum(hits(trace, capacity, policy=policy))


@given(TRACES, st.sampled_from([Policy.LRU, Policy.BLOCK_LRU]))
def test_one_pass_gives_every_capacity(trace: list[list[int]], policy: Policy) -> None:
    cache = TraceCache(trace_of(trace), CacheRules(policy=policy))
    curve = cache.lru_curve()
    totals = [sum(cache.hit_blocks(capacity)) for capacity in range(EVERYTHING)]
    assert [curve.tally(capacity).hits for capacity in range(EVERYTHING)] == totals
    assert curve.tally().hits == sum(cache.hit_blocks(None)) == totals[-1]
    assert totals == sorted(totals)


@given(TRACES)
def test_the_least_capacity_for_a_share_keeps_it(trace: list[list[int]]) -> None:
    most = sum(oracle.lru(trace, EVERYTHING))
    for row in capacities_for_shares(TraceCache(trace_of(trace)).lru_curve()):
        kept = sum(oracle.lru(trace, row["blocks"]))
        one_less = sum(oracle.lru(trace, row["blocks"] - 1))
        assert 100 * one_less < round(100 * row["share"]) * most <= 100 * kept


@given(
    TRACES.flatmap(
        lambda trace: st.tuples(
            st.just(trace),
            st.lists(st.integers(0, 5), min_size=len(trace), max_size=len(trace)),
        )
    ),
    st.integers(0, 12),
)
def test_blocks_leave_after_their_time_to_live(
    timed: tuple[list[list[int]], list[int]], ttl: int
) -> None:
    trace, gaps = timed
    arrivals = [float(time) for time in accumulate(gaps)]
    cache = TraceCache(trace_of(trace, arrivals), CacheRules(ttl_ms=ttl))
    assert cache.hit_blocks(None) == oracle.unlimited_with_ttl(trace, arrivals, ttl)


@given(TRACES, st.integers(10, 40))
def test_an_ideal_engine_is_the_analytic_cache(trace: list[list[int]], capacity: int) -> None:
    """One request at a time, full blocks and a token behind them, one token of answer."""
    block = 4
    requests = [
        TraceRequest(input_len=block * len(ids) + 1, output_len=1, blocks=runs_of_ids(ids))
        for ids in trace
    ]
    cluster = Cluster([Engine("ideal", capacity, block_size=block)], RoundRobin())
    played = play_trace(requests, block, cluster)
    cluster.check_integrity()
    assert played == [block * found for found in oracle.lru(trace, capacity)]
    alone = play_trace_alone(requests, Engine("ideal", capacity, block_size=block))
    assert alone.tally == cluster.tally_at(0)
    assert alone.stats == cluster.engines[0].stats()


@given(st.integers(0, 1 << 62), st.integers(0, 2))
def test_what_no_block_covers_is_never_found_by_another(block_id: int, earlier: int) -> None:
    """Ids may be hashes of 64 bits: none of them stands for another request's own tokens."""
    block = 16
    bare = [TraceRequest(input_len=2 * block)] * (earlier + 1)
    named = TraceRequest(input_len=3 * block, blocks=(range(block_id, block_id + 2),))
    for special in (
        named,
        replace(named, blocks=(range((1 << 60) // block, 1 + (1 << 60) // block),)),
    ):
        cluster = Cluster([Engine("vllm-0.33", block_size=block)], RoundRobin())
        assert play_trace([*bare, special], block, cluster) == [0] * (earlier + 2)


@given(TRACES)
def test_without_limit_every_policy_finds_the_same(trace: list[list[int]]) -> None:
    found = [hits(trace, None, policy=policy) for policy in Policy]
    assert found == [oracle.lru(trace, 10**6)] * len(Policy)
