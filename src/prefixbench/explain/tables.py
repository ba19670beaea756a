"""Tables of the page: a column is a heading, a way to say its value, and its alignment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.explain.markup import Child, Html, element

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Column:
    """One column; `say` turns a row into what stands in its cell."""

    heading: str
    say: Callable[[Row], Child]
    kind: str = "number"


def table(
    columns: Sequence[Column],
    rows: Sequence[Row],
    *,
    id_: str | None = None,
    class_: str | None = None,
) -> Html:
    """A table with a row for each of `rows`."""
    head = element("tr", [element("th", column.heading, class_=column.kind) for column in columns])
    body = [
        element("tr", [element("td", column.say(row), class_=column.kind) for column in columns])
        for row in rows
    ]
    return element("table", element("thead", head), element("tbody", body), id=id_, class_=class_)


def badge(status: str | None, text: str | None = None) -> Html:
    """A status as a coloured word; the colour follows the status."""
    shown = (text or status or "not measured").replace("_", " ")
    return element("span", shown, class_=f"badge {TONES.get(status or '', '')}".strip())


#: Classes that colour a status.
TONES: Mapping[str, str] = {
    "PASS": "PASS",
    "PASS_WITH_WARNING": "PASS_WITH_WARNING",
    "FAIL": "FAIL",
    "ok": "PASS",
    "explained": "PASS_WITH_WARNING",
    "warn": "PASS_WITH_WARNING",
    "unexplained": "FAIL",
    "fail": "FAIL",
}


def facts(pairs: Sequence[tuple[str, Child]]) -> Html:
    """Names with their values, one below the other."""
    return element("dl", [part for name, value in pairs for part in _fact(name, value)])


def _fact(name: str, value: Child) -> tuple[Html, Html]:
    return element("dt", name), element("dd", value)
