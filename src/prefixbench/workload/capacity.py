"""What a plan hits in LRU caches of a stated size, and what it would hit in any size.

One request of a cache after the other: the whole look-up happens before anything is stored, then
the request's blocks are the most recent ones, its head more recent than its tail. A request is its
full blocks, answer included: the planned prefix is its group's, nobody asks for the rest again.
With W requests in flight a request is stored only before the W-th one behind it is looked up.

The head that all groups share is touched by every request, so its c blocks are always the most
recent ones: they take c blocks off the capacity and are found by all but the first.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice

import numpy as np

from prefixbench.core.progress import advanced
from prefixbench.simulator.compiled import (
    ChainColumns,
    compiled_depths,
    is_worth_compiling,
    lacks_compiler,
)
from prefixbench.simulator.stack_distance import (
    CapacityCurve,
    ChainRequest,
    lru_curve,
    lru_depths,
)
from prefixbench.workload.columns import IntArray, sorted_by

#: Walks that a plan takes, about.
_WALKS = 6
#: Plans whose depths are kept.
_REMEMBERED = 4
#: Requests walked between two words on how far it is.
_TOLD_EVERY = 4096


@dataclass(frozen=True, kw_only=True)
class Stored:
    """Requests in sending order: their group, their cache, and the full blocks they store."""

    group: IntArray
    cache: IntArray
    blocks: IntArray

    @cached_property
    def by_cache(self) -> list[IntArray]:
        """The places of each cache's requests, ascending."""
        count = int(self.cache.max(initial=0)) + 1
        sizes = np.bincount(self.cache, minlength=count)
        places = np.split(sorted_by(self.cache, count), np.cumsum(sizes)[:-1])
        return [own for own in places if len(own)]


def stored_blocks(input_len: IntArray, output_len: IntArray, granularity: int) -> IntArray:
    """Full blocks of prompts and answers; nothing of an answer's last token is stored."""
    blocks: IntArray = (input_len + np.maximum(output_len, 1) - 1) // granularity
    return blocks


@dataclass(frozen=True, kw_only=True)
class LruCaches:
    """LRU caches of `capacity_blocks` each; prefixes are in sending order.

    A request sees those at least `lag` places earlier, and after a barrier the `waited_for` first
    ones. `warmed`: each group's longest prefix was stored once beforehand.
    """

    stored: Stored
    capacity_blocks: int
    head_blocks: int
    warmed: bool
    lag: int = 1
    waited_for: int = 0
    _walked: dict[bytes, IntArray] = field(default_factory=dict, init=False, repr=False)

    def hits_each(self, prefixes: IntArray) -> IntArray:
        """Blocks each request finds cached."""
        hits: IntArray = np.minimum(prefixes, self.depths(prefixes))
        return hits

    def depths(self, prefixes: IntArray) -> IntArray:
        """Cached depth before each request, in blocks, the visible head included."""
        # A search, its range and its report ask for the same few plans again and again.
        plan = blake2b(prefixes.astype(np.int64).tobytes()).digest()
        if plan not in self._walked:
            while len(self._walked) >= _REMEMBERED:
                self._walked.pop(next(iter(self._walked)))
            self._walked[plan] = self._depths(prefixes)
        return self._walked[plan]

    def _depths(self, prefixes: IntArray) -> IntArray:
        depths = np.empty(len(prefixes), np.int64)
        visible_head = min(self.head_blocks, self.capacity_blocks)
        beyond_head = max(self.capacity_blocks - self.head_blocks, 0)
        for places in self.stored.by_cache:
            chain = self._chain(places, prefixes[places])
            warm_ups = self._warm_ups(chain)
            horizon = self._horizon(places)
            stored = len(warm_ups.group) + np.searchsorted(places, horizon, side="right")
            stored_before = np.concatenate((np.arange(len(warm_ups.group)), stored))
            found = _walk(_joined(warm_ups, chain), stored_before, beyond_head)
            opened = self.warmed | (horizon >= places[0])
            own = found[len(warm_ups.group) :]
            depths[places] = np.where(opened, visible_head + own, 0)
        return depths

    def curves(self, prefixes: IntArray) -> list[CapacityCurve]:
        """Hits of each cache's requests, without the head, at every capacity beyond the head.

        One request after the other, whatever the lag.
        """
        chains = (self._chain(places, prefixes[places]) for places in self.stored.by_cache)
        return [lru_curve(_requests(_joined(self._warm_ups(chain), chain))) for chain in chains]

    def _chain(self, places: IntArray, prefixes: IntArray) -> ChainColumns:
        """The requests at these places without the head, which is not the group's own."""
        shared, own = prefixes - self.head_blocks, self.stored.blocks[places] - prefixes
        columns = (self.stored.group[places], shared, own)
        return ChainColumns(*(column.astype(np.int64) for column in columns))

    def _horizon(self, places: IntArray) -> IntArray:
        """The last place each place sees."""
        seen = places - self.lag
        waits = places >= self.waited_for
        horizon: IntArray = np.where(waits, np.maximum(seen, self.waited_for - 1), seen)
        return horizon

    def _warm_ups(self, chain: ChainColumns) -> ChainColumns:
        """Each group's longest prefix, in the order of sending; none from a cold start."""
        group, shared = chain.group, chain.shared
        longest = np.zeros(int(group.max(initial=0)) + 1, np.int64)
        np.maximum.at(longest, group, shared)
        candidates = np.flatnonzero(shared == longest[group])
        _, first = np.unique(group[candidates], return_index=True)
        rows = np.sort(candidates[first]) if self.warmed else candidates[:0]
        return ChainColumns(group=group[rows], shared=shared[rows], own=0 * shared[rows])


