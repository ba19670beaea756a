"""The least misses any policy can have: evict what is needed again last (L. A. Belady, 1966).

True when requests are looked up one after the other and hits are the leading run of cached blocks.
A parent is needed no later than its children, so evicting the farthest next use, deeper blocks
first, never breaks a prefix. Of all blocks that one later request is waiting for, those that are
cached are then the head of its path, and a count of them is all there is to keep. Blocks that
nobody needs again are not kept at all.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from heapq import heappop, heappush

from prefixbench.simulator.touches import Touch


class _OptimalCache:
    """Cached blocks, counted by the request that needs them next."""

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._used = 0
        self._waiting_for: defaultdict[int, int] = defaultdict(int)
        self._farthest: list[int] = []

    def serve(self, number: int, next_uses: list[Touch]) -> int:
        hits = self._waiting_for.pop(number, 0)
        self._used -= hits
        for request, blocks in next_uses:
            if request not in self._waiting_for:
                heappush(self._farthest, -request)
            self._waiting_for[request] += blocks
            self._used += blocks
        while self._used > self._capacity:
            self._evict_farthest()
        return hits

    def _evict_farthest(self) -> None:
        request = -self._farthest[0]
        evicted = min(self._waiting_for[request], self._used - self._capacity)
        self._waiting_for[request] -= evicted
        self._used -= evicted
        if not self._waiting_for[request]:
            del self._waiting_for[request]
            heappop(self._farthest)


def optimal_hits(next_uses: Iterable[list[Touch]], capacity_blocks: int) -> list[int]:
    """Hit blocks of every request in a cache that knows the future, as `next_touches` tells it."""
    cache = _OptimalCache(capacity_blocks)
    return [cache.serve(number, uses) for number, uses in enumerate(next_uses)]
