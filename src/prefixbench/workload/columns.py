"""Requests as columns of integers: what the planner walks instead of a record a request.

Row i of every column is request i in *generation order*; an order of sending is a permutation of
row numbers. All lengths are tokens and count from token 0 of the sequence the server sees.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.signedinteger[Any]]
FloatArray = npt.NDArray[np.float64]

#: Groups that still fit 16 bits are sorted by radix, five times as fast.
_RADIX_KEYS = 1 << 16


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
        most = np.maximum(np.minimum(unshared, computed), self.head_blocks)
        return most.astype(np.int32)

    def prefix_tokens(self, prefix_blocks: IntArray) -> IntArray:
        """Where each request leaves its group, in tokens: never inside the head."""
        tokens: IntArray = np.maximum(prefix_blocks * self.granularity, self.head_len)
        return tokens

    def divergence_tokens(self, input_len: IntArray, prefix_len: IntArray) -> IntArray:
        room: IntArray = input_len - self.tail_len - prefix_len
        divergence: IntArray = np.minimum(room, self.block_size)
        return divergence


@dataclass(frozen=True, kw_only=True)
class Workload:
    """Lengths and groups of all requests, before anything is planned.

    With sessions the rows are turn by turn, the first `session_count` of them first turns, and
    `history_len` is what each row repeats of the turn before it and the server has stored by then.
    """

    input_len: IntArray
    output_len: IntArray
    group: IntArray
    group_ids: tuple[str, ...]
    group_weights: tuple[float, ...]
    session_count: int | None = None
    history_len: IntArray | None = None

    @property
    def request_count(self) -> int:
        return len(self.input_len)

    @property
    def first_turn_count(self) -> int:
        """Requests without a history; all of them where there are no sessions."""
        return self.request_count if self.session_count is None else self.session_count

    @property
    def first_turns(self) -> Workload:
        """The requests without a history alone."""
        return self if self.session_count is None else self._first_turns

    @cached_property
    def _first_turns(self) -> Workload:
        rows = slice(self.session_count)
        return Workload(
            input_len=self.input_len[rows],
            output_len=self.output_len[rows],
            group=self.group[rows],
            group_ids=self.group_ids,
            group_weights=self.group_weights,
        )

    @cached_property
    def input_tokens(self) -> int:
        return int(self.input_len.sum())

    @cached_property
    def group_sizes(self) -> IntArray:
        return np.bincount(self.group, minlength=len(self.group_ids))

    @cached_property
    def group_input_tokens(self) -> IntArray:
        return sums_by(self.group, self.input_len, len(self.group_ids))

    @cached_property
    def by_group(self) -> IntArray:
        """Rows sorted by group, inside a group in generation order."""
        return sorted_by(self.group, len(self.group_ids))

    @cached_property
    def rank(self) -> IntArray:
        """Place of each request inside its group, in generation order, from 0."""
        sizes = self.group_sizes
        rank = np.empty(self.request_count, np.int32)
        rank[self.by_group] = np.arange(self.request_count) - np.repeat(starts_of(sizes), sizes)
        return rank


def sorted_by(key: IntArray, count: int) -> IntArray:
    """Places sorted by a key in range(count), stable."""
    narrow = key.astype(np.uint16) if count <= _RADIX_KEYS else key
    return np.argsort(narrow, kind="stable")


def starts_of(sizes: IntArray) -> IntArray:
    """The first place of each run, for runs of these sizes one after the other."""
    starts: IntArray = np.cumsum(sizes) - sizes
    return starts


def sums_by(key: IntArray, values: IntArray, count: int) -> IntArray:
    """Sums of `values` for each key in range(count); exact below 2^53."""
    return np.bincount(key, weights=values, minlength=count).astype(np.int64)
