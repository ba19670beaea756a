"""The member of a line of data.jsonl that holds the prompt, or the recipe that stands in for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import assert_never

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
    members = map(b"".join, prompt_members(batch, prompt_format))
    for request, retry, member in zip(requests.tolist(), retries.tolist(), members, strict=True):
        recipe = {"request": request, "retry": retry}
        digest = hashlib.sha256(member).hexdigest()
        yield (orjson.dumps({"recipe": recipe, "prompt_sha256": digest})[1:-1],)
