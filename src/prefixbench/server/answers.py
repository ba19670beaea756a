"""What a client gets: whole answers and stream chunks of the two generation routes.

The forms follow vLLM: in a stream every chunk has `usage: null`; with `include_usage` one more
chunk without choices carries the usage; `data: [DONE]` ends it. With `return_token_ids` (vLLM from
0.10.2 on, its pull request 22587; SGLang, its pull request 30917) a completion's choice has
`token_ids`, in a stream those of the chunk, and `prompt_token_ids`, in a stream in its first chunk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

STREAM_END = b"data: [DONE]\n\n"

#: Simulated text always runs to its limit.
FINISH_REASON = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of one call; `cached_tokens` is None where the server does not tell."""

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int | None

    def to_json(self) -> dict[str, Any]:
        details = None if self.cached_tokens is None else {"cached_tokens": self.cached_tokens}
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.completion_tokens,
            "total_tokens": self.prompt_tokens + self.completion_tokens,
            "prompt_tokens_details": details,
        }


@dataclass(frozen=True, slots=True)
class Said:
    """A piece of one choice: its text, and the fields with token ids if they were asked for."""

    text: str
    ids: Mapping[str, Sequence[int] | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one route spells its answers; `opening` is what a choice's stream begins with."""

    id_prefix: str
    answer_object: str
    chunk_object: str
    whole: Callable[[str], Mapping[str, Any]]
    piece: Callable[[str], Mapping[str, Any]]
    opening: Mapping[str, Any] | None = None


COMPLETION = Shape(
    id_prefix="cmpl-",
    answer_object="text_completion",
    chunk_object="text_completion",
    whole=lambda text: {"text": text},
    piece=lambda text: {"text": text},
)
CHAT = Shape(
    id_prefix="chatcmpl-",
    answer_object="chat.completion",
    chunk_object="chat.completion.chunk",
    whole=lambda text: {"message": {"role": "assistant", "content": text}},
    piece=lambda text: {"delta": {"content": text}},
    opening={"delta": {"role": "assistant", "content": ""}},
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Writes the answer of one call, whole or chunk by chunk."""

    shape: Shape
    call_id: str
    model: str
    created_s: int

    def answer(self, said: Sequence[Said], usage: Usage) -> bytes:
        choices = [
            _choice(index, {**self.shape.whole(piece.text), **piece.ids}, FINISH_REASON)
            for index, piece in enumerate(said)
        ]
        return self._document(self.shape.answer_object, choices, usage)

    def opening_chunk(self, index: int) -> bytes | None:
        """What comes before the first token of a choice, where the route has such a chunk."""
        if self.shape.opening is None:
            return None
        return self._chunk([_choice(index, self.shape.opening, None)])

    def token_chunk(self, index: int, said: Said, *, is_last: bool) -> bytes:
        reason = FINISH_REASON if is_last else None
        return self._chunk([_choice(index, {**self.shape.piece(said.text), **said.ids}, reason)])

    def usage_chunk(self, usage: Usage) -> bytes:
        return self._chunk([], usage)

    def _chunk(self, choices: list[dict[str, Any]], usage: Usage | None = None) -> bytes:
        return b"data: " + self._document(self.shape.chunk_object, choices, usage) + b"\n\n"

    def _document(self, kind: str, choices: list[dict[str, Any]], usage: Usage | None) -> bytes:
        return orjson.dumps(
            {
                "id": self.shape.id_prefix + self.call_id,
                "object": kind,
                "created": self.created_s,
                "model": self.model,
                "choices": choices,
                "usage": None if usage is None else usage.to_json(),
            }
        )


def _choice(index: int, content: Mapping[str, Any], reason: str | None) -> dict[str, Any]:
    return {"index": index, **content, "logprobs": None, "finish_reason": reason}
