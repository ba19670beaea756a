"""Groups and orders, word by word, on a small example that can be read."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixbench.config.order import OrderWord
from prefixbench.config.prefix import PrefixGroupConfig
from prefixbench.core.records import RequestPlan
from prefixbench.workload.columns import Workload
from prefixbench.workload.groups import allocate_prefix_groups, assign_groups, quotas
from prefixbench.workload.order import Arrangement, arrange, reuse_distances

#            row:  0  1  2  3  4  5  6
GROUP = np.array([0, 0, 1, 0, 1, 2, 0])
LENGTH = np.array([5, 3, 8, 4, 1, 6, 9])
PREFIX = np.array([1, 2, 3, 0, 1, 2, 4])
WORKLOAD = Workload(
    input_len=LENGTH,
    output_len=LENGTH,
    group=GROUP,
    group_ids=("a", "b", "c"),
    group_weights=(4, 2, 1),
)


def order(within: str, across: str, *, leaders_first: bool = False, seed: int = 3) -> list[int]:
    arrangement = Arrangement(
        within=OrderWord(within), across=OrderWord(across), leaders_first=leaders_first
    )
    rows: list[int] = arrange(WORKLOAD, arrangement, seed, PREFIX).tolist()
    return rows


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("sequential", [0, 1, 2, 3, 4, 5, 6]),
        ("grouped", [0, 1, 3, 6, 2, 4, 5]),
        ("interleave", [0, 2, 5, 1, 4, 3, 6]),
        ("weighted_interleave", [0, 2, 1, 5, 3, 4, 6]),
        ("input_len_asc", [4, 1, 3, 0, 5, 2, 6]),
        ("input_len_desc", [6, 2, 5, 0, 3, 1, 4]),
        ("prefix_len_asc", [3, 4, 0, 1, 5, 2, 6]),
        ("prefix_len_desc", [6, 2, 5, 1, 0, 4, 3]),
    ],
)
def test_one_word_for_both_axes(word: str, expected: list[int]) -> None:
    assert order(word, word) == expected


def test_the_axes_are_independent() -> None:
    assert order("input_len_asc", "grouped") == [1, 3, 0, 6, 4, 2, 5]
    # Always the group whose next member is shortest: c's 6 waits behind b's 8, a starts with 5.
    assert order("sequential", "input_len_asc") == [0, 1, 3, 5, 2, 4, 6]


def test_leaders_first_moves_the_largest_prefix_of_each_group() -> None:
    assert order("sequential", "sequential", leaders_first=True) == [2, 5, 6, 0, 1, 3, 4]


def test_shuffle_depends_on_the_seed_alone() -> None:
    assert order("shuffle", "shuffle") == order("shuffle", "shuffle")
    assert order("shuffle", "shuffle") != order("shuffle", "shuffle", seed=4)
    assert sorted(order("shuffle", "shuffle")) == list(range(7))


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(0, 99))
def test_lag_robust_spaces_groups_as_far_as_any_order_can(sizes: list[int], seed: int) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    workload = Workload(
        input_len=group,
        output_len=group,
        group=group,
        group_ids=tuple(map(str, range(len(sizes)))),
        group_weights=(1.0,) * len(sizes),
    )
    arrangement = Arrangement(within=OrderWord.SEQUENTIAL, across=OrderWord.LAG_ROBUST)
    spaced = arrange(workload, arrangement, seed, group)
    assert sorted(spaced.tolist()) == list(range(len(group)))
    rows, largest = max(sizes), sizes.count(max(sizes))
    if rows > 1:
        assert reuse_distances(spaced, group)[0] == (len(group) - largest) // (rows - 1)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.integers(1, 40), st.integers(0, 99))
def test_groups_stand_a_reuse_distance_apart_unless_they_are_too_large(
    sizes: list[int], distance: int, seed: int
) -> None:
    group = np.repeat(np.arange(len(sizes)), sizes)
    workload = Workload(
        input_len=group,
        output_len=group,
        group=group,
        group_ids=tuple(map(str, range(len(sizes)))),
        group_weights=(1.0,) * len(sizes),
    )
    arrangement = Arrangement(
        within=OrderWord.SEQUENTIAL, across=OrderWord.LAG_ROBUST, reuse_distance=distance
    )
    sent = arrange(workload, arrangement, seed, group)
    assert sorted(sent.tolist()) == list(range(len(group)))
    shortest_lane = len(group) // min(distance, len(group))
    if max(sizes) <= shortest_lane:
        distances = reuse_distances(sent, group).tolist()
        # One odd distance for each group that continues in a second lane.
        continued = min(distance, len(group)) - 1
        assert sum(one != distance for one in distances) <= min(continued, len(sizes))


def test_a_zipf_popularity_weighs_groups_by_rank() -> None:
    zipf = PrefixGroupConfig.model_validate(
        {"group_count": 4, "popularity": {"mode": "zipf", "exponent": 1.0}}
    )
    assert np.bincount(assign_groups(zipf, 25, 1)).tolist() == [12, 6, 4, 3]
    even = PrefixGroupConfig.model_validate({"group_count": 4, "popularity": {"exponent": 0}})
    assert np.bincount(assign_groups(even, 25, 1)).tolist() == [7, 6, 6, 6]


def test_quotas_are_exact_shares() -> None:
    assert quotas([Fraction(1, 2), Fraction(3, 10), Fraction(1, 5)], 1000) == [500, 300, 200]
    assert quotas([1, 1, 1], 10) == [4, 3, 3]


def test_groups_by_weight_count_and_assignment() -> None:
    weighted = PrefixGroupConfig.model_validate(
        {"groups": [{"id": "a", "request_weight": 3.0}, {"id": "b", "request_weight": 1.0}]}
    )
    assert np.bincount(assign_groups(weighted, 100, 1)).tolist() == [75, 25]
    assert assign_groups(weighted, 100, 1).tolist() != assign_groups(weighted, 100, 2).tolist()
    counted = PrefixGroupConfig.model_validate(
        {"groups": [{"id": "a", "request_count": 7}, {"id": "b", "request_count": 3}]}
    )
    assert np.bincount(assign_groups(counted, 10, 1)).tolist() == [7, 3]
    explicit = PrefixGroupConfig.model_validate({"assignment": ["x", "y", "x"]})
    requests = [RequestPlan(request_id=str(i), prefix_group_id="", input_len=9) for i in range(3)]
    groups = allocate_prefix_groups(requests, explicit)
    assert [r.request_id for r in groups["x"].requests] == ["0", "2"]
    assert groups["x"].input_tokens == 18
    assert groups["y"].request_count == 1
