"""Sums of a row of numbers that changes and grows at its end, over all behind a place.

Numbers are summed up in stretches of 64, stretches in areas of 64: a change touches three of them,
a sum reads three short slices, which the interpreter adds up faster than it walks a tree.
"""

from __future__ import annotations

_STRETCH_BITS = 6
_AREA_BITS = 2 * _STRETCH_BITS
_STRETCH = 1 << _STRETCH_BITS
_AREA = 1 << _AREA_BITS


class TailSums:
    """Whole numbers, counted from 0 in the order in which they come.

    >>> sums = TailSums()
    >>> for number in (5, 2, 7):
    ...     sums.append(number)
    >>> sums.add(1, -2)
    >>> sums.behind(-1), sums.behind(0), sums.behind(2)
    (12, 7, 0)
    """

    __slots__ = ("_areas", "_numbers", "_stretches")

    def __init__(self) -> None:
        self._numbers: list[int] = []
        self._stretches: list[int] = []
        self._areas: list[int] = []

    def append(self, number: int) -> None:
        place = len(self._numbers)
        if not place % _STRETCH:
            self._stretches.append(0)
        if not place % _AREA:
            self._areas.append(0)
        self._numbers.append(number)
        self._stretches[-1] += number
        self._areas[-1] += number

    def add(self, place: int, amount: int) -> None:
        self._numbers[place] += amount
        self._stretches[place >> _STRETCH_BITS] += amount
        self._areas[place >> _AREA_BITS] += amount

    def behind(self, place: int) -> int:
        """The sum of all numbers after this one."""
        if len(self._numbers) - place <= _STRETCH:
            return sum(self._numbers[place + 1 :])
        stretch, area = (place >> _STRETCH_BITS) + 1, (place >> _AREA_BITS) + 1
        return (
            sum(self._numbers[place + 1 : stretch << _STRETCH_BITS])
            + sum(self._stretches[stretch : area << _STRETCH_BITS])
            + sum(self._areas[area:])
        )
