"""Qwen-Bailian's trace form: chats in a service, 16 tokens a block.

`chat_id`, `parent_chat_id` (-1: the first turn), `timestamp` (s), `input_length`, `output_length`,
`type`, `turn`, `hash_ids`. Ids are salted hashes of blocks, numbered anew
(alibaba-edu/qwen-bailian-usagetraces-anon); whether a hash covers what is before the block is not
said, so they are taken as content ids, which is right either way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prefixbench.exchange import fields
from prefixbench.exchange.lines import json_rows
from prefixbench.exchange.trace import ReadOptions, Trace
from prefixbench.simulator.trace import BlockIds, TraceRequest, runs_of_ids

BLOCK_SIZE = 16

_FIELDS = "chat_id, parent_chat_id, timestamp (s), input_length, output_length and hash_ids"


def read_trace(path: Path, options: ReadOptions) -> Trace:
    conversation_of: dict[Any, int] = {}

    def request(row: dict[str, Any]) -> TraceRequest:
        parent = conversation_of.get(row["parent_chat_id"])
        conversation = len(conversation_of) if parent is None else parent
        conversation_of[row["chat_id"]] = conversation
        return TraceRequest(
            input_len=fields.whole(row, "input_length"),
            output_len=fields.whole(row, "output_length"),
            arrival_ms=fields.number(row, "timestamp") * 1000,
            blocks=runs_of_ids(fields.ids(row, "hash_ids")),
            conversation=conversation,
        )

    return Trace(
        name=path.name,
        requests=json_rows(path, request, fields=_FIELDS),
        block_size=options.block_size or BLOCK_SIZE,
        ids=BlockIds.CONTENT,
    )
