"""LRU caches of blocks, analytically: cost a request does not depend on its number of blocks.

True when requests come one after the other: the whole look-up happens before anything is stored,
hits are the leading run of cached blocks, and afterwards the request's blocks are the most recent
ones, its head more recent than its tail (vLLM's order of freeing). A request is three numbers: its
prefix group, how many blocks it shares with the group's chain, and how many blocks of its own
follow them; no block of its own is ever asked for again.

In a chain the time of the last touch falls with depth. So a group is a stack of *runs*: depths
that the same request touched last. A request covers the newest runs, cuts one, and becomes the
owner of all depths up to its own: a constant number of runs a request, on average.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from prefixbench.core.tally import HitTally, Unit
from prefixbench.simulator.compiled import (
    ChainColumns,
    compiled_hits,
    compiled_steps,
    is_worth_compiling,
)
from prefixbench.simulator.tail_sums import TailSums


class ChainRequest(NamedTuple):
    """A request in full blocks: the first `shared` of the group's chain, then `own` ones."""

    group: int
    shared: int
    own: int

    @property
    def blocks(self) -> int:
        return self.shared + self.own


@dataclass(slots=True)
class _Run:
    """Depths of a chain that were last touched by one request: from the run above to `end`."""

    end: int
    owner: int


class LruChains:
    """An LRU cache of one capacity; a request costs constant time on average.

    >>> cache = LruChains(4)
    >>> [cache.serve(ChainRequest(*row)) for row in [(0, 2, 2), (1, 0, 2), (0, 2, 2)]]
    [0, 0, 2]
    """

    def __init__(self, capacity_blocks: int) -> None:
        self.capacity_blocks = capacity_blocks
        self._used = 0
        self._served = 0
        # The newest run of a chain is the last one; its depths begin at 0.
        self._runs: defaultdict[int, deque[_Run]] = defaultdict(deque)
        # Requests that still own blocks, oldest first: number, group, own blocks left.
        self._owners: deque[list[int]] = deque()

    def depth(self, group: int) -> int:
        """Blocks of the group's chain that are cached."""
        runs = self._runs.get(group)
        return runs[0].end if runs else 0

    def serve(self, request: ChainRequest) -> int:
        """Blocks of the request that are found; then it is stored and the oldest blocks go."""
        runs = self._runs[request.group]
        shared = request.shared
        hits = min(shared, runs[0].end) if runs else 0
        while runs and runs[-1].end <= shared:
            runs.pop()
        if shared:
            runs.append(_Run(shared, self._served))
        self._owners.append([self._served, request.group, request.own])
        self._served += 1
        self._used += request.blocks - hits
        while self._used > self.capacity_blocks:
            self._evict_from_oldest()
        return hits

    def _evict_from_oldest(self) -> None:
        """Evict blocks of the request that was served longest ago: its tail first."""
        owner = self._owners[0]
        number, group, own = owner
        excess = self._used - self.capacity_blocks
        taken = min(own, excess)
        owner[2] -= taken
        runs = self._runs[group]
        if taken < excess:
            if runs and runs[0].owner == number:
                taken += self._shorten_oldest(runs, excess - taken)
            if not runs or runs[0].owner != number:
                self._owners.popleft()
        self._used -= taken

    @staticmethod
    def _shorten_oldest(runs: deque[_Run], wanted: int) -> int:
        """Take up to `wanted` blocks from the deep end of a chain's oldest run."""
        oldest = runs[0]
        begin = runs[1].end if len(runs) > 1 else 0
        taken = min(oldest.end - begin, wanted)
        oldest.end -= taken
        if oldest.end == begin:
            runs.popleft()
        return taken


def lru_hits(requests: Iterable[ChainRequest], capacity_blocks: int) -> list[int]:
    """Hit blocks of every request in an LRU cache of this capacity."""
    requests = list(requests)
    if is_worth_compiling(len(requests)):
        return compiled_hits(ChainColumns.of(requests), capacity_blocks)
    cache = LruChains(capacity_blocks)
    return [cache.serve(request) for request in requests]


