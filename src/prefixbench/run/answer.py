"""An answer of an OpenAI-compatible server, read while it arrives.

Time stamps are taken by the caller as bytes arrive, before anything is parsed. The first token is
the first piece of an answer that has text: opening chunks (role only), empty chunks and the usage
chunk are none. An answer whose only token has no text (half a character) counts its last chunk.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any

import orjson

_DONE = b"[DONE]"


class Status(StrEnum):
    """How a request ended; NOT_SENT: a turn whose session broke off before it."""

    OK = "ok"
    NOT_SENT = "not_sent"
    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    DISCONNECTED = "disconnected"
    MALFORMED = "malformed"


class Answer:
    """What is known of one answer so far.

    `gaps_ns` are the times between pieces with text. `pieces` and `token_ids` are what a completion
    says, for the turn behind it; no id came unless `return_token_ids` was asked for and is known.
    `error` is raw text of the server: it goes through `safe_error` before it is kept.
    """

    __slots__ = (
        "_has_choices",
        "_on_first_token",
        "_partial_line",
        "cached_tokens",
        "error",
        "error_status",
        "finished",
        "first_token_ns",
        "gaps_ns",
        "last_token_ns",
        "malformed",
        "output_tokens",
        "pieces",
        "prompt_tokens",
        "token_ids",
    )

    def __init__(self, on_first_token: Callable[[], None] = lambda: None) -> None:
        self._on_first_token = on_first_token
        self._partial_line = b""
        self._has_choices = False
        self.first_token_ns: int | None = None
        self.last_token_ns: int | None = None
        self.gaps_ns: list[int] = []
        self.pieces: list[str] = []
        self.token_ids: list[int] = []
        self.prompt_tokens: int | None = None
        self.cached_tokens: int | None = None
        self.output_tokens: int | None = None
        self.error: str | None = None
        self.error_status: int | None = None
        self.finished = False
        self.malformed = False

    def feed(self, stamp_ns: int, chunk: bytes) -> None:
        """Take bytes of an event stream, cut anywhere."""
        lines = (self._partial_line + chunk).split(b"\n")
        self._partial_line = lines.pop()
        for line in lines:
            # Comments, event names and the empty lines between events carry nothing here; servers
            # of this interface put each event's data on one line.
            if line.startswith(b"data:"):
                self._event(stamp_ns, line[5:].strip())

    def end(self, stamp_ns: int) -> None:
        """The stream is over; a last line may lack its newline."""
        if self._partial_line:
            self.feed(stamp_ns, b"\n")
        if self.output_tokens == 0:
            self.first_token_ns = None
        if self.finished and not self._has_choices:
            self.malformed = True

    def read_whole(self, body: bytes) -> None:
        """Take an answer that came in one piece, as from a server that does not stream."""
        document = self._document(body)
        if document is None:
            return
        choices = document.get("choices")
        self.finished = bool(choices)
        self.malformed = not self.finished
        self._usage(document.get("usage"))
        for choice in choices or ():
            self._said(choice)

    def _event(self, stamp_ns: int, data: bytes) -> None:
        if data == _DONE:
            self.finished = True
            return
        event = self._document(data)
        if event is None:
            return
        try:
            self._usage(event.get("usage"))
            for choice in event.get("choices") or ():
                self._choice(stamp_ns, choice)
        except (AttributeError, TypeError):  # JSON, but not of the expected form
            self.malformed = True

    def _choice(self, stamp_ns: int, choice: dict[str, Any]) -> None:
        self._has_choices = True
        self._said(choice)
        ends = choice.get("finish_reason") is not None
        if _has_text(choice):
            if self.last_token_ns is not None:
                self.gaps_ns.append(stamp_ns - self.last_token_ns)
            self.last_token_ns = stamp_ns
        if self.first_token_ns is None and (ends or self.last_token_ns is not None):
            self.first_token_ns = stamp_ns
            self._on_first_token()
        self.finished = self.finished or ends

    def _said(self, choice: Any) -> None:
        """Take what a choice says; what is of another form says nothing."""
        if not isinstance(choice, dict):
            return
        text, ids = choice.get("text"), choice.get("token_ids")
        if text and isinstance(text, str):
            self.pieces.append(text)
        if isinstance(ids, list):
            self.token_ids.extend(one for one in ids if type(one) is int)

    def _usage(self, usage: Any) -> None:
        """Take the counts; what is none, or cannot be, stays unknown."""
        if not isinstance(usage, dict):
            self.malformed = self.malformed or bool(usage)
            return
        self.prompt_tokens = _count(usage.get("prompt_tokens"))
        self.output_tokens = _count(usage.get("completion_tokens"))
        details = usage.get("prompt_tokens_details")
        own = details if isinstance(details, dict) else {}
        cached = _count(own.get("cached_tokens", usage.get("cached_tokens")))
        possible = cached is not None and cached <= (self.prompt_tokens or cached)
        self.cached_tokens = cached if possible else None

    def _document(self, data: bytes) -> dict[str, Any] | None:
        """The JSON object, unless it is none or reports an error."""
        try:
            document = orjson.loads(data)
        except orjson.JSONDecodeError:
            document = None
        if not isinstance(document, dict):
            self.malformed = True
            return None
        if document.get("error"):
            self.error, self.error_status = read_error(document["error"])
            return None
        return document


def read_error(error: Any) -> tuple[str, int | None]:
    """Text and status out of the error object of an OpenAI-compatible server.

    >>> read_error({"message": "too long", "code": 400})
    ('too long', 400)
    >>> read_error("no such model")
    ('no such model', None)
    """
    if not isinstance(error, dict):
        return str(error), None
    code = error.get("code")
    text = error.get("message") or error.get("detail") or error.get("type") or "no message"
    return str(text), code if isinstance(code, int) else None


def _count(value: Any) -> int | None:
    """A number of tokens; None for whatever else a server may write there."""
    return value if type(value) is int and value >= 0 else None


def _has_text(choice: dict[str, Any]) -> bool:
    if choice.get("text"):
        return True
    delta = choice.get("delta") or {}
    return any(delta.get(name) for name in ("content", "reasoning_content", "reasoning"))
