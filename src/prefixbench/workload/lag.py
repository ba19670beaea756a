"""Depth each request finds when it sees only requests at least W places earlier.

W = 1 is sequential sending; a larger W stands for W requests in flight. After a barrier (leaders
sent and finished before all others) everybody sees the leaders whatever the lag. A segmented
running maximum over the order gives all depths at once; it shares nothing with the arithmetic of
`domains`, and its total must equal it at W = 1. Unlimited cache, whole blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.workload.columns import IntArray
from prefixbench.workload.domains import Domains
from prefixbench.workload.order import positions

#: The concurrencies every validation report states.
REPORTED_LAGS = (1, 16, 64, 256)


@dataclass(frozen=True)
class Depths:
    """Cached depth before each request and what it hits, in blocks, rows in generation order.

    Columns of 32 bits, since a plan keeps them as long as it lives.
    """

    before: IntArray
    hits: IntArray
    after: IntArray


def depths_of(prefix_blocks: IntArray, before: IntArray) -> Depths:
    """What prefixes hit and leave, given what is cached before each."""
    columns = before, np.minimum(prefix_blocks, before), np.maximum(prefix_blocks, before)
    return Depths(*(column.astype(np.int32) for column in columns))


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Rows sorted by the node they share and, inside it, by place.

    `latest` is the latest visible row of the same node, -1 for none.
    """

    node: IntArray
    latest: IntArray

    def depths(self, prefixes: IntArray) -> IntArray:
        """The deepest prefix among the visible rows of each row's node; 0 for none."""
        stacked = self.node * (int(prefixes.max(initial=0)) + 1)
        deepest = np.maximum.accumulate(prefixes + stacked) - stacked
        return np.where(self.latest >= 0, deepest[self.latest], 0)


@dataclass(frozen=True, kw_only=True)
class SharedLevel:
    """A level of a tree above the leaves: its nodes reach down to `end` blocks.

    `rows` sorts the rows of a visibility into those of `nodes`.
    """

    rows: IntArray
    nodes: Nodes
    end: int


@dataclass(frozen=True, kw_only=True)
class Visibility:
    """What each row sees; rows sorted by domain and, inside it, by their place in the order.

    `head` are the blocks of the shared head that are visible.
    """

    domains: Nodes
    place: IntArray
    head: IntArray
    shared: tuple[SharedLevel, ...] = ()

    def depths(self, prefixes: IntArray) -> IntArray:
        """Cached depth before each row, in blocks."""
        depths = np.maximum(self.domains.depths(prefixes), self.head)
        for level in self.shared:
            found = np.minimum(level.nodes.depths(prefixes[level.rows]), level.end)
            depths[level.rows] = np.maximum(depths[level.rows], found)
        return depths

    def hits_each(self, prefixes: IntArray) -> IntArray:
        """Blocks each row finds cached."""
        hits: IntArray = np.minimum(prefixes, self.depths(prefixes))
        return hits

    def part(self, rows: slice) -> Visibility:
        """Whole domains that share nothing with others but the head, which stays as it is."""
        latest = self.domains.latest[rows]
        own = np.where(latest < 0, latest, latest - rows.start)
        return Visibility(
            domains=Nodes(node=self.domains.node[rows], latest=own),
            place=self.place[rows],
            head=self.head[rows],
        )


class Sending:
    """First turns of all domains in one order; asks what they see at any lag.

    `waited_for` counts the leaders at the front that have finished before anything else is sent.
    """

    def __init__(self, domains: Domains, order: IntArray, waited_for: int = 0) -> None:
        self._domains = domains
        self._waited_for = waited_for
        self._count = len(order)
        place = positions(order)[: len(domains.index)]
        #: Rows of generation order, by domain and place.
        self.rows = np.lexsort((place, domains.index))
        self._place = place[self.rows]
        self._domain = np.repeat(np.arange(domains.count), domains.sizes)

    def visibility(self, lag: int) -> Visibility:
        horizon = self._place - lag
        behind_barrier = self._place >= self._waited_for
        horizon = np.where(behind_barrier, np.maximum(horizon, self._waited_for - 1), horizon)
        return Visibility(
            domains=self._nodes(self._domain, self._place, horizon),
            place=self._place,
            head=self._visible_head(horizon),
            shared=tuple(
                self._shared(level.numbers[self._domain], level.end, horizon)
                for level in self._domains.levels[:-1]
                if level.end is not None
            ),
        )

    def _shared(self, node: IntArray, end: int, horizon: IntArray) -> SharedLevel:
        rows = np.lexsort((self._place, node))
        nodes = self._nodes(node[rows], self._place[rows], horizon[rows])
        return SharedLevel(rows=rows, nodes=nodes, end=end)

    def _nodes(self, node: IntArray, place: IntArray, horizon: IntArray) -> Nodes:
        """For rows sorted by node and place, the last row of each one's node up to its horizon."""
        key = node * self._count + place
        latest = np.searchsorted(key, node * self._count + horizon, side="right") - 1
        same_node = node[np.maximum(latest, 0)] == node
        return Nodes(node=node, latest=np.where(same_node & (latest >= 0), latest, -1))

    def _visible_head(self, horizon: IntArray) -> IntArray:
        head_blocks = self._domains.head_blocks
        if not head_blocks:
            return np.broadcast_to(np.int64(0), len(horizon))
        return np.where(self._opened <= horizon, head_blocks, 0)

    @cached_property
    def _opened(self) -> IntArray:
        """For each row the first place of those that share the head with it."""
        sharing = self._domains.sharing
        first = np.full(int(sharing.max()) + 1, self._count, np.int64)
        np.minimum.at(first, sharing, self._place[self._domains.starts])
        return first[sharing][self._domain]


class LagModel:
    """All depths of one plan in one order, for any lag."""

    def __init__(
        self, domains: Domains, order: IntArray, prefix_blocks: IntArray, waited_for: int = 0
    ) -> None:
        self._domains = domains
        self._prefix = prefix_blocks
        self._count = len(order)
        self._sending = Sending(domains, order, waited_for)
        self._hits: dict[int, int] = {}

    def depths(self, lag: int = 1) -> Depths:
        """Depths when a request sees the requests at places up to its own minus `lag`."""
        before = self._prefix.astype(np.int64)  # later turns find what they plan: their history
        rows = self._sending.rows
        if self._domains.warmed:
            before[: len(rows)] = self._domains.warmed_depths(self._prefix)[self._domains.index]
        else:
            before[rows] = self._sending.visibility(lag).depths(self._prefix[rows])
        return depths_of(self._prefix, before)

    def hits(self, lag: int = 1) -> int:
        if lag not in self._hits:
            self._hits[lag] = int(self.depths(lag).hits.sum())
        return self._hits[lag]

    def largest_lag_keeping(self, hits: int) -> int:
        """The largest lag, at most n, at which no fewer than `hits` blocks hit.

        Hits never grow with the lag, so doubling and then a bisection find it; most plans lose
        hits at small lags already.
        """
        low, high = 1, 2
        while high <= self._count and self.hits(high) >= hits:
            low, high = high, 2 * high
        high = min(high - 1, self._count)
        while low < high:
            middle = (low + high + 1) // 2
            if self.hits(middle) >= hits:
                low = middle
            else:
                high = middle - 1
        return low
