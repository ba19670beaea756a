"""WEKA's form for agent sessions (callanjfox/kv-cache-tester): one conversation a line.

`block_size` 64, `requests[]` with `t` (s), `in`, `out`, and `hash_ids`, or `hash_runs`: start and
length of runs of consecutive ids. Ids are prefix ids and local to the conversation; its sub-agents
share them. Times count from the conversation's beginning, a sub-agent's from its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from prefixbench.exchange import fields
from prefixbench.exchange.lines import json_rows, stated_block_size
from prefixbench.exchange.trace import ReadOptions, Trace
from prefixbench.simulator.hit_definition import ALL_REQUESTS
from prefixbench.simulator.trace import BlockIds, TraceRequest, runs_of_ids

BLOCK_SIZE = 64

_FIELDS = "requests, each with t (s), in, out and hash_ids or hash_runs"


def read_trace(path: Path, options: ReadOptions) -> Trace:
    reader = _Reader(options)
    conversations = json_rows(path, reader.conversation, fields=_FIELDS)
    return Trace(
        name=path.name,
        requests=chain.from_iterable(conversations),
        block_size=options.block_size or stated_block_size(path) or BLOCK_SIZE,
        ids=BlockIds.PREFIX,
        chosen=ALL_REQUESTS if options.sub_agents else "all requests but those of sub-agents",
        notes=("conversations are taken one after the other: they have no common clock",),
    )


class _Reader:
    """Numbers conversations, and moves each one's ids behind those of the ones before."""

    def __init__(self, options: ReadOptions) -> None:
        self._sub_agents = options.sub_agents
        self._number = 0
        self._next_id = 0

    def conversation(self, document: dict[str, Any]) -> list[TraceRequest]:
        rows = list(self._requests(fields.rows(document, "requests"), started_s=0))
        requests = sorted(
            (self._request(row, arrival_s) for arrival_s, row in rows),
            key=lambda request: request.arrival_ms or 0,
        )
        stops = (run.stop for request in requests for run in request.blocks)
        self._next_id = max(stops, default=self._next_id)
        self._number += 1
        return requests

    def _requests(
        self, rows: Iterable[Mapping[str, Any]], started_s: float
    ) -> Iterator[tuple[float, Mapping[str, Any]]]:
        for row in rows:
            arrival_s = started_s + fields.number(row, "t")
            if "requests" not in row:
                yield arrival_s, row
            elif self._sub_agents:
                yield from self._requests(fields.rows(row, "requests"), arrival_s)

    def _request(self, row: Mapping[str, Any], arrival_s: float) -> TraceRequest:
        return TraceRequest(
            input_len=fields.whole(row, "in"),
            output_len=fields.whole(row, "out"),
            arrival_ms=arrival_s * 1000,
            blocks=tuple(
                range(self._next_id + run.start, self._next_id + run.stop) for run in _runs(row)
            ),
            conversation=self._number,
        )


def _runs(row: Mapping[str, Any]) -> tuple[range, ...]:
    if "hash_ids" in row:
        return runs_of_ids(fields.ids(row, "hash_ids"))
    return fields.runs(row, "hash_runs")
