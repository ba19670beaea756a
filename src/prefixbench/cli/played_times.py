"""What simulated requests took, as rows of a document and as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.core.percentiles import percentile
from prefixbench.simulator.stats import compute_tpot

if TYPE_CHECKING:
    from rich.table import Table

    from prefixbench.simulator.cost import CostModel
    from prefixbench.simulator.stopwatch import Moments

_QUANTILES = (50, 90, 99)

#: Keys of a document's times, and how the page calls them.
_TIMES = {
    "queued_ms": "in the queue",
    "ttft_ms": "time to first token",
    "tpot_ms": "a token of the answer",
    "e2e_ms": "whole time",
}


def cost_of(file: Path | None) -> CostModel | None:
    """The cost model of a file; None where no file is given."""
    from prefixbench.simulator.cost_file import read_cost

    return None if file is None else read_cost(file)


def times_document(moments: Collection[Moments]) -> dict[str, Any]:
    """Quantiles of what requests took, at least one; tpot leaves out answers of one token."""
    tpots = [
        compute_tpot(one.first_token_ns, one.finished_ns, one.output_len)
        for one in moments
        if one.output_len > 1
    ]
    begin_ns = min(one.sent_ns for one in moments)
    duration_s = (max(one.finished_ns for one in moments) - begin_ns) / 1e9
    return {
        "duration_s": duration_s,
        "request_throughput": len(moments) / duration_s if duration_s else None,
        "queued_ms": _quantiles(one.queued_ns for one in moments),
        "ttft_ms": _quantiles(one.ttft_ns for one in moments),
        "tpot_ms": _quantiles(tpots),
        "e2e_ms": _quantiles(one.e2e_ns for one in moments),
    }


def _quantiles(times_ns: Iterable[float]) -> dict[str, float | None]:
    times_ms = [time / 1e6 for time in times_ns]
    return {f"p{q}": percentile(times_ms, q) for q in _QUANTILES}


def times_table(times: Mapping[str, Any]) -> Table:
    """One line a kind of time, in ms."""
    from prefixbench.cli.tables import plain_table
    from prefixbench.explain.wording import quantity

    table = plain_table("ms", *(f"p{q}" for q in _QUANTILES))
    for key, name in _TIMES.items():
        table.add_row(name, *(quantity(times[key][f"p{q}"]) for q in _QUANTILES))
    return table


def times_line(times: Mapping[str, Any]) -> str:
    """How long all of them took together."""
    from prefixbench.explain.wording import quantity

    rate = quantity(times["request_throughput"])
    return f"{quantity(times['duration_s'])} s in all, {rate} requests/s"
