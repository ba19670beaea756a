"""Fewer points for a picture, chosen without chance; tables and files keep every sample."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


def evenly(count: int, most: int) -> list[int]:
    """At most `most` places of range(count), evenly spread, the first and last among them.

    >>> evenly(10, 4), evenly(3, 4)
    ([0, 3, 6, 9], [0, 1, 2])
    """
    if count <= most:
        return list(range(count))
    return [index * (count - 1) // (most - 1) for index in range(most)]


def keeping_the_largest(rows: Sequence[T], size: Callable[[T], float], most: int) -> list[T]:
    """At most `most` rows: the largest tenth of the room for outliers, the rest spread evenly.

    >>> keeping_the_largest([5, 1, 9, 3, 7], float, 2)
    [9, 1]
    """
    if len(rows) <= most:
        return list(rows)
    ordered = sorted(rows, key=size, reverse=True)
    outliers = max(most // 10, 1)
    rest = ordered[outliers:]
    spread = most - outliers
    places = [len(rest) - 1] if spread == 1 else evenly(len(rest), spread)
    return ordered[:outliers] + [rest[place] for place in places]
