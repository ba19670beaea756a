"""Azure's LLM inference traces: when requests came, and how long they were; nothing of content.

CSV with `TIMESTAMP,ContextTokens,GeneratedTokens` (Azure/AzurePublicDataset, 2023; the 2024 files
have the same columns).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

from prefixbench.exchange import fields
from prefixbench.exchange.fields import FieldError
from prefixbench.exchange.lines import csv_rows
from prefixbench.exchange.trace import ReadOptions, Trace
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
    first: datetime | None = None
    for arrival, input_len, output_len in csv_rows(path, _row, fields=", ".join(COLUMNS)):
        first = first or arrival
        yield TraceRequest(
            input_len=input_len,
            output_len=output_len,
            arrival_ms=(arrival - first).total_seconds() * 1000,
        )


def _row(row: Mapping[str, str]) -> tuple[datetime, int, int]:
    try:
        arrival = datetime.fromisoformat(row.get("TIMESTAMP", ""))
    except ValueError as error:
        raise FieldError("TIMESTAMP is no date with a time") from error
    return arrival, fields.whole(row, "ContextTokens"), fields.whole(row, "GeneratedTokens")
