"""The member of a line of data.jsonl that holds the prompt, or the recipe that stands in for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import orjson

from prefixbench.config.dataset import PromptFormat
from prefixbench.content.compose import PromptBatch
from prefixbench.content.layout import TextPart
from prefixbench.content.tape import Ids, Positions


def prompt_parts(batch: PromptBatch, prompt_format: PromptFormat) -> list[TextPart]:
    """`prompt`, `messages` or `prompt_token_ids` of many rows, part by part.

    Texts are spliced in, since the pool holds them escaped.
    """
    match prompt_format:
        case PromptFormat.TOKEN_IDS:
            return [[b'"prompt_token_ids":'] * len(batch), [_as_json(ids) for ids in batch.ids()]]
        case PromptFormat.CHAT:
            start, end = b'"messages":[{"role":"user","content":"', b'"}]'
        case PromptFormat.TEXT:
            start, end = b'"prompt":"', b'"'
        case other:
            assert_never(other)
    return [[start] * len(batch), *batch.texts(), [end] * len(batch)]


def prompt_rows(batch: PromptBatch, prompt_format: PromptFormat) -> list[dict[str, Any]]:
    """The members that hold the prompts, read as a receiver reads them."""
    members = zip(*prompt_parts(batch, prompt_format), strict=True)
    return [orjson.loads(b"{%b}" % b"".join(parts)) for parts in members]


def recipe_members(
    requests: Positions, retries: Positions, batch: PromptBatch, prompt_format: PromptFormat
) -> Iterator[bytes]:
    """`recipe` and `prompt_sha256`: with the manifest, all that it takes to compose the prompt."""
    rows = prompt_rows(batch, prompt_format)
    for request, retry, row in zip(requests.tolist(), retries.tolist(), rows, strict=True):
        recipe = {"request": request, "retry": retry}
        yield orjson.dumps({"recipe": recipe, "prompt_sha256": prompt_sha256(row)})[1:-1]


def _as_json(ids: Ids) -> bytes:
    return orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)


def prompt_sha256(row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's prompt: of the text, the message's content, or the ids as JSON."""
    if "messages" in row:
        prompt = row["messages"][0]["content"].encode()
    elif "prompt" in row:
        prompt = row["prompt"].encode()
    else:
        prompt = orjson.dumps(row["prompt_token_ids"])
    return hashlib.sha256(prompt).hexdigest()
