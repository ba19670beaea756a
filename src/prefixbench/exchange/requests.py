"""Plain request logs: JSON lines with a text or token ids, as gateways and this project write them.

A line holds `prompt` or `text` (a string), or `prompt_token_ids`, `token_ids` or `input_ids`, or
`messages` of a chat; and where known `arrival_ms` or `timestamp` (ms), `output_length`,
`output_tokens` or `max_tokens`, and `model`, `cache_salt`, which keep caches apart. A text is
tokenized as a server's text endpoint does it; messages are joined, each behind its role, since a
log does not say its server's template. Only block numbers leave this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.exchange import fields
from prefixbench.exchange.anonymous import BlockNumbers
from prefixbench.exchange.fields import FieldError
from prefixbench.exchange.lines import first_line, json_rows
from prefixbench.exchange.trace import ReadOptions, Trace, broken_trace
from prefixbench.simulator.trace import BlockIds, TraceRequest, runs_of_ids

if TYPE_CHECKING:
    from prefixbench.content.tokenizer import TokenizerProtocol

BLOCK_SIZE = 16

_TEXTS = ("prompt", "text")
_TOKENS = ("prompt_token_ids", "token_ids", "input_ids")
_ARRIVALS = ("arrival_ms", "timestamp")
_OUTPUTS = ("output_length", "output_tokens", "max_tokens")

_FIELDS = f"one of {', '.join((*_TEXTS, *_TOKENS))}, messages"


def read_trace(path: Path, options: ReadOptions) -> Trace:
    block_size = options.block_size or BLOCK_SIZE
    numbers = BlockNumbers(block_size)
    encode = _encoder(options.tokenizer)

    def request(row: dict[str, Any]) -> TraceRequest:
        tokens = _tokens_of(row, encode)
        namespace = repr((row.get("model"), row.get("cache_salt")))
        return TraceRequest(
            input_len=len(tokens),
            output_len=fields.optional_whole(row, _told(row, _OUTPUTS)),
            arrival_ms=fields.optional_number(row, _told(row, _ARRIVALS)),
            blocks=runs_of_ids(numbers.of(tokens, namespace)),
        )

    return Trace(
        name=path.name,
        requests=json_rows(path, request, fields=_FIELDS),
        block_size=block_size,
        ids=BlockIds.PREFIX,
        notes=_notes(path),
    )


def _notes(path: Path) -> tuple[str, ...]:
    if b'"messages"' not in first_line(path):
        return ()
    return (
        "messages are counted without their server's chat template, which adds a few tokens, and"
        " without tools, tool calls and images",
    )


def _tokens_of(row: dict[str, Any], encode: Callable[[str], list[int]]) -> list[int]:
    ids_name = _told(row, _TOKENS)
    if row.get(ids_name) is not None:
        return list(fields.ids(row, ids_name, least=0))
    name = _told(row, _TEXTS)
    text = row.get(name)
    if text is None and "messages" in row:
        text = "".join(map(_message_text, fields.rows(row, "messages")))
    if isinstance(text, list):
        return list(fields.ids(row, name, least=0))
    if text is None:
        raise FieldError(f"{_FIELDS}: none of them is there")
    if not isinstance(text, str):
        raise FieldError(f"{name} is no text")
    return encode(text)


def _message_text(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, list):
        parts = fields.rows(message, "content")
        content = "".join(str(part.get("text") or "") for part in parts)
    if not isinstance(content, str):
        raise FieldError("the content of a message is no text")
    return f"{message.get('role', 'user')}: {content}\n"


def _told(row: Mapping[str, Any], names: tuple[str, ...]) -> str:
    """The first name under which the row tells something; the first of all where none does."""
    return next((name for name in names if row.get(name) is not None), names[0])


def _encoder(spec: str | None) -> Callable[[str], list[int]]:
    """Loads the tokenizer with the first text: logs of ids need none."""
    loaded: list[TokenizerProtocol] = []

    def encode(text: str) -> list[int]:
        if not loaded:
            loaded.append(_tokenizer(spec))
        return loaded[0].encode(text, add_special_tokens=True)

    return encode


def _tokenizer(spec: str | None) -> TokenizerProtocol:
    from prefixbench.content.tokenizer import load_tokenizer

    if spec is None:
        raise broken_trace(
            "the log holds texts, and no tokenizer is named",
            hint="--tokenizer PATH, the one of the model that was served (or builtin)",
        )
    return load_tokenizer(spec)
