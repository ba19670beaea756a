"""The member of a line of data.jsonl that holds the prompt, or the recipe that stands in for it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, assert_never

import orjson

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.batch import PromptBatch
from prefixbench.content.layout import TextPart
from prefixbench.content.tape import Ids, Positions


def prompt_parts(batch: PromptBatch, prompt_format: PromptFormat) -> list[TextPart]:
    """`prompt`, `messages` or `prompt_token_ids` of many rows as a data set holds them, part by
    part."""
    if prompt_format is PromptFormat.TOKEN_IDS:
        return _id_parts(batch.stored_ids())
    return _text_parts(batch.stored_texts(), batch, prompt_format)


def _whole_parts(batch: PromptBatch, prompt_format: PromptFormat) -> list[TextPart]:
    """As `prompt_parts`, histories included, and a stand-in for each answer of the server."""
    if prompt_format is PromptFormat.TOKEN_IDS:
        return _id_parts(batch.ids())
    return _text_parts(batch.texts(), batch, prompt_format)


def _id_parts(prompts: list[Ids]) -> list[TextPart]:
    return [[b'"prompt_token_ids":'] * len(prompts), [_as_json(ids) for ids in prompts]]


def _text_parts(
    texts: list[TextPart], batch: PromptBatch, prompt_format: PromptFormat
) -> list[TextPart]:
    """Texts are spliced in, since the pool holds them escaped."""
    match prompt_format:
        case PromptFormat.TOKEN_IDS:
            raise ValueError("prompts of ids have no text")
        case PromptFormat.CHAT:
            role = b"system" if batch.has_system_prompts else b"user"
            start, end = b'"messages":[{"role":"%b","content":"' % role, b'"}]'
        case PromptFormat.TEXT:
            start, end = b'"prompt":"', b'"'
        case other:
            assert_never(other)
    return [[start] * len(batch), *texts, [end] * len(batch)]


def stored_rows(batch: PromptBatch, prompt_format: PromptFormat) -> list[dict[str, Any]]:
    """The members that hold the prompts, read as a receiver of the data set reads them."""
    return _read(prompt_parts(batch, prompt_format))


def whole_rows(batch: PromptBatch, prompt_format: PromptFormat) -> list[dict[str, Any]]:
    """As `stored_rows`, every prompt whole; a stand-in for each answer of the server."""
    return _read(_whole_parts(batch, prompt_format))


def _read(parts: list[TextPart]) -> list[dict[str, Any]]:
    return [orjson.loads(b"{%b}" % b"".join(row)) for row in zip(*parts, strict=True)]


def recipe_members(
    requests: Positions, retries: Positions, batch: PromptBatch, prompt_format: PromptFormat
) -> Iterator[bytes]:
    """`recipe` and `prompt_sha256`: with the manifest, all that it takes to compose the prompt."""
    rows = stored_rows(batch, prompt_format)
    for request, retry, row in zip(requests.tolist(), retries.tolist(), rows, strict=True):
        recipe = {"request": request, "retry": retry}
        yield orjson.dumps({"recipe": recipe, "prompt_sha256": prompt_sha256(row)})[1:-1]


def _as_json(ids: Ids) -> bytes:
    return orjson.dumps(ids, option=orjson.OPT_SERIALIZE_NUMPY)


def prompt_sha256(row: Mapping[str, Any]) -> str:
    """SHA-256 of a row's prompt: of the text, the messages' contents, or the ids as JSON."""
    if "messages" in row:
        prompt = "\0".join(message["content"] for message in row["messages"]).encode()
    elif "prompt" in row:
        prompt = row["prompt"].encode()
    else:
        prompt = orjson.dumps(row["prompt_token_ids"])
    return hashlib.sha256(prompt).hexdigest()
