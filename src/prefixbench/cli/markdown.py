"""The little of Markdown that the reference pages need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

#: Second block of every page.
MADE_BY = "<!-- Made by `python -m prefixbench.cli.reference`; do not edit. -->"


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Lines of a table, and an empty line behind it."""
    yield _line(header)
    yield _line(["---"] * len(header))
    yield from map(_line, rows)
    yield ""


def _line(cells: Sequence[str]) -> str:
    escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
    return f"| {' | '.join(escaped)} |"
