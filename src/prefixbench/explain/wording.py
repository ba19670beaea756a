"""How numbers are said to a person: one place for signs, digits and units.

What was not measured is said in words (RFC: nothing measured is null, never 0).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NOT_MEASURED = "not measured"
NONE = "–"
_MINUS = "−"


def percent(fraction: float | None, *, absent: str = NOT_MEASURED) -> str:
    """A ratio or rate as a percentage with two digits.

    >>> percent(0.6), percent(None)
    ('60.00 %', 'not measured')
    """
    return absent if fraction is None else f"{fraction * 100:.2f} %"


def measured(rate: float | None) -> str:
    """A rate as the end of a sentence.

    >>> measured(0.5), measured(None)
    ('50.00 % measured', 'not measured')
    """
    return NOT_MEASURED if rate is None else f"{percent(rate)} measured"


def points(fraction: float | None, *, absent: str = NOT_MEASURED) -> str:
    """A deviation, given as a fraction, in signed percentage points.

    >>> points(0.0002), points(-0.0123), points(0.0)
    ('+0.02 pp', '−1.23 pp', '0.00 pp')
    """
    return absent if fraction is None else points_pp(fraction * 100)


def points_pp(value: float | None, *, absent: str = NOT_MEASURED) -> str:
    """A deviation, given in percentage points, with its sign.

    >>> points_pp(-0.001)
    '0.00 pp'
    """
    if value is None:
        return absent
    sign = ("+" if value > 0 else _MINUS) if is_visible_pp(value) else ""
    return f"{sign}{abs(value):.2f} pp"


def is_visible_pp(value: float) -> bool:
    """Whether a deviation in points is more than 0.00 when printed.

    >>> is_visible_pp(-0.005), is_visible_pp(0.0049)
    (True, False)
    """
    return abs(value) >= 0.005


def count(value: float | None, *, absent: str = NONE) -> str:
    """A whole number with separated thousands.

    >>> count(1234567)
    '1,234,567'
    """
    return absent if value is None else f"{value:,.0f}"


def quantity(value: float | None, *, absent: str = NONE) -> str:
    """A measured number with as many digits as a reader can use.

    >>> quantity(0.1234), quantity(12.345), quantity(1234.5)
    ('0.123', '12.35', '1,234')
    """
    if value is None:
        return absent
    magnitude = abs(value)
    if magnitude >= 1000:
        return f"{value:,.0f}"
    if magnitude >= 100:
        return f"{value:.1f}"
    return f"{value:.2f}" if magnitude >= 1 else f"{value:.3g}"


def readable(word: str) -> str:
    """A key of a file as words.

    >>> readable("progressive_prefix_fill")
    'progressive prefix fill'
    """
    return word.replace("_", " ")


def headline_sentence(target: float | None, designed: float | None, actual: float | None) -> str:
    """The answer in one sentence.

    >>> headline_sentence(0.6, 0.6, 0.59984)
    '60.00 % asked, 60.00 % planned, 59.98 % measured'
    """
    asked = percent(target, absent="none")
    return f"{asked} asked, {percent(designed)} planned, {measured(actual)}"


def pick(document: Mapping[str, Any] | None, *path: str) -> Any:
    """The value at a path of nested documents; None where a step is missing.

    >>> pick({"a": {"b": 1}}, "a", "b"), pick({"a": None}, "a", "b")
    (1, None)
    """
    value: Any = document
    for key in path:
        if not isinstance(value, Mapping):
            return None
        value = value.get(key)
    return value
