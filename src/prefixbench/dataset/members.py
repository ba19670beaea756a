"""The member of a line of data.jsonl that holds the prompt, or the recipe that stands in for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, assert_never

import orjson

from prefixbench.config.dataset import PromptFormat
from prefixbench.content.compose import PromptBatch, TextParts
from prefixbench.content.tape import Ids, Positions


def stored_members(batch: PromptBatch, prompt_format: PromptFormat) -> Iterable[TextParts]:
    """`prompt`, `messages` or `prompt_token_ids`, as a data set holds it."""
    if prompt_format is PromptFormat.TOKEN_IDS:
        return _id_members(batch.stored_ids())
    return _text_members(batch.stored_texts(), prompt_format)


def whole_members(batch: PromptBatch, prompt_format: PromptFormat) -> Iterable[TextParts]:
    """As `stored_members`, histories included, and a stand-in for each answer of the server."""
    if prompt_format is PromptFormat.TOKEN_IDS:
        return _id_members(batch.ids())
    return _text_members(batch.texts(), prompt_format)


def _id_members(prompts: Iterable[Ids]) -> Iterable[TextParts]:
    return ((b'"prompt_token_ids":', orjson.dumps(ids.tolist())) for ids in prompts)


def _text_members(texts: Iterable[TextParts], prompt_format: PromptFormat) -> Iterable[TextParts]:
    """Texts are spliced in, since the pool holds them escaped."""
    match prompt_format:
        case PromptFormat.TOKEN_IDS:
            raise ValueError("prompts of ids have no text")
        case PromptFormat.CHAT:
            start, end = b'"messages":[{"role":"user","content":"', b'"}]'
        case PromptFormat.TEXT:
            start, end = b'"prompt":"', b'"'
        case other:
            assert_never(other)
    return ((start, *parts, end) for parts in texts)


def recipe_members(
    requests: Positions, retries: Positions, batch: PromptBatch, prompt_format: PromptFormat
) -> Iterable[TextParts]:
    """`recipe` and `prompt_sha256`: with the manifest, all that it takes to compose the prompt."""
    members = stored_members(batch, prompt_format)
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
