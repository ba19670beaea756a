"""Prefixes as a tree: groups share not only the head but whole levels above their own.

A group is a leaf. Its master prefix is the text of the nodes on its path, one level after the
other, and a request follows it to a depth of its own. Hits are then accesses minus the distinct
blocks of the tree, whatever the order:

    H = sum p  -  sum over levels and nodes of (deepest prefix in the node - where its level begins)

Worked example at block size 4: a system prompt of 8 tokens, two tenants below it. Prefixes of 3
and 4 blocks in one tenant and of 5 in the other are 12 blocks accessed. Distinct are 2 of the
system prompt, 4 - 2 of the first tenant and 5 - 2 of the second: 7, so 5 blocks hit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from math import prod

import numpy as np
import numpy.typing as npt

from prefixbench.config.prefix import TreeLevelConfig
from prefixbench.workload.columns import IntArray


@dataclass(frozen=True, kw_only=True)
class Level:
    """Depths [begin, end) of a tree in blocks, and the node that each run of rows has there.

    Runs of one node find each other's blocks; without `end` the level goes as deep as prefixes do.
    """

    begin: int
    end: int | None
    node: IntArray

    @cached_property
    def first_runs(self) -> IntArray:
        """The first run of each node."""
        return np.unique(self.node, return_index=True)[1]

    @cached_property
    def numbers(self) -> IntArray:
        """The nodes of the runs, numbered from 0 without gaps."""
        return np.unique(self.node, return_inverse=True)[1]

    def deepest(self, maxima: IntArray) -> IntArray:
        """How deep each node is reached, given the largest prefix of each run."""
        deepest = np.full(len(self.first_runs), self.begin, np.int64)
        np.maximum.at(deepest, self.numbers, self.inside(maxima))
        return deepest

    def inside(self, depths: IntArray) -> IntArray:
        """Depths as far as this level goes."""
        return depths if self.end is None else np.minimum(depths, self.end)

    def holds(self, values: IntArray) -> npt.NDArray[np.bool_]:
        """Whether a prefix of so many blocks ends in this level."""
        inside: npt.NDArray[np.bool_] = values > self.begin
        return inside if self.end is None else inside & (values <= self.end)


@dataclass(frozen=True, kw_only=True)
class Tree:
    """The shape of a tree of prefixes: leaves are numbered from the first branch to the last.

    `leaves_below` counts the leaves below one node of each level, `lengths` its tokens (None: as
    deep as the plan needs).
    """

    names: tuple[str, ...]
    leaves_below: tuple[int, ...]
    lengths: tuple[int | None, ...]

    def levels(
        self, leaf: IntArray, cache: IntArray, *, head_len: int, granularity: int
    ) -> tuple[Level, ...]:
        """Levels in blocks, for runs of a leaf in a cache each; the head comes before the first.

        A block on the edge of two levels is different in every node of the lower one.
        """
        ends = [
            None if end is None else (head_len + end) // granularity for end in self.ends_in_tokens
        ]
        begins = [head_len // granularity, *(end for end in ends[:-1] if end is not None)]
        caches = int(cache.max(initial=0)) + 1
        return tuple(
            Level(begin=begin, end=end, node=leaf // below * caches + cache)
            for begin, end, below in zip(begins, ends, self.leaves_below, strict=True)
        )

    @property
    def depth(self) -> int | None:
        """Tokens of a whole path beyond the head; None without end."""
        return self.ends_in_tokens[-1]

    @property
    def ends_in_tokens(self) -> list[int | None]:
        """Where each level ends, counted from the end of the head."""
        known = [length for length in self.lengths if length is not None]
        ends: list[int | None] = list(accumulate(known))
        return ends + [None] * (len(self.lengths) - len(known))


def tree_of(levels: Sequence[TreeLevelConfig]) -> Tree | None:
    """The shape that the configuration asks for; None without levels."""
    if not levels:
        return None
    counts = [level.count for level in levels]
    return Tree(
        names=tuple(level.name for level in levels),
        leaves_below=tuple(prod(counts[depth + 1 :]) for depth in range(len(counts))),
        lengths=tuple(level.length for level in levels),
    )
