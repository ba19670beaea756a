"""The headline on a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from prefixbench.explain.wording import headline_sentence, percent, points, points_pp, readable

_COLOURS = {"PASS": "green", "PASS_WITH_WARNING": "yellow", "FAIL": "red"}


def print_headline(report: Mapping[str, Any], console: Console) -> None:
    """Print what the first screen of the page says, from the report's document."""
    colour = _COLOURS[report["status"]]
    sentence = headline_sentence(
        report["target_hit_ratio"], report["designed_hit_ratio"], report["actual_hit_rate"]
    )
    console.print(f"[bold]{sentence}[/bold]  [{colour}]{report['status']}[/{colour}]")
    console.print(_numbers(report))
    for note in report["notes"]:
        console.print(f"[yellow]note[/yellow] {escape(note)}")
    for verdict in report["attribution"]["verdicts"]:
        console.print(
            f"{readable(verdict['cause'])} {points_pp(verdict['contribution_pp'])}: "
            f"{escape(verdict['evidence'])}"
        )


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
