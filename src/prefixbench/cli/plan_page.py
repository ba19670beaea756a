"""A plan as a page in the terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.padding import Padding
from rich.table import Table

from prefixbench.cli.plan_tables import capacity, concurrency, routing, trajectory, tree
from prefixbench.cli.tables import bar, plain_table
from prefixbench.config.overrides import as_options
from prefixbench.config.planning import BudgetPolicy
from prefixbench.core.wording import plural
from prefixbench.explain.wording import count, percent, points, points_pp, readable

_COLOURS = {"PASS": "green", "PASS_WITH_WARNING": "yellow", "FAIL": "red"}
#: Prefix groups that are listed; the rest is counted.
_LISTED_GROUPS = 20

Document = Mapping[str, Any]


def print_plan(document: Document, console: Console) -> None:
    """Print the validation report and the certificate of a plan."""
    console.print(verdict_line(document))
    for note in _notes(document):
        console.print(f"[yellow]note[/yellow] {escape(note)}")
    proof = document["certificate"]
    parts: list[RenderableType] = [_numbers(document), _groups(document["per_group"])]
    if document["tree"] is not None:
        parts.append(tree(document["tree"]))
    parts += [trajectory(document["cumulative_hit_ratio"]), concurrency(document)]
    if document["capacity_curve"] is not None:
        parts.append(capacity(document))
    if proof["routing_costs"]:
        parts.append(routing(proof))
    if not document["reachable"]:
        parts += [_reasons(document), _suggestions(document)]
    parts.append(_proof(document, proof))
    console.print(Group(*(Padding(part, (1, 0, 0, 0)) for part in parts)))


def _notes(document: Document) -> Iterator[str]:
    yield from document["wishes_left_out"]
    residual = document["residual_blocks"]
    if residual and document["reachable"] and document["coarse_steps"] is not None:
        side = "more than" if residual > 0 else "less than"
        yield f"{plural(abs(residual), 'block')} {side} wanted: {document['coarse_steps']}"
    if document["concurrency_loss"] is not None:
        allowed = document["concurrency_loss"]["concurrency"] <= document["planned_concurrency"]
        yield document["concurrency_loss"]["message"] + (
            "; the plan makes up for it" if allowed and document["reachable"] else ""
        )


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
    conditions = _planned_conditions(document)
    if conditions:
        table.add_row("planned for", conditions)
        table.add_row("without them", percent(document["designed_hit_ratio_unlimited"]))
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
    if document["budget_policy"] != BudgetPolicy.GLOBAL_RATIO:
        table.add_row("split by", readable(document["budget_policy"]))
    if document["sessions"] is not None:
        table.add_row("sessions", _sessions(document["sessions"]))
    if document["reuse_distance"] is not None:
        table.add_row("reuse distance", _reuse_distance(document["reuse_distance"]))
    return table


def _planned_conditions(document: Document) -> str:
    """What the plan allows for, in words; nothing for one request at a time and room for all."""
    conditions = []
    if document["planned_concurrency"] > 1:
        conditions.append(f"{plural(document['planned_concurrency'], 'request')} in flight")
    if document["planned_capacity_blocks"] is not None:
        conditions.append(f"caches of {plural(document['planned_capacity_blocks'], 'block')}")
    return ", ".join(conditions)


def _sessions(sessions: Document) -> str:
    return (
        f"{count(sessions['count'])}; {plural(sessions['later_turns'], 'later turn')}"
        f" {'finds' if sessions['later_turns'] == 1 else 'find'}"
        f" {percent(sessions['history_hit_ratio'])} in their histories, whatever is planned"
    )


def _reuse_distance(distance: Document) -> str:
    words = f"{plural(round(distance['p50']), 'request')} (median)"
    if distance["p10"] != distance["p90"]:
        words += f", {count(round(distance['p10']))} to {count(round(distance['p90']))} for most"
    if distance["wanted"] is not None:
        words += f"; {count(distance['wanted'])} wanted, had by {percent(distance['as_wanted'])}"
    return words


def _groups(rows: Sequence[Document]) -> RenderableType:
    table = plain_table("group", "target", "designed", "deviation", "most", "cold loss", "")
    for row in rows[:_LISTED_GROUPS]:
        table.add_row(
            escape(row["id"]),
            percent(row["target_hit_ratio"]),
            percent(row["designed_hit_ratio"]),
            points(row["signed_deviation"]),
            percent(row["max_reachable_hit_ratio"]),
            plural(row["cold_start_loss"], "token"),
            bar(row["designed_hit_ratio"]),
        )
    hidden = len(rows) - _LISTED_GROUPS
    return table if hidden <= 0 else Group(table, f"and {plural(hidden, 'more group')} (--json)")


def _reasons(document: Document) -> Table:
    table = plain_table("why the target is out of reach", "tokens", "costs")
    for reason in document["unreachable_reasons"]:
        table.add_row(
            escape(reason["message"]), count(reason["tokens"]), f"{reason['cost_pp']:.2f} pp"
        )
    return table


def _suggestions(document: Document) -> Group:
    parts: list[RenderableType] = []
    title = "what would reach it"
    if document["no_change_suffices"] is not None:
        parts.append(escape(document["no_change_suffices"]))
        title = "what can be had"
    parts += _changes(title, document["suggestions"])
    parts += _changes("what would come nearer", document["partial_changes"])
    return Group(*parts)


def _changes(title: str, changes: Sequence[Document]) -> Iterator[RenderableType]:
    if changes:
        yield f"[bold]{title}[/bold]"
    for change in changes:
        yield f"{escape(change['sentence'])}: up to {percent(change['would_reach'])}"
        yield Padding(escape(as_options(change["change"])), (0, 0, 0, 4))


def _proof(document: Document, proof: Document) -> RenderableType:
    """The additions that prove the plan, in blocks."""
    sums = (
        f"{count(proof['sum_prefix_blocks'])} planned"
        f" - {count(proof['cold_loss_blocks'])} cold"
        f" - {count(proof['head_loss_blocks'])} head"
        f" = {count(proof['sequential_hit_blocks'])} hits"
    )
    lost = proof["sequential_hit_blocks"] - proof["hit_blocks"]
    if lost:
        sums += f" - {count(lost)} with {_planned_conditions(document)}"
        sums += f" = {count(proof['hit_blocks'])} hits"
    wanted = f"wanted {count(proof['wanted_blocks'])}"
    if proof["counted_blocks"] != proof["hit_blocks"]:
        wanted += f" of the {count(proof['counted_blocks'])} that count"
    steps = plural(proof["search_steps"], readable("search_step"))
    return f"[dim]proof in blocks: {sums}; {wanted}, {steps}[/dim]"
