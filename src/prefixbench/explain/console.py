"""The headline on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prefixbench.explain.wording import (
    headline_sentence,
    is_visible_pp,
    percent,
    points,
    points_pp,
    readable,
)

_COLOURS = {"PASS": "green", "PASS_WITH_WARNING": "yellow", "FAIL": "red"}


def print_headline(report: Mapping[str, Any], console: Console) -> None:
    """Print what the first screen of the page says, from the report's document."""
    colour = _COLOURS[report["status"]]
    sentence = headline_sentence(
        report["target_hit_ratio"], report["designed_hit_ratio"], report["actual_hit_rate"]
    )
    console.print(f"[bold]{sentence}[/bold]  [{colour}]{report['status']}[/]", highlight=False)
    console.print(_numbers(report))
    lines = [
        *(f"[yellow]note[/yellow] {escape(note)}" for note in report["notes"]),
        *(f"[bold]cause[/bold] {escape(cause)}" for cause in _causes(report)),
    ]
    for line in lines:
        console.print(line, highlight=False)


def _causes(report: Mapping[str, Any]) -> list[str]:
    """The named causes whose step can be seen, and those that have no size."""
    return [
        f"{readable(row['cause'])}{_step(row['contribution_pp'])}: {row['evidence']}"
        for row in report["attribution"]["verdicts"]
        if row["contribution_pp"] is None or is_visible_pp(row["contribution_pp"])
    ]


def _step(contribution_pp: float | None) -> str:
    return "" if contribution_pp is None else f" {points_pp(contribution_pp)}"


def _numbers(report: Mapping[str, Any]) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_column(justify="right")
    table.add_column()
    table.add_row("asked", percent(report["target_hit_ratio"], absent="per group"), "", "")
    table.add_row(
        "planned",
        percent(report["designed_hit_ratio"]),
        points(report["construction_deviation"], absent=""),
        report["construction_status"],
    )
    table.add_row(
        "measured",
        percent(report["actual_hit_rate"]),
        points(report["runtime_deviation"], absent=""),
        report["runtime_status"] or "",
    )
    return table
