"""Depth each request finds when it sees only requests at least W places earlier.

W = 1 is sequential sending; a larger W stands for W requests in flight. A segmented running
maximum over the order gives all depths at once; it shares nothing with the arithmetic of
`domains`, and its total must equal it at W = 1. Unlimited cache, whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixbench.workload.columns import IntArray
from prefixbench.workload.domains import Domains
from prefixbench.workload.order import positions

#: The concurrencies every validation report states.
REPORTED_LAGS = (1, 16, 64, 256)


@dataclass(frozen=True, kw_only=True)
class Depths:
    """Cached depth before each request and what it hits, in blocks, rows in generation order."""

    before: IntArray
    hits: IntArray
    after: IntArray


class LagModel:
    """All depths of one plan in one order, for any lag."""

    def __init__(self, domains: Domains, order: IntArray, prefix_blocks: IntArray) -> None:
        self._domains = domains
        self._prefix = prefix_blocks
        self._position = positions(order)
        self._count = len(order)
        # Rows by (domain, place in the order): a domain's requests as it sees them.
        self._rows = np.lexsort((self._position, domains.index))
        self._key = domains.index[self._rows] * self._count + self._position[self._rows]
        stacked = domains.index[self._rows] * _span(prefix_blocks)
        self._deepest = np.maximum.accumulate(prefix_blocks[self._rows] + stacked) - stacked
        self._cache_opened = self._first_place_of_cache()

    def depths(self, lag: int = 1) -> Depths:
        """Depths when a request sees the requests at places up to its own minus `lag`."""
        if self._domains.warmed:
            before = self._domains.maxima(self._prefix)[self._domains.index]
        else:
            before = np.maximum(self._own_depth(lag), self._head_depth(lag))
        return Depths(
            before=before,
            hits=np.minimum(self._prefix, before),
            after=np.maximum(self._prefix, before),
        )

    def hits(self, lag: int = 1) -> int:
        return int(self.depths(lag).hits.sum())

    def largest_lag_keeping(self, hits: int) -> int:
        """The largest lag, at most n, at which no fewer than `hits` blocks hit.

        Hits never grow with the lag, so a bisection finds it.
        """
        low, high = 1, self._count
        while low < high:
            middle = (low + high + 1) // 2
            if self.hits(middle) >= hits:
                low = middle
            else:
                high = middle - 1
        return low

    def _own_depth(self, lag: int) -> IntArray:
        domain = self._domains.index
        seen = (
            np.searchsorted(self._key, domain * self._count + self._position - lag, side="right")
            - 1
        )
        some = seen >= self._domains.starts[domain]
        return np.where(some, self._deepest[np.maximum(seen, 0)], 0)

    def _head_depth(self, lag: int) -> IntArray:
        opened = self._cache_opened[self._domains.index]
        return np.where(opened <= self._position - lag, self._domains.head_blocks, 0)

    def _first_place_of_cache(self) -> IntArray:
        cache = self._domains.cache
        first = np.full(int(cache.max()) + 1, self._count, np.int64)
        np.minimum.at(first, cache, self._key[self._domains.starts] % self._count)
        return first[cache]


def _span(prefix_blocks: IntArray) -> int:
    return int(prefix_blocks.max(initial=0)) + 1
