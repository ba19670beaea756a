"""A plan as a page in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from prefixbench.cli.tables import bar, plain_table
from prefixbench.config.overrides import as_options
from prefixbench.core.wording import plural
from prefixbench.explain.wording import count, percent, points, points_pp, readable

_COLOURS = {"PASS": "green", "PASS_WITH_WARNING": "yellow", "FAIL": "red"}
#: Prefix groups that are listed; the rest is counted.
_LISTED_GROUPS = 20
#: Rows of hits against capacity, about.
_LISTED_CAPACITIES = 10

Document = Mapping[str, Any]


def print_plan(document: Document, console: Console) -> None:
    """Print the validation report and the certificate of a plan."""
    console.print(verdict_line(document))
    for note in _notes(document):
        console.print(f"[yellow]note[/yellow] {escape(note)}")
    parts: list[RenderableType] = [_numbers(document), _groups(document["per_group"])]
    parts.append(_concurrency(document))
    if document["capacity_curve"] is not None:
        parts.append(_capacity(document))
    if not document["reachable"]:
        parts += [_reasons(document), _suggestions(document["suggestions"])]
    parts.append(_certificate(document["certificate"]))
    console.print(Group(*(Padding(part, (1, 0, 0, 0)) for part in parts)))


def _notes(document: Document) -> Iterator[str]:
    yield from document["wishes_left_out"]
    if document["concurrency_loss"] is not None:
        yield document["concurrency_loss"]["message"]


def verdict_line(document: Document) -> str:
    """Data set, designed ratio and status in one line."""
    status = str(document["validation_status"])
    designed = percent(document["designed_hit_ratio"])
    target = percent(document["target_hit_ratio"])
    return (
        f"[bold]{escape(document['dataset_id'])}[/bold]  {target} asked, {designed} designed"
        f"  [{_COLOURS[status]}]{status}[/{_COLOURS[status]}]"
    )


def _numbers(document: Document) -> Table:
    table = plain_table("hit ratio", "")
    table.add_row("target", percent(document["target_hit_ratio"]))
    table.add_row("designed", percent(document["designed_hit_ratio"]))
    table.add_row("deviation", points_pp(document["deviation_pp"]))
    table.add_row(
        "reachable",
        f"{percent(document['min_reachable_hit_ratio'])} to"
        f" {percent(document['max_reachable_hit_ratio'])}",
    )
    table.add_row(
        "tokens",
        f"{count(document['expected_hit_tokens'])} hits of {count(document['input_tokens'])}",
    )
    table.add_row("head, tail", f"{document['head_len']}, {document['tail_len']} tokens")
    return table


def _groups(rows: Sequence[Document]) -> RenderableType:
    table = plain_table("group", "target", "designed", "deviation", "most", "cold loss", "")
    for row in rows[:_LISTED_GROUPS]:
        table.add_row(
            escape(row["id"]),
            percent(row["target_hit_ratio"]),
            percent(row["designed_hit_ratio"]),
            points(row["signed_deviation"]),
            percent(row["max_reachable_hit_ratio"]),
            f"{count(row['cold_start_loss'])} tokens",
            bar(row["designed_hit_ratio"]),
        )
    hidden = len(rows) - _LISTED_GROUPS
    return table if hidden <= 0 else Group(table, f"and {plural(hidden, 'more group')} (--json)")


def _concurrency(document: Document) -> Group:
    table = plain_table("in flight", "designed hit ratio", "")
    for in_flight, ratio in document["designed_hit_ratio_at_concurrency"].items():
        table.add_row(in_flight, percent(ratio), bar(ratio))
    robust = plural(document["robust_to_concurrency"], "request")
    nearly = count(document["robust_to_concurrency_1pp"])
    return Group(table, f"exact for up to {robust} in flight, within 1 pp for up to {nearly}")


def _capacity(document: Document) -> Group:
    """Hits against the capacity of each cache, thinned; the last row loses nothing."""
    rows = document["capacity_curve"]
    step = max(1, len(rows) // _LISTED_CAPACITIES)
    table = plain_table("blocks a cache", "hit ratio", "")
    for row in [*rows[:-1:step], rows[-1]]:
        table.add_row(
            count(row["capacity_blocks"]), percent(row["hit_ratio"]), bar(row["hit_ratio"])
        )
    enough = count(document["lossless_capacity_blocks"])
    return Group(table, f"nothing is lost from {enough} blocks on")


def _reasons(document: Document) -> Table:
    table = plain_table("why the target is out of reach", "tokens", "costs")
    for reason in document["unreachable_reasons"]:
        table.add_row(
            escape(reason["message"]), count(reason["tokens"]), f"{reason['cost_pp']:.2f} pp"
        )
    return table


def _suggestions(suggestions: Sequence[Document]) -> Group:
    lines: list[RenderableType] = ["[bold]what would reach it[/bold]"]
    for suggestion in suggestions:
        how = as_options(suggestion["change"])
        lines += [
            f"{escape(suggestion['sentence'])}: up to {percent(suggestion['would_reach'])}",
            Padding(escape(how), (0, 0, 0, 4)),
        ]
    return Group(*lines)


def _certificate(certificate: Document) -> RenderableType:
    """The addition that proves the plan, in blocks."""
    return (
        "[dim]proof in blocks: "
        f"{count(certificate['sum_prefix_blocks'])} planned"
        f" - {count(certificate['cold_loss_blocks'])} cold"
        f" - {count(certificate['head_loss_blocks'])} head"
        f" = {count(certificate['hit_blocks'])} hits;"
        f" wanted {count(certificate['wanted_blocks'])},"
        f" {plural(certificate['search_steps'], readable('search_step'))}[/dim]"
    )
