"""Hits of a plan by additions alone: the identity of an unlimited cache.

One request of a domain whose cached depth is C hits min(p, C) and leaves max(p, C), and these two
always sum to p + C. Summed over a domain the depths telescope, so with sequential visibility

    H = sum p  -  sum over domains of max(0, max p - max(w, c))  -  c x (caches that start cold)

in blocks, whatever the order: p planned prefixes, w the depth a warm-up left, c the blocks of the
head that all domains of a cache share. Worked example at block size 4, one cold group, no head:
prefixes of 2, 4, 5, 6 blocks hit 0, 2, 4, 5 in ascending and 0, 5, 4, 2 in descending order, 11
blocks each time, which is 17 - 6.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.workload.columns import IntArray, Workload, sums_by
from prefixbench.workload.routing import Routes


@dataclass(frozen=True, kw_only=True)
class Domains:
    """Rows sorted by (cache, group), so that a domain is a run of rows.

    `by_domain` sorts rows of generation order; `starts` are the first places of the runs;
    `warmed` says that every domain was warmed to its longest planned prefix.
    """

    index: IntArray
    by_domain: IntArray
    starts: IntArray
    group: IntArray
    cache: IntArray
    cold_caches: int
    head_blocks: int
    warmed: bool

    @cached_property
    def count(self) -> int:
        return len(self.starts)

    def maxima(self, prefix_blocks: IntArray) -> IntArray:
        """The largest prefix of each domain, in blocks."""
        return np.maximum.reduceat(prefix_blocks[self.by_domain], self.starts)

    def cold_losses(self, prefix_blocks: IntArray) -> IntArray:
        """Blocks each domain computes the first time, beyond the head."""
        if self.warmed:
            return np.zeros(self.count, np.int64)
        return self.maxima(prefix_blocks) - self.head_blocks

    @property
    def head_loss(self) -> int:
        """Blocks of the head that cold caches compute once each."""
        return self.head_blocks * self.cold_caches

    def hits(self, prefix_blocks: IntArray) -> int:
        """Blocks found cached in the whole run."""
        lost = int(self.cold_losses(prefix_blocks).sum()) + self.head_loss
        return int(prefix_blocks.sum()) - lost

    def hits_by_group(self, prefix_blocks: IntArray, openers: IntArray, groups: int) -> IntArray:
        """Blocks each group finds cached; a group that opens a cold cache pays for its head.

        `openers` holds the group of the first request of each cold cache.
        """
        planned = sums_by(self.group[self.index], prefix_blocks, groups)
        lost = sums_by(self.group, self.cold_losses(prefix_blocks), groups)
        opened = np.bincount(openers, minlength=groups)
        return planned - lost - self.head_blocks * opened

    def openers(self, order: IntArray) -> IntArray:
        """The group that each cold cache serves first, in the given order."""
        if self.warmed:
            return np.zeros(0, np.int64)
        sent = self.index[order]
        _, first = np.unique(self.cache[sent], return_index=True)
        return self.group[sent[first]]


def build_domains(workload: Workload, routes: Routes, *, head_blocks: int, warmed: bool) -> Domains:
    """Collect the (cache, group) pairs that requests really use."""
    pair = routes.cache * len(workload.group_ids) + workload.group
    by_domain = np.argsort(pair, kind="stable")
    starts = np.flatnonzero(np.diff(pair[by_domain], prepend=-1))
    index = np.empty(len(pair), np.int64)
    index[by_domain] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(pair)))
    first = by_domain[starts]
    return Domains(
        index=index,
        by_domain=by_domain,
        starts=starts,
        group=workload.group[first],
        cache=routes.cache[first],
        cold_caches=0 if warmed else len(np.unique(routes.cache)),
        head_blocks=head_blocks,
        warmed=warmed,
    )
