"""Measured requests: rows of a run directory, or a plain table of anybody's.

JSON lines or CSV with a header; gzipped or not. Columns: `sent`, `first_token`, `finished`, each
with its unit (`sent_ns`, `sent_ms` or `sent_s`) and all on one clock, `prompt_tokens`,
`output_tokens`, and where known `cached_tokens`. Others are passed over. A row whose `status` is
not `ok`, or without a first token, was not answered and is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from prefixbench.exchange import fields
from prefixbench.exchange.fields import FieldError
from prefixbench.exchange.lines import csv_rows, json_rows
from prefixbench.exchange.trace import broken_trace
from prefixbench.simulator.cost_run import MeasuredRequest

FIELDS = "sent_ns, first_token_ns, finished_ns (or _ms, _s), prompt_tokens, output_tokens"

#: Where a run directory has its rows.
_RUN_ROWS = Path("runtime", "request_results.jsonl")

_UNITS = {"ns": 1, "ms": 1_000_000, "s": 1_000_000_000}


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """Answered requests, and how many rows were left out."""

    requests: list[MeasuredRequest]
    left_out: int


def read_measured(source: Path) -> MeasuredRun:
    """The requests of a run directory or of a file; raises ConfigError naming line and field."""
    path = source / _RUN_ROWS if source.is_dir() else source
    is_table = ".csv" in path.suffixes
    found = list((csv_rows if is_table else json_rows)(path, _request_of, fields=FIELDS))
    requests = [row for row in found if row is not None]
    if not requests:
        raise broken_trace(f"{path.name} holds no answered request", hint=f"rows with {FIELDS}")
    if all(request.finished_ns == request.sent_ns for request in requests):
        raise broken_trace(f"no request of {path.name} took time", hint=f"rows with {FIELDS}")
    return MeasuredRun(requests, len(found) - len(requests))


def _request_of(row: Mapping[str, Any]) -> MeasuredRequest | None:
    first_token_ns = _moment(row, "first_token")
    if row.get("status", "ok") != "ok" or first_token_ns is None:
        return None
    input_len = fields.whole(row, "prompt_tokens", least=1)
    sent_ns, finished_ns = _told_moment(row, "sent"), _told_moment(row, "finished")
    if not sent_ns <= first_token_ns <= finished_ns:
        raise FieldError("sent, first_token and finished do not follow each other")
    return MeasuredRequest(
        input_len=input_len,
        output_len=fields.whole(row, "output_tokens", least=1),
        cached_len=min(fields.optional_whole(row, "cached_tokens") or 0, input_len - 1),
        sent_ns=sent_ns,
        first_token_ns=first_token_ns,
        finished_ns=finished_ns,
    )


def _told_moment(row: Mapping[str, Any], name: str) -> int:
    moment_ns = _moment(row, name)
    if moment_ns is None:
        raise FieldError(f"{name}_ns is missing")
    return moment_ns


def _moment(row: Mapping[str, Any], name: str) -> int | None:
    """A moment in ns, in whichever unit the row tells it."""
    for unit, factor in _UNITS.items():
        value = fields.optional_number(row, f"{name}_{unit}")
        if value is not None:
            return round(value * factor)
    return None
