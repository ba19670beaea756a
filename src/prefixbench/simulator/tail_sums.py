"""Sums of a list that changes, over all behind a place.

Places are summed in stretches of 64, stretches in areas of 64: a change touches three numbers, a
sum reads three short slices, which the interpreter adds up faster than it walks a tree.
"""

from __future__ import annotations

_STRETCH_BITS = 6
_AREA_BITS = 2 * _STRETCH_BITS


class TailSums:
    """Whole numbers at places 0 to size - 1, all 0 at first.

    >>> sums = TailSums(3)
    >>> sums.add(0, 5)
    >>> sums.add(2, 7)
    >>> sums.behind(-1), sums.behind(0), sums.behind(2)
    (12, 7, 0)
    """

    __slots__ = ("_areas", "_places", "_stretches")

    def __init__(self, size: int) -> None:
        self._places = [0] * size
        self._stretches = [0] * ((size >> _STRETCH_BITS) + 1)
        self._areas = [0] * ((size >> _AREA_BITS) + 1)

    def add(self, place: int, amount: int) -> None:
        self._places[place] += amount
        self._stretches[place >> _STRETCH_BITS] += amount
        self._areas[place >> _AREA_BITS] += amount

    def behind(self, place: int) -> int:
        """The sum of all places after this one."""
        stretch, area = (place >> _STRETCH_BITS) + 1, (place >> _AREA_BITS) + 1
        return (
            sum(self._places[place + 1 : stretch << _STRETCH_BITS])
            + sum(self._stretches[stretch : area << _STRETCH_BITS])
            + sum(self._areas[area:])
        )
