"""Mooncake's trace form, which AIPerf and others write too.

`timestamp` (ms), `input_length`, `output_length`, `hash_ids`: one prefix id for each 512 tokens,
the last one for what is left (kvcache-ai/Mooncake, FAST25-release). A line may carry `session_id`,
and `block_size` where it is not 512.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

import orjson

from prefixbench.exchange import fields
from prefixbench.exchange.lines import json_rows, stated_block_size
from prefixbench.exchange.trace import ReadOptions, Trace
from prefixbench.simulator.trace import BlockIds, TraceRequest, runs_of_ids

BLOCK_SIZE = 512

_FIELDS = "input_length and hash_ids, and where known timestamp (ms) and output_length"


def read_trace(path: Path, options: ReadOptions) -> Trace:
    sessions: defaultdict[Any, int] = defaultdict(lambda: len(sessions))

    def request(row: dict[str, Any]) -> TraceRequest:
        session = row.get("session_id")
        return TraceRequest(
            input_len=fields.whole(row, "input_length"),
            output_len=fields.optional_whole(row, "output_length"),
            arrival_ms=fields.optional_number(row, "timestamp"),
            blocks=runs_of_ids(fields.ids(row, "hash_ids")),
            conversation=None if session is None else sessions[session],
        )

    return Trace(
        name=path.name,
        requests=json_rows(path, request, fields=_FIELDS),
        block_size=options.block_size or stated_block_size(path) or BLOCK_SIZE,
        ids=BlockIds.PREFIX,
    )


def write_requests(
    requests: Iterable[TraceRequest], block_size: int | None, file: IO[bytes]
) -> int:
    """Write requests in this form; return how many."""
    stated = {} if block_size in (None, BLOCK_SIZE) else {"block_size": block_size}
    count = 0
    for request in requests:
        row = dict(_fields(request)) | stated
        file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        count += 1
    return count


def _fields(request: TraceRequest) -> Iterator[tuple[str, Any]]:
    if request.arrival_ms is not None:
        yield "timestamp", request.arrival_ms
    yield "input_length", request.input_len
    if request.output_len is not None:
        yield "output_length", request.output_len
    if request.conversation is not None:
        yield "session_id", request.conversation
    yield "hash_ids", [block for run in request.blocks for block in run]
