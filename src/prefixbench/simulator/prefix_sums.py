"""Sums over the first so many places of a list that changes, in logarithmic time each.

P. M. Fenwick: A new data structure for cumulative frequency tables, Software: Practice and
Experience 1994.
"""

from __future__ import annotations


class PrefixSums:
    """Whole numbers at places 0 to size - 1, all 0 at first.

    >>> sums = PrefixSums(3)
    >>> sums.add(0, 5)
    >>> sums.add(2, 7)
    >>> sums.up_to(1), sums.up_to(2)
    (5, 12)
    """

    __slots__ = ("_size", "_sums")

    def __init__(self, size: int) -> None:
        self._size = size
        self._sums = [0] * (size + 1)

    def add(self, place: int, amount: int) -> None:
        sums, index, size = self._sums, place + 1, self._size
        while index <= size:
            sums[index] += amount
            index += index & -index

    def up_to(self, place: int) -> int:
        """The sum of all places from 0 to this one, included."""
        sums, index, total = self._sums, place + 1, 0
        while index:
            total += sums[index]
            index &= index - 1
        return total
