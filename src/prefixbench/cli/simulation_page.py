"""A simulation, and the table of engine profiles, as pages in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from prefixbench.cli.played_times import times_line, times_table
from prefixbench.cli.tables import bar, plain_table
from prefixbench.core.wording import plural
from prefixbench.explain.wording import count, percent, points, readable

#: Rules that the table of profiles shows; --json has all of them, and their sources.
_SHOWN_RULES = (
    "block_size",
    "last_token",
    "publish",
    "keyless_freed",
    "eviction",
    "counting",
)


def print_rehearsal(document: Mapping[str, Any], console: Console) -> None:
    """Print what a simulated engine found cached."""
    predicted, designed = document["predicted_hit_ratio"], document["designed_hit_ratio"]
    capacity = document["capacity_blocks"]
    blocks = "unlimited blocks" if capacity is None else plural(capacity, "block")
    console.print(
        f"[bold]{escape(document['dataset_id'])}[/bold]  {percent(designed)} designed,"
        f" {percent(predicted)} predicted ({points(predicted - designed)})"
    )
    console.print(
        f"{escape(document['profile'])}, {blocks} of {document['block_size']} tokens,"
        f" {plural(document['concurrency'], 'request')} in flight:"
        f" {count(document['evicted_blocks'])} evicted, {count(document['preemptions'])} preempted"
    )
    console.print(_hit_table("group", document["groups"], "id"))
    if len(document["ranks"]) > 1:
        console.print(_hit_table("rank", document["ranks"], "rank"))
    print_tiers(document, console)
    if document["times"] is not None:
        console.print()
        console.print(times_table(document["times"]))
        console.print(times_line(document["times"]))
    if document["curve"] is not None:
        _print_curve(document["curve"], console)


def print_tiers(document: Mapping[str, Any], console: Console) -> None:
    """Print what the tiers below a cache gave, if there are any."""
    if document["tiers"]:
        console.print(_hit_table("tier below", document["tiers"], "name"))
        console.print(f"{percent(document['combined_hit_ratio'])} found in all tiers together")


def _hit_table(title: str, rows: Sequence[Mapping[str, Any]], name: str) -> Table:
    """One line for each row, which is named by its field `name`."""
    table = plain_table(title, "tokens", "hits", "predicted", "")
    for row in rows:
        table.add_row(
            escape(str(row[name])),
            count(row["queries"]),
            count(row["hits"]),
            percent(row["hit_ratio"]),
            bar(row["hit_ratio"] or 0),
        )
    return table


def _print_curve(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    table = plain_table("blocks a cache", "hit ratio", "")
    for row in rows:
        table.add_row(
            count(row["capacity_blocks"]), percent(row["hit_ratio"]), bar(row["hit_ratio"])
        )
    console.print(table)


def print_profiles(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """Print one line a profile, with the rules that matter most."""
    names = Column("profile", no_wrap=True)
    table = Table(names, "versions", *map(readable, _SHOWN_RULES), box=box.SIMPLE)
    for row in rows:
        rules = (escape(str(row[rule])) for rule in _SHOWN_RULES)
        table.add_row(escape(row["name"]), escape(f"{row['engine']} {row['versions']}"), *rules)
    console.print(table)
    console.print("--json has every rule, and where each value comes from")