def is_slow_to_plan(requests: int) -> bool:
    """Whether plans of so many requests would walk their caches faster with the `fast` extra."""
    return lacks_compiler(_WALKS * requests)


def _walk(chain: ChainColumns, stored_before: IntArray, capacity_blocks: int) -> IntArray:
    """The cached depth of each request's group when it is looked up."""
    if is_worth_compiling(_WALKS * len(stored_before)):
        depths: IntArray = compiled_depths(chain, stored_before, capacity_blocks)
        return depths
    walk = lru_depths(_requests(chain), stored_before.tolist(), capacity_blocks)
    found: list[int] = []
    advanced("simulating_caches", 0, len(stored_before))
    while len(found) < len(stored_before):
        found += islice(walk, _TOLD_EVERY)
        advanced("simulating_caches", len(found), len(stored_before))
    return np.array(found, np.int64)


def _joined(first: ChainColumns, second: ChainColumns) -> ChainColumns:
    return ChainColumns(*map(np.concatenate, zip(first, second, strict=True)))


def _requests(chain: ChainColumns) -> list[ChainRequest]:
    return list(map(ChainRequest, *(column.tolist() for column in chain)))


@dataclass(frozen=True, kw_only=True)
class HitsByCapacity:
    """Hits of a plan at any capacity of each cache, in steps of hits, head included."""

    curves: list[CapacityCurve]
    head_blocks: int
    head_finders: int

    @property
    def lossless(self) -> int:
        """The least capacity from which nothing more is lost."""
        beyond_head = max(curve.corners[-1] for curve in self.curves)
        found_head = self.head_blocks if self.head_finders else 0
        return self.head_blocks + beyond_head if beyond_head else found_head

    def hits(self, capacity: int) -> int:
        """Blocks found at this capacity."""
        beyond_head = max(capacity - self.head_blocks, 0)
        found = sum(curve.tally(beyond_head).hits for curve in self.curves)
        return found + min(capacity, self.head_blocks) * self.head_finders

    def capacities(self, count: int) -> list[int]:
        """At most `count` capacities up to the lossless one, their hits about evenly apart."""
        last = self.lossless
        everything = range(last + 1)
        levels = (self.hits(last) * step // (count - 1) for step in range(1, count - 1))
        return sorted(
            {0, last, *(bisect_left(everything, level, key=self.hits) for level in levels)}
        )
