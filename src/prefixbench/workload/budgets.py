"""A global target split between groups in proportion to their input tokens (RFC 3.3.8).

Worked example at block size 4: 11 hit blocks over groups of 60 and 40 tokens whose hits lie in
0..4 and 0..9 blocks. In proportion that is 6.6 and 4.4; the first group can have 4, so the second
takes 7.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def proportional_budgets(
    *, weights: Sequence[int], least: Sequence[int], most: Sequence[int], total: int
) -> list[int]:
    """Whole budgets in [least, most] that sum to `total` (cut to what the sums allow).

    Each is `rate x weight` within its bounds, for one rate; what rounding leaves goes by largest
    remainder to groups with room.
    """
    total = min(max(total, sum(least)), sum(most))
    rate = _rate(weights, least, most, total)
    exact = [
        min(max(rate * weight, Fraction(low)), Fraction(high))
        for weight, low, high in zip(weights, least, most, strict=True)
    ]
    budgets = [int(budget) for budget in exact]
    by_remainder = sorted(range(len(budgets)), key=lambda i: (budgets[i] - exact[i], i))
    # Fewer are missing than have a remainder, and a budget with one is below its bound.
    for index in by_remainder[: total - sum(budgets)]:
        budgets[index] += 1
    return budgets


def _rate(
    weights: Sequence[int], least: Sequence[int], most: Sequence[int], total: int
) -> Fraction:
    """The rate at which the bounded budgets sum to `total`, exact.

    The sum grows with the rate and bends where a group leaves or meets a bound, so the bends are
    walked in ascending order.
    """
    bends: list[tuple[Fraction, int]] = []
    for weight, low, high in zip(weights, least, most, strict=True):
        if weight:
            bends += [(Fraction(low, weight), weight), (Fraction(high, weight), -weight)]
    reached, slope, position = Fraction(sum(least)), 0, Fraction(0)
    for bend, change in sorted(bends):
        if slope and reached + slope * (bend - position) >= total:
            break
        reached, position = reached + slope * (bend - position), bend
        slope += change
    return position + (Fraction(total) - reached) / slope if slope else position
