"""The four prices of the cost model from measured step times.

A measured request gives two samples: its time to first token, a step that computed what was not
cached of its prompt, and its time per output token, a step of as many sequences as ran beside it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from prefixbench.simulator.cost import CostModel

_Row = tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepSample:
    """What a step computed, and how long it took."""

    prefill_tokens: int
    context_tokens: int
    decode_sequences: int
    duration_ns: float


def fit_cost_model(samples: Sequence[StepSample]) -> CostModel:
    """The prices, none negative, with the least sum of squared relative errors.

    Exact: at the optimum the prices above 0 are a plain least-squares fit, so every choice of them
    is tried. Raises ValueError without samples of positive duration.
    """
    rows = [_relative(sample) for sample in samples if sample.duration_ns > 0]
    if not rows:
        raise ValueError("a cost model is fitted to at least one step that took time")
    best = min(_candidates(rows), key=lambda prices: _squared_error(rows, prices))
    return CostModel(
        step_ns=best[0],
        prefill_token_ns=best[1],
        context_token_ns=best[2],
        decode_sequence_ns=best[3],
    )


def _relative(sample: StepSample) -> _Row:
    """The step's terms as shares of its duration, so that their priced sum should be 1."""
    terms = (1, sample.prefill_tokens, sample.context_tokens, sample.decode_sequences)
    return tuple(term / sample.duration_ns for term in terms)


def _candidates(rows: Sequence[_Row]) -> Iterator[_Row]:
    """Least-squares prices for each choice of terms, where none comes out negative."""
    for count in range(1, 5):
        for chosen in combinations(range(4), count):
            solved = _least_squares([tuple(row[term] for term in chosen) for row in rows])
            if solved is not None and min(solved) >= 0:
                prices = dict(zip(chosen, solved, strict=True))
                yield tuple(prices.get(term, 0.0) for term in range(4))


def _squared_error(rows: Sequence[_Row], prices: _Row) -> float:
    return sum(
        (sum(term * price for term, price in zip(row, prices, strict=True)) - 1) ** 2
        for row in rows
    )


def _least_squares(rows: Sequence[_Row]) -> list[float] | None:
    """Prices whose sums are nearest to 1; None where the terms do not tell them apart.

    Normal equations, solved by elimination; columns are scaled to one size first.
    """
    size = len(rows[0])
    scales = [max(abs(row[column]) for row in rows) for column in range(size)]
    if not all(scales):
        return None
    scaled = [[row[column] / scales[column] for column in range(size)] for row in rows]
    system = [
        [sum(row[i] * row[j] for row in scaled) for j in range(size)]
        + [sum(row[i] for row in scaled)]
        for i in range(size)
    ]
    solution = _solve(system)
    if solution is None:
        return None
    return [value / scale for value, scale in zip(solution, scales, strict=True)]


def _solve(system: list[list[float]]) -> list[float] | None:
    """Gauss-Jordan elimination with row pivots; None for a system without one solution."""
    size = len(system)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(system[row][column]))
        if abs(system[pivot][column]) < 1e-9 * len(system):
            return None
        system[column], system[pivot] = system[pivot], system[column]
        lead = system[column]
        for row in system:
            if row is not lead:
                factor = row[column] / lead[column]
                row[:] = [value - factor * above for value, above in zip(row, lead, strict=True)]
    return [row[-1] / row[index] for index, row in enumerate(system)]
