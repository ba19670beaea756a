"""What a client asks for: bodies of the OpenAI routes, read and checked.

Field names and defaults follow OpenAI's API reference and vLLM's additions (`cache_salt`;
`return_token_ids`; prompts as token ids). Sampling parameters are accepted and change nothing: the
tokens are simulated, and a request always runs to `max_tokens`. Fields that would change what an
answer holds and are not built here are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

import orjson

from prefixbench.server.api_error import ApiError

#: OpenAI's default for completions; used for chat too, since simulated text never ends by itself.
DEFAULT_MAX_TOKENS = 16

#: More sequences than this for one request are a mistake, not a load.
MOST_CHOICES = 1024

_UNSUPPORTED = ("echo", "suffix", "logprobs", "prompt_logprobs", "prompt_embeds", "top_logprobs")

Body = Mapping[str, Any]
Prompt = str | list[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class CallOptions:
    """What completions and chat have in common."""

    model: str | None
    max_tokens: int
    n: int
    stream: bool
    include_usage: bool
    return_token_ids: bool
    cache_salt: str | None


def read_body(raw: bytes) -> Body:
    """The JSON object in a request's body."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError:
        raise ApiError(400, "the body is not valid JSON") from None
    if not isinstance(body, dict):
        raise ApiError(400, "the body must be a JSON object")
    return body


def call_options(body: Body) -> CallOptions:
    """Check the common fields; the first wrong one is reported with its name."""
    for name in _UNSUPPORTED:
        if body.get(name):
            raise ApiError(400, f"{name} is not supported by this server", param=name)
    stream_options = body.get("stream_options") or {}
    if not isinstance(stream_options, dict):
        raise ApiError(400, "stream_options must be an object", param="stream_options")
    stream = flag(body, "stream")
    if stream_options and not stream:
        raise ApiError(400, "stream_options need stream: true", param="stream_options")
    limit = "max_completion_tokens" if body.get("max_completion_tokens") else "max_tokens"
    return CallOptions(
        model=text(body, "model"),
        max_tokens=_whole_number(body, limit, default=DEFAULT_MAX_TOKENS),
        n=_whole_number(body, "n", default=1, largest=MOST_CHOICES),
        stream=stream,
        include_usage=flag(stream_options, "include_usage"),
        return_token_ids=flag(body, "return_token_ids"),
        cache_salt=_cache_salt(body),
    )


def completion_prompts(body: Body) -> list[Prompt]:
    """The prompts of a completion: a text, token ids, or a list of either."""
    prompt = body.get("prompt")
    if _is_text(prompt) or _is_token_ids(prompt):
        return [prompt]
    if isinstance(prompt, list) and 0 < len(prompt) <= MOST_CHOICES:
        for is_kind in (_is_text, _is_token_ids):
            if all(map(is_kind, prompt)):
                return prompt
    raise ApiError(
        400,
        "prompt must be a text, a list of token ids, or a list of up to "
        f"{MOST_CHOICES} texts or lists of token ids; none of them empty",
        param="prompt",
    )


def chat_messages(body: Body) -> list[dict[str, str]]:
    """The messages of a chat with their contents as plain text."""
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(400, "messages must be a list with at least one message", param="messages")
    return [_message(message) for message in messages]


def text(body: Body, name: str) -> str | None:
    """A field that is a text or absent."""
    value = body.get(name)
    if value is None or isinstance(value, str):
        return value
    raise ApiError(400, f"{name} must be a text", param=name)


def flag(body: Body, name: str, *, default: bool = False) -> bool:
    """A field that is true, false or absent."""
    value = body.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise ApiError(400, f"{name} must be true or false", param=name)


def token_ids(body: Body, name: str) -> list[int]:
    """A field that is a list of token ids, possibly empty."""
    value = body.get(name)
    if value == []:
        return []
    if _is_token_ids(value):
        return value
    raise ApiError(400, f"{name} must be a list of token ids", param=name)


def _whole_number(body: Body, name: str, *, default: int, largest: int | None = None) -> int:
    value = body.get(name)
    if value is None:
        return default
    if type(value) is not int or value < 1 or (largest is not None and value > largest):
        upper = "" if largest is None else f" and at most {largest}"
        raise ApiError(400, f"{name} must be a whole number of at least 1{upper}", param=name)
    return value


def _cache_salt(body: Body) -> str | None:
    salt = text(body, "cache_salt")
    if salt == "":
        raise ApiError(400, "cache_salt must not be empty", param="cache_salt")
    return salt


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and value != ""


def _is_token_ids(value: object) -> TypeGuard[list[int]]:
    return isinstance(value, list) and set(map(type, value)) == {int} and min(value) >= 0


def _message(message: object) -> dict[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise ApiError(400, "every message must be an object with a role", param="messages")
    return {"role": message["role"], "content": _content(message.get("content"))}


def _content(content: object) -> str:
    """Plain text, or the text parts of a list of parts joined, as vLLM's string format does."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(_is_text_part(part) for part in content):
        return "\n".join(part["text"] for part in content)
    raise ApiError(400, "a message's content must be text or text parts", param="messages")


def _is_text_part(part: object) -> bool:
    return (
        isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)
    )
