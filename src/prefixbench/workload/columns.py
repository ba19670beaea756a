"""Requests as columns of integers: what the planner walks instead of a record a request.

Row i of every column is request i in *generation order*; an order of sending is a permutation of
row numbers. All lengths are tokens and count from token 0 of the sequence the server sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Geometry:
    """Token counts that shape every request of a data set.

    `head_len` (BOS, template head, opening word) and `tail_len` (template tail) are equal in every
    request; `granularity` is the smallest step of hits, `block_size` the length of a block.
    """

    block_size: int
    granularity: int
    minimum_non_shared_len: int
    head_len: int = 0
    tail_len: int = 0

    @property
    def head_blocks(self) -> int:
        """Blocks the head fills: common to all groups, hence hit by everyone but the first."""
        return self.head_len // self.granularity

    def longest_prefixes(self, input_len: IntArray) -> IntArray:
        """The largest prefix each request can take, in blocks (RFC 3.3.6 and A.5).

        It leaves the tail and the non-shared tokens free, and never reaches the last token; it is
        at least the head's blocks, which no request can leave out.
        """
        unshared = (input_len - self.tail_len - self.minimum_non_shared_len) // self.granularity
        computed = (input_len - 1) // self.granularity
        most: IntArray = np.maximum(np.minimum(unshared, computed), self.head_blocks)
        return most

    def prefix_tokens(self, prefix_blocks: IntArray) -> IntArray:
        """Where each request leaves its group, in tokens: never inside the head."""
        return np.maximum(prefix_blocks * self.granularity, self.head_len)

    def divergence_tokens(self, input_len: IntArray, prefix_len: IntArray) -> IntArray:
        room: IntArray = input_len - self.tail_len - prefix_len
        return np.minimum(room, self.block_size)


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Lengths and groups of all requests, before anything is planned."""

    input_len: IntArray
    output_len: IntArray
    group: IntArray
    group_ids: tuple[str, ...]
    group_weights: tuple[float, ...]

    @property
    def request_count(self) -> int:
        return len(self.input_len)

    @cached_property
    def input_tokens(self) -> int:
        return int(self.input_len.sum())

    @cached_property
    def group_sizes(self) -> IntArray:
        return np.bincount(self.group, minlength=len(self.group_ids)).astype(np.int64)

    @cached_property
    def group_input_tokens(self) -> IntArray:
        return sums_by(self.group, self.input_len, len(self.group_ids))

    @cached_property
    def rank(self) -> IntArray:
        """Place of each request inside its group, in generation order, from 0."""
        return ranks_within(self.group, np.arange(self.request_count), len(self.group_ids))


def sums_by(key: IntArray, values: IntArray, count: int) -> IntArray:
    """Exact integer sums of `values` for each key in range(count)."""
    sums = np.zeros(count, np.int64)
    np.add.at(sums, key, values)
    return sums


def maxima_by(key: IntArray, values: IntArray, count: int) -> IntArray:
    """The largest value of each key in range(count); 0 where there is none."""
    maxima = np.zeros(count, np.int64)
    np.maximum.at(maxima, key, values)
    return maxima


def ranks_within(key: IntArray, order: IntArray, count: int) -> IntArray:
    """For each row, how many rows of the same key come before it in `order`."""
    by_key = order[np.argsort(key[order], kind="stable")]
    starts = np.concatenate(([0], np.cumsum(np.bincount(key, minlength=count))[:-1]))
    ranks = np.empty(len(key), np.int64)
    ranks[by_key] = np.arange(len(key)) - starts[key[by_key]]
    return ranks
