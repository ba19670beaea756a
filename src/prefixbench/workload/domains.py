"""Hits of a plan by additions alone: the identity of an unlimited cache.

One request of a domain whose cached depth is C hits min(p, C) and leaves max(p, C), and these two
always sum to p + C. Summed over a domain the depths telescope, so with sequential visibility

    H = sum p  -  sum over domains of max(0, max p - max(w, c))  -  c x (caches that start cold)

in blocks, whatever the order: p planned prefixes, w the depth a warm-up left, c the blocks of the
head that all domains of a cache share. Groups of another model or salt find nothing of each other,
the head included: for them one cache counts as several. Worked example at block size 4, one cold
group, no head: prefixes of 2, 4, 5, 6 blocks hit 0, 2, 4, 5 in ascending and 0, 5, 4, 2 in
descending order, 11 blocks each time, which is 17 - 6.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.workload.columns import IntArray, Workload, sorted_by, starts_of, sums_by
from prefixbench.workload.tree import Level


@dataclass(frozen=True, kw_only=True)
class Runs:
    """Prefixes sorted so that every domain is a run of rows, and what such rows hit together.

    `starts` are the first places of the runs; a cold run computes its largest prefix beyond the
    `head_blocks` once, and `head_loss` blocks of heads are computed once for all. With `levels`
    runs share the nodes of a tree.
    """

    starts: IntArray
    head_blocks: int
    head_loss: int
    cold: bool
    levels: tuple[Level, ...] = ()

    def maxima(self, prefixes: IntArray) -> IntArray:
        """The largest prefix of each run."""
        largest: IntArray = np.maximum.reduceat(prefixes, self.starts)
        return largest

    def losses(self, prefixes: IntArray) -> IntArray:
        """Blocks beyond the head that each run computes; a shared node is its first run's loss."""
        if not self.cold:
            return np.zeros(len(self.starts), np.int64)
        maxima = self.maxima(prefixes)
        if not self.levels:
            return maxima - self.head_blocks
        losses = np.zeros(len(self.starts), np.int64)
        for level in self.levels:
            losses[level.first_runs] += level.deepest(maxima) - level.begin
        return losses

    def hits(self, prefixes: IntArray) -> int:
        return int(prefixes.sum()) - int(self.losses(prefixes).sum()) - self.head_loss

    def gains(self, prefixes: IntArray, places: IntArray, values: IntArray) -> IntArray:
        """What single blocks add, 1 or 0 each, when they are added one after the other.

        Block k raises the prefix at `places[k]` to `values[k]`; it adds nothing where that is a
        new largest prefix of its run, or of its node, which nobody finds.
        """
        if not self.cold:
            return np.ones(len(places), np.int64)
        run = np.searchsorted(self.starts, places, side="right") - 1
        maxima = self.maxima(prefixes)
        if not self.levels:
            return _found(run, values, maxima)
        gained = np.zeros(len(places), np.int64)
        for level in self.levels:
            inside = np.flatnonzero(level.holds(values))
            nodes = level.numbers[run[inside]]
            gained[inside] = _found(nodes, values[inside], level.deepest(maxima))
        return gained


def _found(node: IntArray, values: IntArray, deepest: IntArray) -> IntArray:
    """1 for each value that is not the first so large one of its node, else 0.

    `deepest` is how deep each node was before the first value.
    """
    by_node = np.argsort(node, kind="stable")
    # A running maximum inside each node, over the nodes' values one after the other.
    offset = node * (int(values.max(initial=0)) + 1)
    before = np.maximum.accumulate((values + offset)[by_node])
    seen = np.empty(len(values), np.int64)
    seen[by_node] = np.concatenate(([-1], before))[:-1]
    found: IntArray = (values <= np.maximum(seen - offset, deepest[node])).astype(np.int64)
    return found


