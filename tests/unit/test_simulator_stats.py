"""Statistics, definition by definition."""

from __future__ import annotations

from fractions import Fraction

import pytest

from prefixbench.core.tally import Unit
from prefixbench.simulator.stats import (
    EngineStats,
    PrefixCacheStats,
    SchedulerStats,
    compute_tpot,
    compute_ttft,
    tpot_percentile,
)


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


def test_look_ups_after_a_preemption_stand_apart() -> None:
    stats = EngineStats(PrefixCacheStats(16))
    stats.count_look_up(64, 48, resumed=False)
    stats.count_look_up(65, 32, resumed=True)
    assert (stats.tokens.hits, stats.tokens.queries) == (48, 64)
    assert (stats.preempted_hits, stats.preempted_queries) == (32, 65)
