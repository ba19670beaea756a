"""Plain request logs: JSON lines with a text or token ids, as gateways and this project write them.

A line holds `prompt` or `text` (a string), or `prompt_token_ids`, `token_ids` or `input_ids`, or
`messages` of a chat; and where known `arrival_ms` or `timestamp` (ms), `output_length`,
`output_tokens` or `max_tokens`, and `model`, `cache_salt`, which keep caches apart. A text is
tokenized as a server's text endpoint does it; messages are joined, each behind its role, since a
log does not say its server's template. Only block numbers leave this module.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.exchange.anonymous import BlockNumbers
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
            output_len=_first(row, _OUTPUTS),
            arrival_ms=_first(row, _ARRIVALS),
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
    return ("messages are counted without their server's chat template, which adds a few tokens",)


def _tokens_of(row: dict[str, Any], encode: Callable[[str], list[int]]) -> list[int]:
    tokens = _first(row, _TOKENS)
    if tokens is not None:
        return list(tokens)
    text = _first(row, _TEXTS)
    if text is None and "messages" in row:
        text = "".join(map(_message_text, row["messages"]))
    if text is None:
        raise KeyError(_FIELDS)
    return list(text) if isinstance(text, list) else encode(text)


def _message_text(message: dict[str, Any]) -> str:
    content = message["content"] or ""
    if isinstance(content, list):
        content = "".join(part.get("text", "") for part in content)
    return f"{message['role']}: {content}\n"


def _first(row: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


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