def lru_depths(
    requests: Sequence[ChainRequest], stored_before: Iterable[int], capacity_blocks: int
) -> Iterator[int]:
    """Blocks of each request's chain that are cached when it is looked up.

    `stored_before` says for each request how many of the requests, from the first one on, are
    stored by then: never fewer than for the request before it, never itself.
    """
    cache = LruChains(capacity_blocks)
    stored = 0
    for request, count in zip(requests, stored_before, strict=True):
        while stored < count:
            cache.serve(requests[stored])
            stored += 1
        yield cache.depth(request.group)


@dataclass(frozen=True, slots=True)
class CapacityCurve:
    """Hit blocks at every capacity; between two of its corners they grow evenly.

    `corners` are capacities, `hits_at_corner` the hits there, `slopes` the hits that each further
    block of capacity gains up to the next corner.
    """

    blocks: int
    corners: tuple[int, ...]
    hits_at_corner: tuple[int, ...]
    slopes: tuple[int, ...]

    @classmethod
    def from_steps(cls, blocks: int, steps: Mapping[int, int]) -> CapacityCurve:
        """The curve of so many accesses; `steps` says at each place of the stack how many more of
        them found their block there than one place nearer."""
        corners, hits_at_corner, slopes = [0], [0], [0]
        for place, step in sorted(steps.items()):
            # A block at place 5 hits from capacity 5 on: the slope changes after capacity 4.
            hits_at_corner.append(hits_at_corner[-1] + (place - 1 - corners[-1]) * slopes[-1])
            corners.append(place - 1)
            slopes.append(slopes[-1] + step)
        return cls(blocks, tuple(corners), tuple(hits_at_corner), tuple(slopes))

    def tally(self, capacity_blocks: int | None = None) -> HitTally:
        """Hit blocks out of all blocks at a capacity; without limit if None."""
        if capacity_blocks is None:
            return HitTally(self.hits_at_corner[-1], self.blocks, Unit.BLOCK)
        place = bisect_right(self.corners, capacity_blocks) - 1
        gained = (capacity_blocks - self.corners[place]) * self.slopes[place]
        return HitTally(self.hits_at_corner[place] + gained, self.blocks, Unit.BLOCK)


def lru_curve(requests: Sequence[ChainRequest]) -> CapacityCurve:
    """Hits at every capacity in one pass: a block hits where the capacity reaches its LRU place.

    LRU is a stack algorithm, and the blocks of a run stand at consecutive places of the stack, so
    a run adds one hit to each capacity from its first block's place on, one more from the next.
    """
    worth = is_worth_compiling(len(requests))
    steps = compiled_steps(ChainColumns.of(requests)) if worth else _steps(requests)
    return CapacityCurve.from_steps(sum(shared + own for _, shared, own in requests), steps)


def _steps(requests: Sequence[ChainRequest]) -> Mapping[int, int]:
    """At each place of the stack, how many more blocks are found there than one place nearer.

    The stack holds all blocks by their last touch, counted by the request that touched them.
    """
    touched = TailSums()
    stacks: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)  # runs: end and owner
    steps: defaultdict[int, int] = defaultdict(int)
    for number, (group, shared, own) in enumerate(requests):
        runs = stacks[group]
        begin = 0
        while runs and begin < shared:
            run_end, owner = runs[-1]
            end = min(run_end, shared)
            # In front stand the blocks that others touched since, and those found just now.
            place = touched.behind(owner) + begin + 1
            steps[place] += 1
            steps[place + end - begin] -= 1
            touched.add(owner, begin - end)
            begin = end
            if end < run_end:
                break
            runs.pop()
        if shared:
            runs.append((shared, number))
        touched.append(shared + own)
    return steps
