"""The member of a line of data.jsonl that holds the prompt, or the recipe that stands in for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import orjson

from prefixbench.config.dataset import PromptFormat
from prefixbench.content.compose import PromptBatch
from prefixbench.content.tape import Positions

#: A text in slices of the pool, to be joined.
Parts = tuple[bytes | memoryview, ...]


def prompt_members(batch: PromptBatch, prompt_format: PromptFormat) -> Iterable[Parts]:
    """`prompt`, `messages` or `prompt_token_ids`; texts are spliced in, since the pool holds them
    escaped."""
    match prompt_format:
        case PromptFormat.TOKEN_IDS:
            return ((b'"prompt_token_ids":', orjson.dumps(ids.tolist())) for ids in batch.ids())
        case PromptFormat.CHAT:
            start, end = b'"messages":[{"role":"user","content":"', b'"}]'
        case PromptFormat.TEXT:
            start, end = b'"prompt":"', b'"'
        case other:
            assert_never(other)
    return ((start, *parts, end) for parts in batch.texts())


def recipe_members(
    requests: Positions, retries: Positions, batch: PromptBatch, prompt_format: PromptFormat
) -> Iterable[Parts]:
    """`recipe` and `prompt_sha256`: with the manifest, all that it takes to compose the prompt."""
    members = prompt_members(batch, prompt_format)
    for request, retry, parts in zip(requests.tolist(), retries.tolist(), members, strict=True):
        recipe = {"request": request, "retry": retry}
        digest = prompt_sha256(orjson.loads(b"{%b}" % b"".join(parts)))
        yield (orjson.dumps({"recipe": recipe, "prompt_sha256": digest})[1:-1],)


def prompt_sha256(row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's prompt: of the text, the message's content, or the ids as JSON."""
    if "messages" in row:
        prompt = row["messages"][0]["content"].encode()
    elif "prompt" in row:
        prompt = row["prompt"].encode()
    else:
        prompt = orjson.dumps(row["prompt_token_ids"])
    return hashlib.sha256(prompt).hexdigest()
