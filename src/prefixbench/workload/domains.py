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

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.workload.columns import IntArray, Workload, sorted_by, starts_of, sums_by


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Prefixes sorted so that every domain is a run of rows, and what such rows hit together.

    `starts` are the first places of the runs; a cold run computes its largest prefix beyond the
    `head_blocks` once, and `head_loss` blocks of heads are computed once for all.
    """

    starts: IntArray
    head_blocks: int
    head_loss: int
    cold: bool

    def maxima(self, prefixes: IntArray) -> IntArray:
        """The largest prefix of each run."""
        largest: IntArray = np.maximum.reduceat(prefixes, self.starts)
        return largest

    def hits(self, prefixes: IntArray) -> int:
        lost = int((self.maxima(prefixes) - self.head_blocks).sum()) if self.cold else 0
        return int(prefixes.sum()) - lost - self.head_loss

    def gains(self, prefixes: IntArray, places: IntArray, values: IntArray) -> IntArray:
        """What single blocks add, 1 or 0 each, when they are added one after the other.

        Block k raises the prefix at `places[k]` to `values[k]`; it adds nothing where that is a
        new largest prefix of its run, which nobody finds.
        """
        if not self.cold:
            return np.ones(len(places), np.int64)
        run = np.searchsorted(self.starts, places, side="right") - 1
        largest = self.maxima(prefixes)[run]
        # A running maximum inside each run, over the runs' blocks one after the other.
        by_run = np.argsort(run, kind="stable")
        offset = run * (int(values.max(initial=0)) + 1)
        before = np.maximum.accumulate((values + offset)[by_run])
        seen = np.empty(len(places), np.int64)
        seen[by_run] = np.concatenate(([-1], before[:-1]))
        gained: IntArray = (values <= np.maximum(seen - offset, largest)).astype(np.int64)
        return gained


@dataclass(frozen=True, kw_only=True)
class Domains:
    """Rows sorted by (group, cache), so that a domain is a run of rows and a group a run of runs.

    `by_domain` sorts rows of generation order; `starts` are the first places of the runs; `group`
    and `cache` have an entry a domain. `warmed` says that every domain was warmed to its longest
    planned prefix.
    """

    by_domain: IntArray
    starts: IntArray
    group: IntArray
    cache: IntArray
    cold_caches: int
    head_blocks: int
    warmed: bool

    @property
    def count(self) -> int:
        return len(self.starts)

    @cached_property
    def sizes(self) -> IntArray:
        return np.diff(self.starts, append=len(self.by_domain))

    @cached_property
    def index(self) -> IntArray:
        """The domain of each row of generation order."""
        index = np.empty(len(self.by_domain), np.int64)
        index[self.by_domain] = np.repeat(np.arange(self.count), self.sizes)
        return index

    @cached_property
    def runs(self) -> Runs:
        return Runs(
            starts=self.starts,
            head_blocks=self.head_blocks,
            head_loss=self.head_loss,
            cold=not self.warmed,
        )

    def groups(self) -> Iterator[tuple[int, slice, IntArray]]:
        """Each group that has requests: its number, its place in `by_domain`, its runs there."""
        first = np.flatnonzero(np.diff(self.group, prepend=-1)).tolist()
        ends = [*self.starts[first[1:]].tolist(), len(self.by_domain)]
        for begin, stop, end in zip(first, [*first[1:], self.count], ends, strict=True):
            start = int(self.starts[begin])
            yield int(self.group[begin]), slice(start, end), self.starts[begin:stop] - start

    def maxima(self, prefix_blocks: IntArray) -> IntArray:
        """The largest prefix of each domain, in blocks."""
        return self.runs.maxima(prefix_blocks[self.by_domain])

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
        return self.runs.hits(prefix_blocks[self.by_domain])

    def hits_by_group(self, prefix_blocks: IntArray, openers: IntArray, groups: int) -> IntArray:
        """Blocks each group finds cached; a group that opens a cold cache pays for its head.

        `openers` holds the group of the first request of each cold cache.
        """
        prefixes = prefix_blocks[self.by_domain]
        planned = np.add.reduceat(prefixes, self.starts, dtype=np.int64)
        hits = sums_by(self.group, planned - self.cold_losses(prefix_blocks), groups)
        opened: IntArray = np.bincount(openers, minlength=groups)
        return hits - self.head_blocks * opened

    def openers(self, order: IntArray) -> IntArray:
        """The group that each cold cache serves first, in the given order."""
        if self.warmed:
            return np.zeros(0, np.int64)
        sent = self.index[order]
        _, first = np.unique(self.cache[sent], return_index=True)
        return self.group[sent[first]]


def build_domains(
    workload: Workload, cache: IntArray, *, head_blocks: int, warmed: bool
) -> Domains:
    """Collect the (group, cache) pairs that requests really use; `cache` has a number a row."""
    groups, caches = len(workload.group_ids), int(cache.max(initial=0)) + 1
    if caches == 1:
        by_domain, sizes = workload.by_group, workload.group_sizes
    else:
        pair = workload.group * caches + cache
        by_domain = sorted_by(pair, groups * caches)
        sizes = np.bincount(pair, minlength=groups * caches)
    pairs = np.flatnonzero(sizes)
    used = np.unique(pairs % caches)
    return Domains(
        by_domain=by_domain,
        starts=starts_of(sizes)[pairs],
        group=pairs // caches,
        cache=pairs % caches,
        cold_caches=0 if warmed else len(used),
        head_blocks=head_blocks,
        warmed=warmed,
    )
