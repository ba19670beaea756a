"""Fields of foreign rows, taken with a check; errors name the field and never what it holds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


class FieldError(ValueError):
    """A field that is missing, or holds no value of its kind."""


def whole(row: Mapping[str, Any], name: str, *, least: int = 0) -> int:
    """A whole number, at least `least`; digits in quotes are one too."""
    value = number(row, name)
    if value != int(value) or value < least:
        raise FieldError(f"{name} is no whole number from {least} on")
    return int(value)


def number(row: Mapping[str, Any], name: str) -> float | int:
    """A finite number; one in quotes too."""
    value = _present(row, name)
    if isinstance(value, str):
        value = _number_in(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise FieldError(f"{name} is no number")
    return value


def optional_whole(row: Mapping[str, Any], name: str) -> int | None:
    """As `whole`; None where the row does not tell."""
    return None if row.get(name) is None else whole(row, name)


def optional_number(row: Mapping[str, Any], name: str) -> float | int | None:
    """As `number`; None where the row does not tell."""
    return None if row.get(name) is None else number(row, name)


def ids(row: Mapping[str, Any], name: str, *, least: int | None = None) -> Sequence[int]:
    """A list of whole numbers, all at least `least`."""
    values = _present(row, name)
    if not isinstance(values, list) or not all(type(value) is int for value in values):
        raise FieldError(f"{name} is no list of whole numbers")
    if least is not None and min(values, default=least) < least:
        raise FieldError(f"{name} has a number below {least}")
    return values


def runs(row: Mapping[str, Any], name: str) -> tuple[range, ...]:
    """Runs of consecutive numbers out of a list of their starts and lengths."""
    numbers = ids(row, name)
    if len(numbers) % 2 or any(length < 0 for length in numbers[1::2]):
        raise FieldError(f"{name} is no list of starts and lengths")
    pairs = zip(numbers[::2], numbers[1::2], strict=True)
    return tuple(range(start, start + length) for start, length in pairs)


def rows(row: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    """A list of mappings."""
    values = _present(row, name)
    if not isinstance(values, list) or not all(isinstance(value, dict) for value in values):
        raise FieldError(f"{name} is no list of objects")
    return values


def _present(row: Mapping[str, Any], name: str) -> Any:
    if row.get(name) is None:
        raise FieldError(f"{name} is missing")
    return row[name]


def _number_in(text: str) -> float | int | None:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return None
