"""How the hits of prefixes are counted before there is a plan, and the range they lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.workload.capacity import LruCaches
from prefixbench.workload.columns import Geometry, IntArray, Workload, sums_by
from prefixbench.workload.counting import Counting, InOrder, Unlimited
from prefixbench.workload.given import Given, Heads
from prefixbench.workload.lag import Visibility
from prefixbench.workload.order import positions
from prefixbench.workload.requests import draw_workload
from prefixbench.workload.targets import resolve_targets

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the tokenizer and the template add to every prompt, in tokens."""

    head_len: int = 0
    tail_len: int = 0
    shortest: int = 1


@dataclass(frozen=True, kw_only=True)
class Range:
    """Least and most hits that plans of the run have, in blocks."""

    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class GroupRange:
    """As `Range`, for each group."""

    least: IntArray
    most: IntArray


@dataclass(frozen=True, kw_only=True)
class Setting(Given):
    """What is given, and what prefixes would hit: how the target counts, and its range."""

    @cached_property
    def visibility(self) -> Visibility:
        """What each request sees at the planned concurrency; rows as in `sending.rows`."""
        return self.sending.visibility(self.config.planning.concurrency)

    @cached_property
    def counting(self) -> Counting:
        """How the target counts hits: what is shared, or what the headline run finds."""
        return self._unlimited(cold=False) if self.counts_prefixes else self.headline

    @cached_property
    def headline(self) -> Unlimited | InOrder:
        """How the headline run finds hits, at the planned concurrency."""
        unlimited = self._unlimited(cold=not self.domains.warmed)
        if self.keeps_all:
            return unlimited
        if self.lru is not None:
            in_sending_order = positions(self.order)[unlimited.rows]
            return InOrder(
                rows=self.order,
                place=np.arange(len(self.order)),
                hits_each=self.lru.hits_each,
                most_hits=lambda prefixes: unlimited.hits(prefixes[in_sending_order]),
            )
        return InOrder(
            rows=self.sending.rows,
            place=self.visibility.place,
            hits_each=self.visibility.hits_each,
        )

    def _unlimited(self, *, cold: bool) -> Unlimited:
        runs = replace(self.domains.runs, cold=cold, head_loss=self.domains.head_loss * cold)
        return Unlimited(rows=self.domains.by_domain, runs=runs)

    def counting_by_group(self) -> Iterator[tuple[int, slice, Counting]]:
        """Each group that has requests: its number, its rows of `counting`, how it counts alone.

        Groups share nothing but the head, which the openers of cold caches compute for all.
        """
        whole = self.counting
        opened = np.bincount(self.openers, minlength=len(self.workload.group_ids))
        for group, rows, starts in self.domains.groups():
            own = whole.rows[rows]
            if isinstance(whole, Unlimited):
                lost = self.geometry.head_blocks * int(opened[group]) if whole.runs.cold else 0
                runs = replace(whole.runs, starts=starts, head_loss=lost)
                yield group, rows, Unlimited(rows=own, runs=runs)
            else:
                seen = self.visibility.part(rows)
                yield group, rows, InOrder(rows=own, place=seen.place, hits_each=seen.hits_each)

    @cached_property
    def lru(self) -> LruCaches | None:
        """The caches of limited size, in sending order; None without limit."""
        return None if self.capacity_blocks is None else self.caches_of(self.capacity_blocks)

    def caches_of(self, capacity_blocks: int) -> LruCaches:
        """The planned caches with so many blocks each."""
        return LruCaches(
            stored=self.stored,
            capacity_blocks=capacity_blocks,
            # A head of one's own is a part of one's prefix.
            head_blocks=0 if self.heads is Heads.OWN else self.geometry.head_blocks,
            warmed=self.domains.warmed,
            lag=self.config.planning.concurrency,
            waited_for=self.waited_for,
        )

    @cached_property
    def range(self) -> Range:
        return Range(
            least=self.counted_hits(self.least_prefixes),
            most=self.counted_hits(self.most_prefixes),
        )

    @cached_property
    def group_range(self) -> GroupRange:
        return GroupRange(
            least=self.counted_hits_by_group(self.least_prefixes),
            most=self.counted_hits_by_group(self.most_prefixes),
        )

    @property
    def reachable(self) -> bool:
        """Whether the target, and each group's, rounds to hits that some plan has."""
        if self.targets.by_group is None:
            return self.range.least <= self.targets.total <= self.range.most
        wanted = np.array(self.targets.by_group)
        inside = (self.group_range.least <= wanted) & (wanted <= self.group_range.most)
        return bool(inside.all())

    @property
    def history_hits(self) -> int:
        """Blocks that later turns find of their histories."""
        return int(self.history_blocks.sum())

    @cached_property
    def history_hits_by_group(self) -> IntArray:
        later = self.workload.group[self.workload.first_turn_count :]
        return sums_by(later, self.history_blocks, len(self.workload.group_ids))

    def run_hits(self, prefix_blocks: IntArray) -> int:
        """Blocks found cached in the headline run."""
        return self.headline.hits(prefix_blocks[self.headline.rows]) + self.history_hits

    def run_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        """As `run_hits`, for each group."""
        return self._first_hits_by_group(prefix_blocks) + self.history_hits_by_group

    def _first_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        groups, counting = len(self.workload.group_ids), self.headline
        if isinstance(counting, InOrder):
            rows, hits = counting.rows, counting.hits_each(prefix_blocks[counting.rows])
        elif self.tree is not None and not self.domains.warmed:
            # Who computes a shared node is a matter of the order.
            rows = self.sending.rows
            hits = self.visibility.hits_each(prefix_blocks[rows])
        else:
            return self.domains.hits_by_group(prefix_blocks, self.openers, groups)
        return sums_by(self.workload.group[rows], hits, groups)

    def counted_hits(self, prefix_blocks: IntArray) -> int:
        """What the target counts, in blocks."""
        return self.counting.hits(prefix_blocks[self.counting.rows]) + self.history_hits

    def counted_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        """As `counted_hits`, for each group."""
        if self.counts_prefixes:
            return sums_by(self.workload.group, prefix_blocks, len(self.workload.group_ids))
        return self.run_hits_by_group(prefix_blocks)


def set_up(
    config: PrefixCacheDatasetConfig, block_size: int, frame: Frame | None = None
) -> Setting:
    """Draw the requests; raises LengthError for one that cannot exist."""
    frame = frame or Frame()
    return settle(
        config, draw_workload(config, frame.shortest), geometry_of(config, block_size, frame)
    )


def settle(config: PrefixCacheDatasetConfig, workload: Workload, geometry: Geometry) -> Setting:
    """The setting of requests that are there already."""
    return Setting(
        config=config,
        workload=workload,
        geometry=geometry,
        targets=resolve_targets(config.target, workload, geometry.granularity),
    )


def geometry_of(config: PrefixCacheDatasetConfig, block_size: int, frame: Frame) -> Geometry:
    unshared = config.prefix.minimum_non_shared_length
    return Geometry(
        block_size=block_size,
        granularity=config.hit_granularity or block_size,
        minimum_non_shared_len=block_size if unshared is None else unshared,
        head_len=frame.head_len,
        tail_len=frame.tail_len,
    )
