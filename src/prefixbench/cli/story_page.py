"""A story as a page in the terminal: requests in blocks, then steps, then what is left."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from prefixbench.core.wording import plural
from prefixbench.explain.wording import NONE, count, percent, quantity

#: Between a prompt and its answer.
_ANSWER = "›"

#: Blocks of the queue that are listed.
_MOST_LISTED = 12


def print_story(document: Mapping[str, Any], console: Console) -> None:
    """Print which blocks each request has and found, and what every step did."""
    console.print(f"[bold]{escape(document['story'])}[/bold]  {_setting(document)}")
    console.print()
    console.print(_requests(document))
    console.print()
    console.print(_steps(document["steps"]))
    console.print()
    for line in _endings(document):
        console.print(line, markup=False)


def _setting(document: Mapping[str, Any]) -> str:
    capacity = document["capacity_blocks"]
    room = "no limit" if capacity is None else plural(capacity, "block")
    return f"{document['profile']}, {plural(document['block_size'], 'token')} a block, {room}"


def _table(*columns: str) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    for column in columns:
        table.add_column(column.replace("_", " "), overflow="fold")
    return table


def _requests(document: Mapping[str, Any]) -> Table:
    rows = document["requests"]
    keys = [name for name in ("lora", "cache_salt") if any(row[name] for row in rows)]
    below = ["host"] * any(row["tier_hit_tokens"] for row in rows)
    legend = " ".join(["[found]", *("{host}" for _tier in below), "computed › answer"])
    table = _table("request", *keys, escape(legend), "hit", *below)
    for row in rows:
        hit = f"{count(row['hit_tokens'])} of {count(row['input_len'])}"
        table.add_row(
            escape(row["id"]),
            *(escape(row[name] or NONE) for name in keys),
            Text(_blocks(row, document["block_size"])),
            hit,
            *(count(row["tier_hit_tokens"]) for _tier in below),
        )
    return table


def _blocks(row: Mapping[str, Any], block_size: int) -> str:
    """`[1:abcd] {2:efgh} 3:ijkl m›n`: found, found in the host's memory, computed, the answer."""
    numbers = [block["block"] for block in row["blocks"]]
    before = _signs(row)
    shown = []
    for place, token in enumerate(row["tokens"]):
        closing, opening = before.get(place, ("", ""))
        starts_block = place % block_size == 0
        shown.append(closing)
        if place and numbers and starts_block:
            shown.append(" ")
        shown.append(opening)
        if starts_block and place // block_size < len(numbers):
            shown.append(f"{numbers[place // block_size]}:")
        shown.append(token)
    return "".join(shown)


def _signs(row: Mapping[str, Any]) -> dict[int, tuple[str, str]]:
    """What stands before the token at a place: signs that close, and signs that open."""
    found = row["hit_tokens"] or 0
    known = found + row["tier_hit_tokens"]
    signs: dict[int, tuple[str, str]] = {}
    for start, end, pair in ((0, found, "[]"), (found, known, "{}")):
        if start < end:
            signs[start] = (signs.get(start, ("", ""))[0], pair[0])
            signs[end] = (pair[1], "")
    closing, _opening = signs.get(row["input_len"], ("", ""))
    return signs | {row["input_len"]: (closing, _ANSWER)}


def _steps(rows: Sequence[Mapping[str, Any]]) -> Table:
    optional = [name for name in ("evicted", "preempted") if any(row[name] for row in rows)]
    counted = [name for name in ("free_blocks", "waiting") if any(row[name] for row in rows)]
    timed = ["ms"] * any(row["duration_ms"] for row in rows)
    table = _table("step", "computed", "found", *optional, "finished", *counted, *timed)
    for row in rows:
        table.add_row(
            _numbers(row),
            _pairs(row["computed"]) or NONE,
            _pairs({name: hit for name, hit in row["hits"].items() if hit}),
            *(_listed(row[name]) for name in optional),
            _listed(row["finished"]),
            *(count(row[name]) for name in counted),
            *(quantity(row["duration_ms"]) for _ms in timed),
        )
    return table


def _numbers(row: Mapping[str, Any]) -> str:
    first, times = row["step"], row["times"]
    return str(first) if times == 1 else f"{first}-{first + times - 1}"


def _pairs(tokens: Mapping[str, int]) -> Text:
    return Text("  ".join(f"{name} {count(number)}" for name, number in tokens.items()))


def _listed(entries: Iterable[Mapping[str, Any] | str | None]) -> Text:
    """Names of requests, or blocks with what is in them."""
    return Text(" ".join(map(_name, entries)))


def _name(entry: Mapping[str, Any] | str | None) -> str:
    match entry:
        case None:
            return NONE
        case str():
            return entry
        case _:
            return f"{entry['block']}:{entry['tokens']}"


def _endings(document: Mapping[str, Any]) -> Iterator[str]:
    yield (
        f"{count(document['hits'])} of {count(document['queries'])} tokens hit"
        f" ({percent(document['hit_rate'], absent='nothing was queried')});"
        f" without each prompt's last block {count(document['hit_blocks'])} of"
        f" {plural(document['query_blocks'], 'block')}"
    )
    if document["tier_hits"]:
        yield f"{count(document['tier_hits'])} tokens more out of the host's memory"
    if document["preempted_queries"]:
        yield (
            f"looked up again after a preemption, and not exported:"
            f" {count(document['preempted_hits'])} of {count(document['preempted_queries'])} tokens"
        )
    cache = document["cache"]
    if cache is not None and cache["queue"]:
        blank = cache["blank_blocks"]
        first = "" if not blank else f"{plural(blank, 'empty block')}, then "
        queue = cache["queue"]
        more = len(queue) - _MOST_LISTED
        others = f" and {count(more)} more" if more > 0 else ""
        yield f"next to be overwritten: {first}{_listed(queue[:_MOST_LISTED])}{others}"
