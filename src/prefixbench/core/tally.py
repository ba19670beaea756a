"""Cache hits and queries as integers that add; there is no float rate to be averaged."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Unit(StrEnum):
    """What a tally counts. Tallies of different units never meet."""

    TOKEN = "token"
    BLOCK = "block"
    QUERY = "query"
    ENTRY = "entry"
    ITEM = "item"


@dataclass(frozen=True, slots=True)
class HitTally:
    """Cache hits out of cache queries, in one unit. Tallies add; rates do not.

    >>> str((HitTally(90, 100) + HitTally(0, 900)).ratio)
    '9/100'
    >>> HitTally(0, 0).ratio is None
    True
    """

    hits: int
    queries: int
    unit: Unit = Unit.TOKEN

    def __add__(self, other: HitTally) -> HitTally:
        if self.unit is not other.unit:
            raise ValueError(f"cannot add {other.unit} to {self.unit}: convert with a known size")
        return HitTally(self.hits + other.hits, self.queries + other.queries, self.unit)

    @property
    def ratio(self) -> Fraction | None:
        """Hits out of queries, exact; None when nothing was queried."""
        return Fraction(self.hits, self.queries) if self.queries else None


def total(tallies: Iterable[HitTally], unit: Unit = Unit.TOKEN) -> HitTally:
    """Sum of tallies; an empty sum has no queries, hence no ratio."""
    return sum(tallies, start=HitTally(0, 0, unit))


def as_rate(tally: HitTally) -> float | None:
    """The tally's ratio as a float for printing; None when nothing was queried."""
    ratio = tally.ratio
    return None if ratio is None else float(ratio)
