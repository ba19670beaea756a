"""Prefix lengths that meet a target exactly.

Adding one block to one prefix moves the total of hits by 0 or 1, so every whole number of blocks
between the least (only the head) and the most (every prefix at its cap) is reached by some plan.
A ratio theta shapes all prefixes alike; the few blocks that are then missing are added one by one,
as few as possible. Prefixes are dithered, not floored, along the rank inside the group, so that no
half block is lost on average (at block 128 and mean length 4096 a floor costs 1.56 points).

Worked example at block size 4: one group, lengths 16, 20, 24, 28, one block kept unshared. Caps
are 3, 4, 5, 6 blocks and at most 18 - 6 = 12 blocks = 48 of 88 tokens hit. A target of 50 % is
44 tokens = 11 blocks: prefixes 2, 4, 5, 6 hit 17 - 6 = 11.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from prefixbench.core.seeds import stream, unit
from prefixbench.workload.columns import IntArray, Workload

FloatArray = npt.NDArray[np.float64]
#: Total of hits, in blocks, of one prefix (blocks) a request.
HitCount = Callable[[IntArray], int]

_GOLDEN_RATIO = 0.6180339887498949


def dither(workload: Workload, seed: int) -> FloatArray:
    """A number in [0, 1) a request: a golden-ratio walk along the ranks of its group.

    Any run of a group's ranks is spread evenly over [0, 1); the seeded start of each group
    spreads a window over several groups too.
    """
    starts = np.array(
        [unit(stream("dither", seed=seed, group=name)) for name in workload.group_ids]
    )
    walk: FloatArray = np.mod(starts[workload.group] + workload.rank * _GOLDEN_RATIO, 1.0)
    return walk


@dataclass(frozen=True, kw_only=True)
class PlannedPrefixes:
    """A plan: one prefix a request, in blocks, and how it came about."""

    prefix_blocks: IntArray
    steps: int


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Bounds of every prefix and the ratio-to-blocks rule between them, for some rows."""

    input_len: IntArray
    granularity: int
    dither: FloatArray
    least: int
    most: IntArray

    @cached_property
    def _length_blocks(self) -> FloatArray:
        return self.input_len / self.granularity

    def at(self, theta: float) -> IntArray:
        """Prefixes of about the share `theta` of each request, within the bounds."""
        return self._bounded(np.floor(theta * self._length_blocks + self.dither).astype(np.int64))

    def floored(self, share: Fraction) -> IntArray:
        """The RFC's plain formula A.1, floor(input_len x share / block) blocks, in the bounds."""
        return self._bounded(
            self.input_len * share.numerator // (share.denominator * self.granularity)
        )

    def of_rows(self, rows: IntArray) -> Shape:
        return Shape(
            input_len=self.input_len[rows],
            granularity=self.granularity,
            dither=self.dither[rows],
            least=self.least,
            most=self.most[rows],
        )

    def _bounded(self, wanted: IntArray) -> IntArray:
        return np.maximum(np.minimum(wanted, self.most), self.least)


def plan_exactly(shape: Shape, hits: HitCount, wanted: int) -> PlannedPrefixes:
    """The plan with exactly `wanted` hits, or the end of the range nearest to it."""
    low_theta, high_theta = 0.0, 1.0
    low, high = shape.at(low_theta), shape.most
    low_hits, high_hits = hits(low), hits(high)
    if wanted <= low_hits:
        return PlannedPrefixes(prefix_blocks=low, steps=1)
    if wanted >= high_hits:
        return PlannedPrefixes(prefix_blocks=high, steps=1)
    steps = 2
    few = max(1, len(low) // 256)
    while int((high - low).sum()) > few and high_theta - low_theta > 1e-15:
        theta = _between(low_theta, low_hits, high_theta, high_hits, wanted, steps)
        middle = shape.at(theta)
        middle_hits = hits(middle)
        steps += 1
        if middle_hits < wanted:
            low_theta, low, low_hits = theta, middle, middle_hits
        else:
            high_theta, high, high_hits = theta, middle, middle_hits
    return _add_missing(low, high, hits, wanted, steps)


def _between(
    low: float, low_hits: int, high: float, high_hits: int, wanted: int, step: int
) -> float:
    """The next ratio to try: where a straight line meets the target, every third time halfway."""
    if step % 3 == 1:
        return (low + high) / 2
    slope = (wanted - low_hits) / (high_hits - low_hits)
    return low + (high - low) * min(max(slope, 1e-3), 1 - 1e-3)


def _add_missing(
    low: IntArray, high: IntArray, hits: HitCount, wanted: int, steps: int
) -> PlannedPrefixes:
    """Raise `low` towards `high` by the smallest number of single blocks that reaches `wanted`."""
    rows = np.repeat(np.arange(len(low)), high - low)

    def raised(count: int) -> IntArray:
        return low + np.bincount(rows[:count], minlength=len(low))

    fewest, most = 0, len(rows)
    while fewest < most:
        middle = (fewest + most) // 2
        steps += 1
        if hits(raised(middle)) < wanted:
            fewest = middle + 1
        else:
            most = middle
    prefixes = raised(most)
    return PlannedPrefixes(prefix_blocks=prefixes, steps=steps)


def plan_nearest(shape: Shape, hits: HitCount, wanted: int) -> PlannedPrefixes:
    """The plan of the plain shape whose hits come nearest to `wanted`; nothing is calibrated."""
    low_theta, high_theta = 0.0, 1.0
    low, high = shape.at(low_theta), shape.most
    steps = 2
    while high_theta - low_theta > 1e-12:
        theta = (low_theta + high_theta) / 2
        middle = shape.at(theta)
        steps += 1
        if hits(middle) < wanted:
            low_theta, low = theta, middle
        else:
            high_theta, high = theta, middle
    nearest = min((low, high), key=lambda prefixes: abs(hits(prefixes) - wanted))
    return PlannedPrefixes(prefix_blocks=nearest, steps=steps)
