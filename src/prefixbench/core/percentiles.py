"""Quantiles with linear interpolation, the one rule every table of the project uses."""

from __future__ import annotations

from collections.abc import Sequence


def percentile(values: Sequence[float], q: float) -> float | None:
    """The q-th percentile (0..100), linearly interpolated; None without values.

    >>> percentile([1.0, 2.0, 3.0, 4.0], 50)
    2.5
    >>> percentile([], 50) is None
    True
    """
    if not 0 <= q <= 100:
        raise ValueError(f"percentile must be in 0..100, not {q}")
    return percentile_of_sorted(sorted(values), q)


def percentile_of_sorted(ordered: Sequence[float], q: float) -> float | None:
    """As `percentile`, for values that are in ascending order already."""
    if not ordered:
        return None
    position = (len(ordered) - 1) * q / 100
    lower = int(position)
    upper = min(lower + 1, len(ordered) - 1)
    return ordered[lower] + (ordered[upper] - ordered[lower]) * (position - lower)
