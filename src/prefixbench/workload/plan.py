"""Prefix lengths that meet a target exactly.

Adding one block to one prefix moves the total of hits by 0 or 1, so every whole number of blocks
between the least (only the head) and the most (every prefix at its cap) is reached by some plan.
A ratio theta shapes all prefixes alike; the few blocks that are then missing are added one by one,
as few as possible.

Where a request sees only some of the earlier ones (concurrency, a finite cache) a block may move
the total by more. But no request sees a later one, so cutting the last prefixes of the order down
to the head still takes hits away block by block: the same shape, cut where the total is met.

Worked example at block size 4: one group, lengths 16, 20, 24, 28, one block kept unshared. Caps
are 3, 4, 5, 6 blocks and at most 18 - 6 = 12 blocks = 48 of 88 tokens hit. A target of 50 % is
44 tokens = 11 blocks: prefixes 2, 4, 5, 6 hit 17 - 6 = 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from prefixbench.workload.columns import IntArray
from prefixbench.workload.domains import Runs
from prefixbench.workload.shape import Growth, Shape

#: Total of hits, in blocks, of one prefix (blocks) a request.
HitCount = Callable[[IntArray], int]
#: Hits of each request, in blocks, of one prefix (blocks) a request.
HitsEach = Callable[[IntArray], IntArray]

#: Closer ratios than this are one.
_SAME_RATIO = 1e-15


@dataclass(frozen=True, kw_only=True)
class PlannedPrefixes:
    """A plan: one prefix a request, in blocks, and how many candidates were counted."""

    prefix_blocks: IntArray
    steps: int


@dataclass(frozen=True, kw_only=True)
class Bracket:
    """Two shapes whose hits enclose the wanted ones: below it, and at it or above."""

    low_theta: float
    low: IntArray
    low_hits: int
    high: IntArray
    high_hits: int
    steps: int

    def ends(self, wanted: int) -> PlannedPrefixes | None:
        """The plan where one of the two shapes is it already, or nothing lies beyond it."""
        if wanted <= self.low_hits:
            return PlannedPrefixes(prefix_blocks=self.low, steps=self.steps)
        if wanted >= self.high_hits:
            return PlannedPrefixes(prefix_blocks=self.high, steps=self.steps)
        return None


def bracket(
    shape: Shape,
    hits: HitCount,
    wanted: int,
    *,
    apart: int | None = None,
    least_theta: float = 0.0,
) -> Bracket:
    """Narrow the ratio until its two shapes are at most `apart` blocks of prefix apart.

    Unless given, that is so few that placing them one by one leaves the shape as it is. Ratios
    below `least_theta` are known to have too few hits.
    """
    apart = max(1, len(shape.most) // 256) if apart is None else apart
    low_theta, high_theta = least_theta, 1.0
    low, high = shape.at(low_theta), shape.most
    low_hits, high_hits = hits(low), hits(high)
    low_sum, high_sum = int(low.sum()), int(high.sum())
    steps = 2
    while (
        low_hits < wanted < high_hits
        and high_sum - low_sum > apart
        and high_theta - low_theta > _SAME_RATIO
    ):
        slope = (wanted - low_hits) / (high_hits - low_hits)
        theta = _between(low_theta, high_theta, slope, steps)
        middle = shape.at(theta)
        middle_hits = hits(middle)
        steps += 1
        if middle_hits < wanted:
            low_theta, low, low_hits, low_sum = theta, middle, middle_hits, int(middle.sum())
        else:
            high_theta, high, high_hits, high_sum = theta, middle, middle_hits, int(middle.sum())
    return Bracket(
        low_theta=low_theta,
        low=low,
        low_hits=low_hits,
        high=high,
        high_hits=high_hits,
        steps=steps,
    )


def _between(low: float, high: float, share: float, step: int) -> float:
    """The next ratio to try: where a straight line meets the target, every third time halfway."""
    if step % 3 == 1:
        return (low + high) / 2
    return low + (high - low) * min(max(share, 1e-3), 1 - 1e-3)


def plan_by_blocks(growth: Growth, runs: Runs, wanted: int) -> PlannedPrefixes:
    """The plan with exactly `wanted` hits of an unlimited cache, or the nearest end of the range.

    As few single blocks as possible are added, since blocks that gain nothing are prefixes nobody
    reads.
    """
    found = bracket(growth.shape, runs.hits, wanted)
    ended = found.ends(wanted)
    if ended is not None:
        return ended
    room = found.high - found.low
    rows = growth.in_turn(np.flatnonzero(room))
    places = np.repeat(rows, room[rows])
    first = np.repeat(np.cumsum(room[rows]) - room[rows], room[rows])
    values = found.low[places] + (np.arange(len(places)) - first) + 1
    gained = np.cumsum(runs.gains(found.low, places, values))
    added = int(np.searchsorted(gained, wanted - found.low_hits)) + 1
    prefixes = found.low + np.bincount(places[:added], minlength=len(room))
    return PlannedPrefixes(prefix_blocks=prefixes, steps=found.steps + 1)


def plan_by_cut(
    shape: Shape,
    hits_each: HitsEach,
    wanted: int,
    sending: IntArray,
    least_theta: float = 0.0,
) -> PlannedPrefixes:
    """As `plan_by_blocks`, where hits depend on the order; `sending` lists the rows in it.

    Every request before the cut keeps the shape's prefix, every one behind it only the head.
    """

    def hits_of(prefixes: IntArray) -> int:
        return int(hits_each(prefixes).sum())

    found = bracket(shape, hits_of, wanted, least_theta=least_theta)
    ended = found.ends(wanted)
    if ended is not None:
        return ended
    hits = hits_each(found.high)
    head = np.minimum(hits, shape.least)
    beyond_head = np.cumsum((hits - head)[sending])
    missing = wanted - int(head.sum())
    cut = int(np.searchsorted(beyond_head, missing))
    before_cut = int(beyond_head[cut - 1]) if cut else 0
    prefixes = np.full(len(hits), shape.least, np.int64)
    prefixes[sending[:cut]] = found.high[sending[:cut]]
    prefixes[sending[cut]] = shape.least + missing - before_cut
    return PlannedPrefixes(prefix_blocks=prefixes, steps=found.steps + 1)


def plan_in_turn(growth: Growth, hits: HitCount, wanted: int) -> PlannedPrefixes:
    """As `plan_by_blocks`, where hits depend on the order and prefixes must rise along it.

    One block may gain several hits here, so the total can miss the target by that many; the
    nearer side is taken.
    """
    found = bracket(growth.shape, hits, wanted)
    ended = found.ends(wanted)
    if ended is not None:
        return ended
    room = found.high - found.low
    path = growth.in_turn(np.arange(len(room)))
    before = np.empty(len(room), np.int64)
    before[path] = np.cumsum(room[path]) - room[path]

    def raised(count: int) -> IntArray:
        prefixes: IntArray = found.low + np.clip(count - before, 0, room)
        return prefixes

    fewest, most, steps = 0, int(room.sum()), found.steps
    while most - fewest > 1:
        middle = (fewest + most) // 2
        steps += 1
        if hits(raised(middle)) < wanted:
            fewest = middle
        else:
            most = middle
    nearest = min((raised(most), raised(fewest)), key=lambda plan: abs(hits(plan) - wanted))
    return PlannedPrefixes(prefix_blocks=nearest, steps=steps + 2)


def plan_nearest(shape: Shape, hits: HitCount, wanted: int) -> PlannedPrefixes:
    """The plan of the plain shape whose hits come nearest to `wanted`; nothing is calibrated."""
    found = bracket(shape, hits, wanted, apart=0)
    nearer_low = wanted - found.low_hits < found.high_hits - wanted
    prefixes = found.low if nearer_low else found.high
    return PlannedPrefixes(prefix_blocks=prefixes, steps=found.steps)
