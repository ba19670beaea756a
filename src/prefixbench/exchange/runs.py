"""This project's compact form of a trace: runs of consecutive ids, gzipped JSON lines.

The first line is the trace's header, with the SHA-256 of the file it was read from; every other
line is a request: `[input_len, output_len, arrival_ms, conversation, [start, length, …]]`.
Reading it costs a fraction of reading id lists; the same trace gives the same bytes.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from typing import IO, Any

import orjson

from prefixbench.exchange import fields
from prefixbench.exchange.lines import first_line, json_rows
from prefixbench.exchange.trace import ReadOptions, Trace, broken_trace
from prefixbench.simulator.trace import BlockIds, TraceRequest

FORMAT = "prefixbench-trace/1"

_COLUMNS = ("input_len", "output_len", "arrival_ms", "conversation", "runs")
_FIELDS = "[input_len, output_len, arrival_ms, conversation, [start, length, …]]"
_HINT = f"a file of the form {FORMAT}, as `prefixbench trace convert --to runs` writes it"


@dataclass(frozen=True, slots=True, kw_only=True)
class Header:
    """What the first line says of the trace and of the file it came from."""

    name: str
    source_format: str
    source_sha256: str
    block_size: int | None
    ids: BlockIds | None
    chosen: str
    notes: tuple[str, ...]


def read_trace(path: Path, _options: ReadOptions) -> Trace:
    try:
        document = orjson.loads(first_line(path))
        if document.pop("format") != FORMAT:
            raise ValueError(FORMAT)
        header = Header(**document)
        return Trace(
            name=header.name,
            requests=json_rows(path, _request, fields=_FIELDS, skipped=1),
            block_size=header.block_size,
            ids=None if header.ids is None else BlockIds(header.ids),
            chosen=header.chosen,
            notes=tuple(header.notes),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise broken_trace(f"{path.name} has no header of this form", hint=_HINT) from error


def _request(values: list[Any]) -> TraceRequest:
    row = dict(zip(_COLUMNS, values, strict=True))
    return TraceRequest(
        input_len=fields.whole(row, "input_len"),
        output_len=fields.optional_whole(row, "output_len"),
        arrival_ms=fields.optional_number(row, "arrival_ms"),
        conversation=fields.optional_whole(row, "conversation"),
        blocks=fields.runs(row, "runs"),
    )


def write_trace(header: Header, requests: Iterable[TraceRequest], file: IO[bytes]) -> int:
    """Write a trace in this form; return how many requests it has."""
    count = 0
    with gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as packed:
        packed.write(_line({"format": FORMAT} | asdict(header)))
        for request in requests:
            packed.write(_line(_row(request)))
            count += 1
    return count


def _line(value: Any) -> bytes:
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def _row(request: TraceRequest) -> list[Any]:
    runs = chain.from_iterable((run.start, len(run)) for run in request.blocks)
    return [
        request.input_len,
        request.output_len,
        request.arrival_ms,
        request.conversation,
        list(runs),
    ]
