"""From one ratio to all prefixes: which share of each request is planned as shared.

A ratio theta in [0, 1] gives request i about `theta x L_i` tokens of prefix (proportional), or
`min(1, slope x f_i) x L_i` where f_i is its place in the run and the slope makes the mean theta
(ramp). Prefixes are dithered, not floored, along the rank inside the group, so that no half block
is lost on average (at block 128 and mean length 4096 a floor costs 1.56 points).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from prefixbench.core.seeds import mixed, stream
from prefixbench.workload.columns import FloatArray, IntArray, Workload

Turns = npt.NDArray[np.uint32]

#: The golden ratio's fraction of a turn, in 2^-32 turns.
_GOLDEN_TURN = np.uint32(0x9E37_79B9)
_HALF_TURN = np.uint32(1 << 31)
_TURN = 2.0**-32

#: Rows worked on at a time, so that what is computed stays in the processor's cache.
_CHUNK = 1 << 17


def dither(workload: Workload, seed: int) -> Turns:
    """A fraction in [0, 1), in 2^-32, a request: a golden-ratio walk along the ranks of its group.

    Any run of a group's ranks is spread evenly over [0, 1); the seeded start of each group
    spreads a window over several groups too.
    """
    walk: Turns = workload.rank.astype(np.uint32)
    walk *= _GOLDEN_TURN
    walk += group_offsets(workload, seed)[workload.group]
    return walk


def group_offsets(workload: Workload, seed: int) -> Turns:
    """Where the walk of each group starts: a seeded fraction of a turn."""
    groups = np.arange(len(workload.group_ids), dtype=np.uint64)
    offsets: Turns = (mixed(stream("dither", seed=seed), groups) >> 32).astype(np.uint32)
    return offsets


def undithered(workload: Workload) -> Turns:
    """The same half for every request: prefixes follow the weights, rounded to the nearest."""
    return np.full(workload.request_count, _HALF_TURN)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """Bounds of every prefix and the ratio-to-blocks rule between them, for some rows.

    `weight` is what the ratio is a share of, in tokens; `ramped` says that it stands for the place
    in the run too.
    """

    weight: IntArray | FloatArray
    granularity: int
    dither: Turns
    least: int
    most: IntArray
    ramped: bool = False

    def at(self, theta: float) -> IntArray:
        """Prefixes of about the share `theta` of each request, within the bounds."""
        slope = self._slope(theta) / self.granularity
        prefixes = np.empty(len(self.most), np.int32)
        for rows in _chunks(len(prefixes)):
            wanted = self.dither[rows] * _TURN
            wanted += self.weight[rows] * slope
            # Clipped first, cut to whole blocks on assignment: the bounds are whole.
            prefixes[rows] = np.clip(wanted, self.least, self.most[rows], out=wanted)
        return prefixes

    def floored(self, share: Fraction) -> IntArray:
        """The RFC's plain formula A.1, floor(input_len x share / block) blocks, in the bounds."""
        lengths, of_length = np.unique(self.weight, return_inverse=True)
        unit = share.denominator * self.granularity
        blocks = np.array([int(length) * share.numerator // unit for length in lengths.tolist()])
        bounded: IntArray = np.maximum(np.minimum(blocks[of_length], self.most), self.least)
        return bounded

    def of_rows(self, rows: IntArray | slice) -> Shape:
        return Shape(
            weight=self.weight[rows],
            granularity=self.granularity,
            dither=self.dither[rows],
            least=self.least,
            most=self.most[rows],
            ramped=self.ramped,
        )

    def _slope(self, theta: float) -> float:
        """The mean of min(1, slope x f) over f in [0, 1] is theta."""
        if not self.ramped:
            return theta
        return 2 * theta if theta <= 0.5 else 0.5 / (1 - theta)


@dataclass(frozen=True, kw_only=True)
class Growth:
    """A shape, and where single blocks may be added to it without breaking it.

    `turn` numbers the rows: those with a lower number are raised first (in any order if None).
    `rising` says that each prefix of a group has to stay at or above the ones sent before it.
    """

    shape: Shape
    turn: IntArray | None = None
    rising: bool = False

    def of_rows(self, rows: IntArray | slice) -> Growth:
        turn = None if self.turn is None else self.turn[rows]
        return Growth(shape=self.shape.of_rows(rows), turn=turn, rising=self.rising)

    def in_turn(self, rows: IntArray) -> IntArray:
        """These rows, first the ones to be raised first."""
        return rows if self.turn is None else rows[np.argsort(self.turn[rows], kind="stable")]


def _chunks(count: int) -> Iterator[slice]:
    return (slice(first, first + _CHUNK) for first in range(0, count, _CHUNK))
