"""The closed form: worked cases of planning.md and of RFC 3.3.4."""

from __future__ import annotations

from fractions import Fraction

import pytest

from prefixbench.core.records import CacheScope, RequestPlan
from prefixbench.simulator.watermark import simulate_prefix_cache_watermarks


def plan(prefix: int, *, input_len: int = 100, group: str = "a", instance: int = 0, dp: int = 0):
    return RequestPlan(
        request_id=f"{group}-{prefix}",
        prefix_group_id=group,
        input_len=input_len,
        planned_prefix_len=prefix,
        planned_instance_id=instance,
        planned_dp_id=dp,
    )


def hits(plans, scope=CacheScope.GLOBAL, **options):
    return [
        row.expected_hit_len for row in simulate_prefix_cache_watermarks(plans, scope, **options)
    ]


def test_ascending_prefixes_hit_what_the_one_before_stored():
    assert hits([plan(10), plan(20), plan(30)]) == [0, 10, 20]


def test_a_shorter_prefix_leaves_the_watermark_where_it_is():
    result = simulate_prefix_cache_watermarks([plan(30), plan(10), plan(40)], "global")
    assert [row.expected_hit_len for row in result] == [0, 10, 30]
    assert [row.cached_watermark_before for row in result] == [0, 30, 30]
    assert [row.cached_watermark_after for row in result] == [30, 30, 40]
    assert (result.hits, result.queries, result.ratio) == (40, 300, Fraction(40, 300))


def test_without_requests_there_is_no_ratio():
    assert simulate_prefix_cache_watermarks([], "global").ratio is None


def test_the_worked_example_at_block_size_four_in_both_orders():
    lengths = [16, 20, 24, 28]
    plans = [plan(4 * p, input_len=n) for p, n in zip([2, 4, 5, 6], lengths, strict=True)]
    assert hits(plans, hit_granularity=4) == [0, 8, 16, 20]
    assert hits(plans[::-1], hit_granularity=4) == [0, 20, 16, 8]


def test_the_worked_example_with_a_head_that_ends_inside_a_block():
    plans = [plan(max(4 * p, 5)) for p in (1, 3, 4, 5)]
    result = simulate_prefix_cache_watermarks(plans, "global", hit_granularity=4, head_len=5)
    assert [row.expected_hit_len for row in result] == [0, 4, 12, 16]
    assert [row.expected_head_hit_len for row in result] == [0, 4, 4, 4]


def test_the_head_is_lost_once_per_cache_and_not_once_per_group():
    plans = [plan(32, group=group) for group in "abc"]
    assert hits(plans, hit_granularity=16, head_len=20) == [0, 16, 16]


@pytest.mark.parametrize(
    ("scope", "expected"),
    [
        (CacheScope.GLOBAL, [0, 32, 32, 32]),
        (CacheScope.INSTANCE_LOCAL, [0, 32, 0, 32]),
        (CacheScope.DP_LOCAL, [0, 0, 0, 0]),
    ],
)
def test_the_scope_says_who_sees_a_prefix(scope, expected):
    plans = [plan(32, instance=instance, dp=dp) for instance in (0, 1) for dp in (0, 1)]
    assert hits(plans, scope) == expected


def test_dp_ranks_of_two_instances_are_different_caches():
    plans = [plan(32, instance=instance, dp=0) for instance in (0, 1)]
    assert hits(plans, CacheScope.DP_LOCAL) == [0, 0]


def test_warm_depths_count_in_whole_blocks_and_bring_the_head():
    plans = [plan(64, group="a"), plan(64, group="b")]
    assert hits(plans, hit_granularity=16, warm={"a": 50}, head_len=20) == [48, 16]
