"""Tables of a plan's page: how its ratio grows, and what conditions do to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table

from prefixbench.cli.tables import bar, plain_table
from prefixbench.core.wording import plural
from prefixbench.explain.wording import NONE, count, percent

#: Rows of hits against capacity, about.
_LISTED_CAPACITIES = 10

Document = Mapping[str, Any]


def trajectory(rows: Sequence[Document]) -> Table:
    """The ratio of all requests sent so far."""
    table = plain_table("requests sent", "hit ratio so far", "")
    for row in rows:
        table.add_row(count(row["requests"]), percent(row["hit_ratio"]), bar(row["hit_ratio"]))
    return table


def concurrency(document: Document) -> Group:
    """The designed ratio with requests in flight, in caches with room for everything."""
    table = plain_table("in flight", "hit ratio, caches without limit", "")
    for in_flight, ratio in document["designed_hit_ratio_at_concurrency"].items():
        table.add_row(in_flight, percent(ratio), bar(ratio))
    robust = plural(document["robust_to_concurrency"], "request")
    nearly = count(document["robust_to_concurrency_1pp"])
    return Group(table, f"as one by one for up to {robust} in flight, within 1 pp up to {nearly}")


def capacity(document: Document) -> Group:
    """Hits against the capacity of each cache, thinned; the last row loses nothing."""
    rows = document["capacity_curve"]
    step = max(1, len(rows) // _LISTED_CAPACITIES)
    table = plain_table("blocks a cache", "hit ratio, one request at a time", "")
    for row in [*rows[:-1:step], rows[-1]]:
        table.add_row(
            count(row["capacity_blocks"]), percent(row["hit_ratio"]), bar(row["hit_ratio"])
        )
    enough = plural(document["lossless_capacity_blocks"], "block")
    return Group(table, f"nothing is lost from {enough} on")


def tree(levels: Sequence[Document]) -> Table:
    """The levels of a tree of prefixes."""
    table = plain_table("level", "nodes", "ends at", "computed once", "costs")
    for level in levels:
        table.add_row(
            escape(level["name"]),
            count(level["nodes"]),
            NONE if level["ends_at"] is None else plural(level["ends_at"], "token"),
            plural(level["cold_start_loss"], "token"),
            f"{level['cost_pp']:.2f} pp",
        )
    return table


def routing(proof: Document) -> RenderableType:
    """What each routing would compute cold, and the largest cold starts of the planned one."""
    costs = plain_table("routing", "domains", "computed cold", "")
    for row in proof["routing_costs"]:
        costs.add_row(
            row["policy"],
            count(row["domains"]),
            f"{row['lost_pp']:.2f} pp",
            "planned" if row["planned"] else "",
        )
    return Group(costs, *_largest_domains(proof["cold_loss_by_domain"]))


def _largest_domains(rows: Sequence[Document]) -> Iterator[RenderableType]:
    if not rows:
        return
    table = plain_table("cold starts that cost most", "cache", "blocks", "costs")
    for row in rows:
        table.add_row(
            escape(row["prefix_group_id"]),
            count(row["cache"]),
            count(row["blocks"]),
            f"{row['cost_pp']:.2f} pp",
        )
    yield ""
    yield table
