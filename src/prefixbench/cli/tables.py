"""Tables and bars, the same on every page of the terminal."""

from __future__ import annotations

from rich.table import Table

_BAR_CELLS = 30


def plain_table(first: str, *others: str) -> Table:
    """A table without lines: the first column is text, others are numbers unless unnamed."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column(first, overflow="fold")
    for other in others:
        table.add_column(other, justify="right" if other else "left", overflow="fold")
    return table


def bar(fraction: float) -> str:
    """A ratio as a bar; a full one is thirty cells.

    >>> bar(0.1)
    '███'
    """
    return "█" * round(fraction * _BAR_CELLS)
