"""The four prices of the cost model from measured times, and which of them the times tell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from prefixbench.simulator.cost import CostModel, Work

_Row = tuple[float, ...]

#: Prices in the order of the terms of `Work`.
PRICES = ("step_ns", "prefill_token_ns", "context_token_ns", "decode_sequence_ns")

#: A term that accounts for less of the measured times, as a share, has no price.
_VISIBLE_PART = 0.001

#: Mean squared relative errors that differ by less are equal.
_INDIFFERENT = 1e-9

#: Of a term that others explain to less than this share of it, no price can be told.
_OWN_SHARE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkSample:
    """What steps computed together, and how long they took together."""

    work: Work
    duration_ns: float


def fit_cost_model(samples: Sequence[WorkSample]) -> CostModel:
    """The prices, none negative, with the least sum of squared relative errors.

    Exact: at the optimum the prices above 0 are a plain least-squares fit, so every choice of them
    is tried. Of terms that the samples do not tell apart, one has a price. Raises ValueError
    without samples of positive duration.
    """
    rows = [_relative(sample) for sample in samples if sample.duration_ns > 0]
    if not rows:
        raise ValueError("a cost model is fitted to at least one step that took time")
    found = [(_squared_error(rows, prices), prices) for prices in _candidates(rows)]
    enough = min(error for error, _prices in found) + _INDIFFERENT * len(rows)
    # Fewer prices come first, and are as good where more do not make the fit better.
    best = next(prices for error, prices in found if error <= enough)
    return CostModel(**dict(zip(PRICES, best, strict=True)))


def unknown_prices(model: CostModel, samples: Sequence[WorkSample]) -> dict[str, str]:
    """Prices that the samples do not tell, by name, and why.

    A price is told where its term accounts for a visible part of the time.
    """
    rows = [_relative(sample) for sample in samples if sample.duration_ns > 0]
    parts = [
        getattr(model, name) * sum(row[term] for row in rows) / len(rows)
        for term, name in enumerate(PRICES)
    ]
    told = [term for term, part in enumerate(parts) if part > _VISIBLE_PART]
    return {PRICES[term]: _reason(rows, told, term) for term in range(4) if term not in told}


def _relative(sample: WorkSample) -> _Row:
    """The terms as shares of the duration, so that their priced sum should be 1."""
    return tuple(term / sample.duration_ns for term in sample.work)


def _candidates(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Least-squares prices for each choice of terms, where all come out above 0."""
    for count in range(1, 5):
        for chosen in combinations(range(4), count):
            solved = _least_squares(_columns(rows, chosen), [1.0] * len(rows))
            if solved is not None and min(solved) > 0:
                prices = dict(zip(chosen, solved, strict=True))
                yield tuple(prices.get(term, 0.0) for term in range(4))


def _columns(rows: Sequence[_Row], chosen: Sequence[int]) -> list[_Row]:
    return [tuple(row[term] for term in chosen) for row in rows]


def _squared_error(rows: Sequence[_Row], prices: _Row) -> float:
    return sum(
        (sum(term * price for term, price in zip(row, prices, strict=True)) - 1) ** 2
        for row in rows
    )


def _reason(rows: Sequence[_Row], chosen: Sequence[int], term: int) -> str:
    """Why a term has no price beside those that have one."""
    if not any(row[term] for row in rows):
        return "nothing of it was computed"
    if _solvable(_columns(rows, [*chosen, term])):
        return "a price above 0 does not make the fit better"
    return "the requests do not tell it apart from the other prices"


def _solvable(rows: Sequence[_Row]) -> bool:
    return _least_squares(rows, [1.0] * len(rows)) is not None


def _least_squares(rows: Sequence[_Row], wanted: Sequence[float]) -> list[float] | None:
    """Prices whose sums are nearest to what is wanted; None where the terms do not tell them apart.

    Normal equations, solved by elimination; columns are scaled to length 1 first, so that what
    elimination leaves of a column is the square of the share that is its own.
    """
    size = len(rows[0])
    scales = [sum(row[column] ** 2 for row in rows) ** 0.5 for column in range(size)]
    if not all(scales):
        return None
    scaled = [[row[column] / scales[column] for column in range(size)] for row in rows]
    system = [
        [sum(row[i] * row[j] for row in scaled) for j in range(size)]
        + [sum(row[i] * value for row, value in zip(scaled, wanted, strict=True))]
        for i in range(size)
    ]
    solution = _solve(system)
    if solution is None:
        return None
    return [value / scale for value, scale in zip(solution, scales, strict=True)]


def _solve(system: list[list[float]]) -> list[float] | None:
    """Gauss-Jordan elimination with pivots on the diagonal; None for (almost) dependent columns."""
    size = len(system)
    left = list(range(size))
    while left:
        pivot = max(left, key=lambda column: system[column][column])
        if system[pivot][pivot] < _OWN_SHARE**2:
            return None
        left.remove(pivot)
        lead = system[pivot]
        for row in system:
            if row is not lead:
                factor = row[pivot] / lead[pivot]
                row[:] = [value - factor * above for value, above in zip(row, lead, strict=True)]
    return [system[index][-1] / system[index][index] for index in range(size)]
