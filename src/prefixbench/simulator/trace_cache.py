"""One cache in front of a trace: what each request finds, under a policy and at a capacity."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from prefixbench.simulator.fifo import fifo_hits
from prefixbench.simulator.lru_stack import (
    ReuseDistances,
    Stretch,
    TouchOrder,
    found_blocks,
    lru_stretches,
)
from prefixbench.simulator.optimal import optimal_hits
from prefixbench.simulator.prefix_tree import Path, PrefixTree
from prefixbench.simulator.stack_distance import CapacityCurve
from prefixbench.simulator.touches import Touch, next_touches
from prefixbench.simulator.trace import TraceRequest


class Policy(StrEnum):
    """Which block goes when room is needed.

    `lru`: the least recently used, of a request its tail first. `block_lru`: the same, blocks used
    one at a time from the head on, as plain LRU caches of single blocks do. `fifo`: the one that
    came in first. `optimal`: the one that is needed again last, a line no policy can pass.
    """

    LRU = "lru"
    BLOCK_LRU = "block_lru"
    FIFO = "fifo"
    OPTIMAL = "optimal"


_ORDERS = {Policy.LRU: TouchOrder.HEAD_RECENT, Policy.BLOCK_LRU: TouchOrder.HEAD_OLDEST}


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheRules:
    """How the cache behaves, apart from its size.

    `lag`: a request sees only the requests that many positions earlier, or more. `ttl_ms`: blocks
    not used for longer are gone (LRU only, and the trace must have arrival times).
    """

    policy: Policy = Policy.LRU
    lag: int = 1
    ttl_ms: float | None = None

    def __post_init__(self) -> None:
        if self.lag < 1:
            raise ValueError("a lag counts from 1: the request before")
        if self.policy is not Policy.LRU and (self.lag > 1 or self.ttl_ms is not None):
            raise ValueError("a lag and a time to live go with policy lru")

    @property
    def is_sequential(self) -> bool:
        """Whether a request finds all that the one before it left and nothing has evicted."""
        return self.lag == 1 and self.ttl_ms is None


class IndexedTrace:
    """Requests and their paths through the tree of all blocks; any cache can stand before it."""

    def __init__(self, requests: Sequence[TraceRequest]) -> None:
        self.requests = requests
        self.tree = PrefixTree()
        self.paths: list[Path] = [self.tree.insert(request.blocks) for request in requests]

    @property
    def accesses(self) -> int:
        """Blocks of all requests, each as often as it is asked for."""
        return sum(depth for path in self.paths for _chain, depth in path)

    @cached_property
    def next_touches(self) -> list[list[Touch]]:
        return next_touches(self.paths)


class TraceCache:
    """A trace and the rules of the cache before it; what all capacities share is done once."""

    def __init__(self, trace: IndexedTrace, rules: CacheRules | None = None) -> None:
        self.trace = trace
        self.rules = rules or CacheRules()

    def hit_blocks(self, capacity_blocks: int | None = None) -> list[int]:
        """Blocks each request finds at a capacity; None is without limit."""
        match self.rules.policy:
            case Policy.FIFO if capacity_blocks is not None:
                return fifo_hits(self.trace.paths, capacity_blocks)
            case Policy.OPTIMAL if capacity_blocks is not None:
                return optimal_hits(self.trace.next_touches, capacity_blocks)
            case _:  # without limit nothing is ever evicted, whatever the policy
                return [found_blocks(found, capacity_blocks) for found in self.stretches]

    @cached_property
    def stretches(self) -> list[list[Stretch]]:
        """What each request finds in an LRU cache without limit, with its places."""
        order = _ORDERS.get(self.rules.policy, TouchOrder.HEAD_RECENT)
        found = lru_stretches(self.trace.paths, lag=self.rules.lag, order=order)
        ttl_ms = self.rules.ttl_ms
        if ttl_ms is None:
            return list(found)
        return [list(self._in_time(n, row, ttl_ms)) for n, row in enumerate(found)]

    def _in_time(self, number: int, row: Iterable[Stretch], ttl_ms: float) -> Iterable[Stretch]:
        now = self._arrival(number)
        return (one for one in row if now - self._arrival(one.toucher) <= ttl_ms)

    def _arrival(self, number: int) -> float:
        arrival = self.trace.requests[number].arrival_ms
        if arrival is None:
            raise ValueError("a time to live needs arrival times")
        return arrival

    @cached_property
    def reuse_distances(self) -> ReuseDistances:
        return ReuseDistances.of(one for row in self.stretches for one in row)

    def lru_curve(self) -> CapacityCurve:
        """Hit blocks at every capacity, in one pass; of the LRU policies only."""
        if self.rules.policy not in _ORDERS:
            raise ValueError(f"{self.rules.policy} has no curve in one pass")
        return self.reuse_distances.curve(self.trace.accesses)
