"""How hits are counted, and met exactly, under what a plan shall allow for.

A counting keeps rows in a sequence of its own (`rows`, of generation order); prefixes are handed
to it in that sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from prefixbench.workload.columns import IntArray
from prefixbench.workload.domains import Runs
from prefixbench.workload.plan import (
    HitCount,
    HitsEach,
    PlannedPrefixes,
    bracket,
    plan_by_blocks,
    plan_by_cut,
    plan_in_turn,
)
from prefixbench.workload.shape import Growth


class Counting(Protocol):
    """Counts the hits of prefixes, in blocks, and finds prefixes that have the wanted hits."""

    @property
    def rows(self) -> IntArray: ...

    def hits(self, prefixes: IntArray) -> int: ...

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes: ...


@dataclass(frozen=True, kw_only=True)
class Unlimited:
    """An unlimited cache in which every request finds what all earlier ones left."""

    rows: IntArray
    runs: Runs

    def hits(self, prefixes: IntArray) -> int:
        return self.runs.hits(prefixes)

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes:
        return plan_by_blocks(growth, self.runs, wanted)


@dataclass(frozen=True, kw_only=True)
class InOrder:
    """Caches in which hits depend on the order; `place` is the place of each row in it.

    `most_hits` is a bound on the hits that is cheap to count, where there is one.
    """

    rows: IntArray
    place: IntArray
    hits_each: HitsEach
    most_hits: HitCount | None = None

    def hits(self, prefixes: IntArray) -> int:
        return int(self.hits_each(prefixes).sum())

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes:
        """The nearer of two: cut at the end, which is exact but where a warm-up's depth changes
        with it, or raised block by block.
        """
        if growth.rising:
            return plan_in_turn(growth, self.hits, wanted)
        least_theta = 0.0
        if self.most_hits is not None:
            least_theta = bracket(growth.shape, self.most_hits, wanted).low_theta
        sending = np.argsort(self.place)
        cut = plan_by_cut(growth.shape, self.hits_each, wanted, sending, least_theta)
        missed = self.hits(cut.prefix_blocks) - wanted
        if not missed:
            return cut
        raised = plan_in_turn(replace(growth, turn=self.place), self.hits, wanted)
        nearer = abs(self.hits(raised.prefix_blocks) - wanted) < abs(missed)
        return raised if nearer else cut
