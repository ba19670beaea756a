"""A simulated trace as a page in the terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.markup import escape

from prefixbench.cli.played_times import times_line, times_table
from prefixbench.cli.simulation_page import print_tiers
from prefixbench.cli.tables import bar, plain_table
from prefixbench.core.wording import plural
from prefixbench.explain.wording import NONE, count, percent, quantity


def print_trace(document: Mapping[str, Any], console: Console) -> None:
    """Print what a trace is and what a cache would find of it."""
    console.print(f"[bold]{escape(document['trace'])}[/bold]  {_size(document)}")
    if document["hit_ratios"]:
        console.print(_setting(document))
        if document["engine"] is not None:
            console.print(_engine(document["engine"]))
            print_tiers(document["engine"], console)
        console.print()
        _print_definitions(document, console)
        console.print()
        _print_reuse(document, console)
        if document["conversations"] is not None:
            console.print(_conversations(document["conversations"]))
        if document["curve"] is not None:
            console.print()
            _print_curve(document, console)
    if document["engine"] is not None and document["engine"]["times"] is not None:
        console.print()
        console.print(times_table(document["engine"]["times"]))
        console.print(times_line(document["engine"]["times"]))
    console.print()
    _print_lengths(document, console)
    if document["hit_ratios"]:
        console.print(f"comparable with {escape(document['comparable_with'])}")
    engine_notes = document["engine"]["notes"] if document["engine"] is not None else ()
    for note in (*document["notes"], *engine_notes):
        console.print(f"note {escape(note)}")


def _size(document: Mapping[str, Any]) -> str:
    requests = plural(document["requests"], "request")
    if not document["hit_ratios"]:
        return requests
    blocks = document["blocks"]
    return (
        f"{requests}, {plural(blocks['accesses'], 'block access', 'block accesses')},"
        f" {plural(blocks['unique'], 'different block')} of {document['block_size']} tokens"
    )


def _setting(document: Mapping[str, Any]) -> str:
    capacity = document["capacity_blocks"]
    size = "no limit" if capacity is None else plural(capacity, "block")
    in_flight = plural(document["concurrency"], "request")
    lifetime = "" if document["ttl_s"] is None else f", gone after {document['ttl_s']:g} s"
    return (
        f"{percent(document['hit_ratio'])} hit ({document['hit_definition']}):"
        f" {document['policy']}, {size}, {in_flight} in flight{lifetime};"
        f" {percent(document['unlimited_hit_ratio'])} without limit"
    )


def _engine(row: Mapping[str, Any]) -> str:
    behind = f" behind {row['routing']}" if row["routing"] else ""
    return (
        f"{percent(row['hit_ratio'])} hit by {plural(len(row['ranks']), 'engine')} of"
        f" {escape(row['profile'])}{behind}: {count(row['evicted_blocks'])} evicted,"
        f" {count(row['preemptions'])} preempted"
    )


def _print_definitions(document: Mapping[str, Any], console: Console) -> None:
    table = plain_table("definition", "hits", "out of", "hit ratio", "")
    for row in document["hit_ratios"]:
        table.add_row(
            row["definition"],
            count(row["hits"]),
            f"{count(row['queries'])} {row['unit']}s" if row["unit"] else NONE,
            percent(row["hit_ratio"]),
            bar(row["hit_ratio"] or 0),
        )
    console.print(table)


def _print_reuse(document: Mapping[str, Any], console: Console) -> None:
    table = plain_table("of all that can be found", "needs blocks")
    for row in document["reuse"]:
        table.add_row(f"{row['share']:.0%}", count(row["blocks"]))
    console.print(table)
    console.print()
    popularity = document["popularity"]
    top = plain_table("most used blocks", "blocks", "of all accesses")
    for row in popularity["top"]:
        share = percent(row["accesses_share"])
        top.add_row(f"top {row['blocks_share']:.1%}", count(row["blocks"]), share)
    console.print(top)
    console.print(
        f"the most used block: {plural(popularity['most_used'] or 0, 'request')};"
        f" used once: {percent(popularity['used_once_share'])} of the blocks"
    )


def _conversations(ratios: Mapping[str, Any]) -> str:
    return (
        f"{plural(ratios['count'], 'conversation')}, each taken alone: median"
        f" {percent(ratios['p50'])}, mean {percent(ratios['mean'])} of its blocks"
    )


def _print_curve(document: Mapping[str, Any], console: Console) -> None:
    table = plain_table("blocks", "tokens", document["policy"], "optimal", "")
    for row in document["curve"]:
        table.add_row(
            count(row["capacity_blocks"]),
            count(row["capacity_tokens"]),
            percent(row["hit_ratio"]),
            percent(row["optimal_hit_ratio"], absent=NONE),
            bar(row["hit_ratio"] or 0),
        )
    console.print(table)


def _print_lengths(document: Mapping[str, Any], console: Console) -> None:
    names = ("mean", "p50", "p90", "p99", "max")
    table = plain_table("tokens", *names)
    for key in ("input_length", "output_length"):
        if document[key]["count"]:
            table.add_row(key.replace("_", " "), *(count(document[key][name]) for name in names))
    console.print(table)
    arrivals = document["arrivals"]
    if arrivals is not None:
        console.print(
            f"{quantity(arrivals['requests_per_s'])} requests/s"
            f" over {count(arrivals['duration_s'])} s"
        )
