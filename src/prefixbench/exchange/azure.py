"""Azure's LLM inference traces: when requests came, and how long they were; nothing of content.

CSV with `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure/AzurePublicDataset, 2023; the 2024 files
have the same columns).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from prefixbench.exchange.lines import open_bytes
from prefixbench.exchange.trace import ReadOptions, Trace, broken_trace
from prefixbench.simulator.trace import TraceRequest

COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")


def read_trace(path: Path, _options: ReadOptions) -> Trace:
    return Trace(
        name=path.name,
        requests=_requests(path),
        block_size=None,
        ids=None,
        notes=("the trace tells lengths and arrivals alone, not what requests share",),
    )


def _requests(path: Path) -> Iterator[TraceRequest]:
    with open_bytes(path) as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig"))
        first: datetime | None = None
        for number, row in enumerate(rows, start=2):
            try:
                arrival = datetime.fromisoformat(row["TIMESTAMP"])
                lengths = int(row["ContextTokens"]), int(row["GeneratedTokens"])
            except (KeyError, ValueError, TypeError) as error:
                raise broken_trace(
                    f"{path.name}, line {number}: no arrival or length can be read",
                    hint=f"CSV with the columns {', '.join(COLUMNS)}",
                ) from error
            first = first or arrival
            yield TraceRequest(
                input_len=lengths[0],
                output_len=lengths[1],
                arrival_ms=(arrival - first).total_seconds() * 1000,
            )
