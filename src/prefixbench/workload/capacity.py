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
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.simulator.stack_distance import (
    CapacityCurve,
    ChainRequest,
    LruChains,
    lru_curve,
)
from prefixbench.workload.columns import IntArray, sorted_by

_LookUp = Callable[[LruChains, IntArray, list[ChainRequest]], list[int]]


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

    def hits_each(self, prefixes: IntArray) -> IntArray:
        """Blocks each request finds cached."""
        if self.lag == 1:
            return self._found(prefixes, _served)
        hits: IntArray = np.minimum(prefixes, self.depths(prefixes))
        return hits

    def depths(self, prefixes: IntArray) -> IntArray:
        """Cached depth before each request, in blocks."""
        return self._found(prefixes, self._looked_up)

    def curves(self, prefixes: IntArray) -> list[CapacityCurve]:
        """Hits of each cache's requests, without the head, at every capacity beyond the head.

        One request after the other, whatever the lag.
        """
        chains = [self.chain(places, prefixes[places]) for places in self.stored.by_cache]
        return [lru_curve([*self._warm_ups(chain), *chain]) for chain in chains]

    def _found(self, prefixes: IntArray, look_up: _LookUp) -> IntArray:
        """What a look-up finds for each request, the visible head included."""
        found = np.empty(len(prefixes), np.int64)
        visible_head = min(self.head_blocks, self.capacity_blocks)
        for places in self.stored.by_cache:
            requests = self.chain(places, prefixes[places])
            cache = LruChains(max(self.capacity_blocks - self.head_blocks, 0))
            for warm_up in self._warm_ups(requests):
                cache.serve(warm_up)
            beyond_head = np.array(look_up(cache, places, requests), np.int64)
            opened = self.warmed | (self._horizon(places) >= places[0])
            found[places] = np.where(opened, visible_head + beyond_head, 0)
        return found

    def chain(self, places: IntArray, prefixes: IntArray) -> list[ChainRequest]:
        """The requests at these places without the head, which is not the group's own."""
        shared = prefixes - self.head_blocks
        own = self.stored.blocks[places] - prefixes
        columns = (self.stored.group[places], shared, own)
        return list(map(ChainRequest, *(column.tolist() for column in columns)))

    def _horizon(self, places: IntArray) -> IntArray:
        """The last place each place sees."""
        seen = places - self.lag
        waits = places >= self.waited_for
        horizon: IntArray = np.where(waits, np.maximum(seen, self.waited_for - 1), seen)
        return horizon

    def _looked_up(
        self, cache: LruChains, places: IntArray, requests: list[ChainRequest]
    ) -> list[int]:
        """The cached depth of each request's group when it is looked up."""
        waiting: deque[tuple[int, ChainRequest]] = deque()
        depths = []
        columns = (places.tolist(), self._horizon(places).tolist(), requests)
        for place, horizon, request in zip(*columns, strict=True):
            while waiting and waiting[0][0] <= horizon:
                cache.serve(waiting.popleft()[1])
            depths.append(cache.depth(request.group))
            waiting.append((place, request))
        return depths

    def _warm_ups(self, requests: list[ChainRequest]) -> list[ChainRequest]:
        """Each group's longest prefix, in the order of sending; none from a cold start."""
        if not self.warmed:
            return []
        longest: dict[int, int] = {}
        for place, request in enumerate(requests):
            best = longest.setdefault(request.group, place)
            if request.shared > requests[best].shared:
                longest[request.group] = place
        chosen = [requests[place] for place in sorted(longest.values())]
        return [ChainRequest(request.group, request.shared, 0) for request in chosen]


def _served(cache: LruChains, _: IntArray, requests: list[ChainRequest]) -> list[int]:
    """Blocks each request finds when the ones before it are stored already."""
    return list(map(cache.serve, requests))


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
