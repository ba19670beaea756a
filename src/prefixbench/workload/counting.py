"""How hits are counted, and met exactly, under what a plan shall allow for.

A counting keeps rows in a sequence of its own; prefixes are handed to it in that sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from prefixbench.workload.columns import IntArray
from prefixbench.workload.domains import Runs
from prefixbench.workload.lag import Visibility
from prefixbench.workload.plan import (
    PlannedPrefixes,
    plan_by_blocks,
    plan_by_cut,
    plan_in_turn,
)
from prefixbench.workload.shape import Growth


class Counting(Protocol):
    """Counts the hits of prefixes, in blocks, and finds prefixes that have the wanted hits."""

    def hits(self, prefixes: IntArray) -> int: ...

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes: ...


@dataclass(frozen=True)
class Unlimited:
    """An unlimited cache in which every request finds what all earlier ones left."""

    runs: Runs

    def hits(self, prefixes: IntArray) -> int:
        return self.runs.hits(prefixes)

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes:
        return plan_by_blocks(growth, self.runs, wanted)


@dataclass(frozen=True)
class Lagged:
    """An unlimited cache in which a request finds only what the requests it sees have left."""

    visibility: Visibility

    def hits(self, prefixes: IntArray) -> int:
        return int(self.visibility.hits_each(prefixes).sum())

    def plan(self, growth: Growth, wanted: int) -> PlannedPrefixes:
        if growth.rising:
            return plan_in_turn(growth, self.hits, wanted)
        sending = np.argsort(self.visibility.place)
        return plan_by_cut(growth.shape, self.visibility.hits_each, wanted, sending)