@dataclass(frozen=True, kw_only=True)
class Domains:
    """Rows sorted by (group, cache), so that a domain is a run of rows and a group a run of runs.

    `by_domain` sorts rows of generation order; `starts` are the first places of the runs; `group`,
    `cache` and `sharing` have an entry a domain. Domains of one number in `sharing` share a cache
    and its head: they have one model and salt. `warmed` says that every domain was warmed to its
    longest planned prefix. Rows of later turns belong to no domain: they find their own history.
    """

    by_domain: IntArray
    starts: IntArray
    group: IntArray
    cache: IntArray
    sharing: IntArray
    head_blocks: int
    warmed: bool
    levels: tuple[Level, ...] = ()

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
            levels=self.levels,
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

    def warmed_depths(self, prefix_blocks: IntArray) -> IntArray:
        """How deep a warm-up to the largest prefixes leaves each domain, in blocks.

        Nodes of a tree may be deeper than the domain's own prefixes, by others that share them.
        """
        maxima = self.maxima(prefix_blocks)
        depths = maxima.astype(np.int64)
        for level in self.levels[:-1]:
            reached = np.zeros(len(level.first_runs), np.int64)
            np.maximum.at(reached, level.numbers, level.inside(maxima))
            np.maximum(depths, reached[level.numbers], out=depths)
        return depths

    def cold_losses(self, prefix_blocks: IntArray) -> IntArray:
        """Blocks each domain computes the first time, beyond the head."""
        return self.runs.losses(prefix_blocks[self.by_domain])

    @cached_property
    def cold_heads(self) -> int:
        """How often cold caches compute the head: once for every model and salt they serve."""
        return 0 if self.warmed else len(np.unique(self.sharing))

    @property
    def head_loss(self) -> int:
        """Blocks of heads that cold caches compute."""
        return self.head_blocks * self.cold_heads

    def hits(self, prefix_blocks: IntArray) -> int:
        """Blocks found cached in the whole run."""
        return self.runs.hits(prefix_blocks[self.by_domain])

    def hits_by_group(self, prefix_blocks: IntArray, openers: IntArray, groups: int) -> IntArray:
        """Blocks each group finds cached; a group that computes a cold cache's head pays for it.

        `openers` are the groups that do.
        """
        prefixes = prefix_blocks[self.by_domain]
        planned = np.add.reduceat(prefixes, self.starts, dtype=np.int64)
        hits = sums_by(self.group, planned - self.cold_losses(prefix_blocks), groups)
        opened: IntArray = np.bincount(openers, minlength=groups)
        return hits - self.head_blocks * opened

    def openers(self, order: IntArray) -> IntArray:
        """The groups that compute the heads of cold caches in the given order: whoever is first."""
        if self.warmed:
            return np.zeros(0, np.int64)
        sent = self.index[order[order < len(self.by_domain)]]
        _, first = np.unique(self.sharing[sent], return_index=True)
        return self.group[sent[first]]


def build_domains(
    workload: Workload,
    cache: IntArray,
    *,
    namespaces: IntArray,
    head_blocks: int,
    warmed: bool,
    levels_of: Callable[[IntArray, IntArray], tuple[Level, ...]] | None = None,
) -> Domains:
    """Collect the (group, cache) pairs that requests really use; `cache` has a number a row.

    `namespaces` has a number for the model and salt of each group; `levels_of` gives the levels
    of a tree for the group and the cache of each domain.
    """
    groups, caches = len(workload.group_ids), int(cache.max(initial=0)) + 1
    if caches == 1:
        by_domain, sizes = workload.by_group, workload.group_sizes
    else:
        pair = workload.group * caches + cache
        by_domain = sorted_by(pair, groups * caches)
        sizes = np.bincount(pair, minlength=groups * caches)
    pairs = np.flatnonzero(sizes)
    group, cache_of = pairs // caches, pairs % caches
    return Domains(
        by_domain=by_domain,
        starts=starts_of(sizes)[pairs],
        group=group,
        cache=cache_of,
        sharing=cache_of * (int(namespaces.max(initial=0)) + 1) + namespaces[group],
        head_blocks=head_blocks,
        warmed=warmed,
        levels=levels_of(group, cache_of) if levels_of else (),
    )
