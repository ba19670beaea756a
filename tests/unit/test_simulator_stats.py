"""Statistics, definition by definition."""

from __future__ import annotations

from fractions import Fraction

import pytest

from prefixbench.core.tally import Unit
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.stats import (
    EngineStats,
    PrefixCacheStats,
    SchedulerStats,
    compute_tpot,
    compute_ttft,
    tpot_percentile,
)
from simulated import drain, request, text, together


@pytest.mark.parametrize(("tokens", "expected"), [(0, 0.0), (1, 0.0), (2, 6.0), (3, 3.0), (7, 1.0)])
def test_tpot_divides_by_gaps_and_not_by_tokens(tokens: int, expected: float) -> None:
    assert compute_tpot(10.0, 16.0, tokens) == expected


def test_ttft_counts_from_arrival_and_is_unknown_before_the_first_token() -> None:
    assert compute_ttft(2.0, 5.5) == 3.5
    assert compute_ttft(2.0, None) is None


def test_tpot_quantiles_leave_out_requests_without_a_gap() -> None:
    assert tpot_percentile([0.0, 0.0, 1.0, 3.0], 50) == 2.0
    assert tpot_percentile([0.0], 50) is None


def test_a_block_rate_leaves_out_the_last_block() -> None:
    stats = PrefixCacheStats(16)
    for length, hit_blocks in [(64, 0), (64, 3), (65, 4), (16, 0), (1, 0)]:
        stats.record_query(length, hit_blocks)
    assert (stats.num_query_blocks, stats.num_hit_blocks) == (3 + 3 + 4, 7)
    assert stats.tally.ratio == Fraction(7, 10)
    assert stats.tally.unit is Unit.BLOCK
    assert stats.hit_rate == 0.7
    assert stats.saved_tokens == 7 * 16


def test_nothing_queried_is_no_rate() -> None:
    stats = PrefixCacheStats(16)
    stats.record_query(16, 0)
    assert stats.hit_rate is None


def test_evictions_add_up() -> None:
    stats = PrefixCacheStats(16)
    stats.record_eviction()
    stats.record_eviction(4)
    assert stats.num_evictions == 5


def test_a_mixed_step_counts_in_full_on_both_sides() -> None:
    stats = SchedulerStats()
    stats.record_steps(100, 0, 1_000)
    stats.record_steps(0, 4, 500, steps=2)
    stats.record_steps(50, 3, 2_000)
    assert (stats.num_prefill_steps, stats.num_decode_steps, stats.num_mixed_steps) == (2, 3, 1)
    assert (stats.total_prefill_tokens, stats.total_decode_tokens) == (150, 11)
    assert (stats.prefill_duration_ns, stats.decode_duration_ns) == (3_000, 2_500)
    assert stats.prefill_throughput_tok_s == 150 / 3_000e-9
    assert stats.decode_throughput_tok_s == 11 / 2_500e-9


def test_a_step_without_work_counts_nowhere() -> None:
    stats = SchedulerStats()
    stats.record_steps(0, 0, 0)
    assert stats == SchedulerStats()
    assert stats.prefill_throughput_tok_s is None
    assert stats.decode_throughput_tok_s is None


def test_speculation_is_counted_when_something_speculates() -> None:
    stats = SchedulerStats()
    assert stats.num_speculative_steps == 0
    stats.record_acceptance(4, 3)
    assert (stats.num_speculative_steps, stats.total_draft_tokens) == (1, 4)
    assert stats.total_accepted_tokens == 3


# What an engine counts under these definitions.


@pytest.mark.parametrize(("profile", "queries"), [("vllm-0.33", 180), ("vllm-0.26", 580)])
def test_an_admission_that_is_tried_again_adds_no_block_query(profile: str, queries: int) -> None:
    """B waits five steps for A. Some versions count each try in tokens, none in blocks."""
    engine = Engine(profile, capacity_blocks=8)
    together(engine, [request(text(100), 5), request(text(80))])
    stats = engine.stats()
    assert stats.queries == queries
    assert stats.prefix_cache.num_query_blocks == 6 + 4


def test_a_request_that_was_pushed_back_adds_no_block_query() -> None:
    engine = Engine("vllm-0.33", capacity_blocks=8)
    together(engine, [request(text(60), 30) for _ in "ab"])
    stats = engine.stats()
    assert stats.scheduler.num_preemptions == 1
    assert stats.prefix_cache.num_query_blocks == 3 + 3


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "dfs-weight"])
def test_scoring_waiting_requests_counts_nothing(policy: str) -> None:
    engine = Engine("sglang-0.5", policy=policy, max_num_seqs=2)
    together(engine, [request(text((1, 100), length)) for length in (10, 20, 30, 40)])
    stats = engine.stats()
    assert stats.queries == 4 * 100 + 10 + 20 + 30 + 40
    assert stats.prefix_cache.num_query_blocks == stats.queries - 4


def test_overwriting_what_no_look_up_finds_is_no_eviction() -> None:
    """Twins of one step keep a copy each; the second one's owns the name. Blocks of 4, pool of 4.

    The next prompt overwrites all four blocks: the two that are found are evicted, the two older
    copies are lost without a loss.
    """
    engine = Engine("nano-vllm", capacity_blocks=4, block_size=4)
    together(engine, [request(text((1, 7))) for _ in "ab"])
    assert engine.cache_contents().cached_keys == 1
    together(engine, [request(text(13))])
    assert engine.stats().prefix_cache.num_evictions == 1


def test_a_step_that_prefills_and_decodes_is_both_and_its_time_counts_twice() -> None:
    engine = Engine("vllm-0.33", cost=CostModel(step_ns=100, prefill_token_ns=1))
    engine.submit(request(text(64), 3))
    engine.step()
    engine.submit(request(text(32)))
    drain(engine)
    stats = engine.stats().scheduler
    assert (stats.num_prefill_steps, stats.num_decode_steps, stats.num_mixed_steps) == (2, 2, 1)
    assert (stats.total_prefill_tokens, stats.total_decode_tokens) == (96, 2)
    assert stats.prefill_duration_ns == 164 + 132
    assert stats.decode_duration_ns == 132 + 100


def test_look_ups_after_a_preemption_stand_apart() -> None:
    stats = EngineStats(PrefixCacheStats(16))
    stats.count_look_up(64, 48, resumed=False)
    stats.count_look_up(65, 32, resumed=True)
    assert (stats.tokens.hits, stats.tokens.queries) == (48, 64)
    assert (stats.preempted_hits, stats.preempted_queries) == (32, 65)
