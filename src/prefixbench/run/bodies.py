"""Bodies of requests: a row of the data set, plus what the run adds to it.

The run adds the model, streaming with usage, greedy sampling to the planned length and, for
isolation, a salt or another opening word. A warm-up request is the deepest planned prefix of a
group and one filler token: never a measured prompt, and never a marker, which could be the first
token behind a measured prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import orjson

from prefixbench.run.planned import PlannedRequest

#: The field of a body that holds a prompt: `prompt` or `messages`.
Prompt = dict[str, Any]

#: `ignore_eos` (vLLM, SGLang, llama.cpp, MindIE) makes every answer as long as planned.
SAMPLING: Mapping[str, Any] = {"temperature": 0, "ignore_eos": True}


@dataclass(frozen=True, slots=True)
class OpeningWord:
    """The constant first word of every prompt: as planned, and as this run sends it.

    Its ids are for prompts that are sent as ids; it is the first of its kind in each of them.
    """

    planned: str
    sent: str
    planned_id: int | None = None
    sent_id: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BodyBuilder:
    """Builds bodies for one phase.

    `rank_field` names the body field that pins a DP rank; `answer_fields` ask for answers in a form
    from which the next turn can go on.
    """

    model: str
    salt: str | None = None
    opening: OpeningWord | None = None
    rank_field: str | None = None
    answer_fields: Mapping[str, Any] = field(default_factory=dict)

    def isolated_by(
        self, *, salt: str | None = None, opening: OpeningWord | None = None
    ) -> BodyBuilder:
        """The same, with another isolation."""
        return replace(self, salt=salt, opening=opening)

    def measured(self, request: PlannedRequest, prompt: Prompt | None = None) -> bytes:
        """The planned prompt, streamed; or this one, of a turn that goes on from an answer."""
        row = request.row
        body = (prompt or self.prompt(row)) | {
            "model": row.get("model") or self.model,
            "max_tokens": row["max_tokens"],
            **self._streamed(),
        }
        return orjson.dumps(body | self._isolation(row) | self._rank(request))

    def warm_up(self, request: PlannedRequest, filler: Mapping[str, Any]) -> bytes:
        """The request's planned prefix and one filler token, not streamed."""
        row = request.row
        body = self.prompt(_prefix_of(request, filler)) | {
            "model": row.get("model") or self.model,
            "max_tokens": 1,
            **SAMPLING,
        }
        return orjson.dumps(body | self._isolation(row) | self._rank(request))

    def probe(self, text: str, *, is_chat: bool) -> bytes:
        """A short request of the run's own, not streamed."""
        prompt = {"messages": [{"role": "user", "content": text}]} if is_chat else {"prompt": text}
        body = {**prompt, "model": self.model, "max_tokens": 1, **SAMPLING}
        return orjson.dumps(body | self._isolation({}))

    def answer_probe(self, text: str) -> bytes:
        """A short request of the run's own, in the form of a measured one."""
        body = {"prompt": text, "model": self.model, "max_tokens": 1, **self._streamed()}
        return orjson.dumps(body | self._isolation({}))

    def prompt(self, row: Mapping[str, Any]) -> Prompt:
        """The field that holds the row's prompt, with the opening word of this phase."""
        if "messages" in row:
            first, *behind = row["messages"]
            return {"messages": [first | {"content": self._opened(first["content"])}, *behind]}
        if "prompt_token_ids" in row:
            return {"prompt": self._opened_ids(row["prompt_token_ids"])}
        return {"prompt": self._opened(row["prompt"])}

    def _streamed(self) -> dict[str, Any]:
        return {
            "stream": True,
            "stream_options": {"include_usage": True},
            **SAMPLING,
            **self.answer_fields,
        }

    def _opened(self, text: str) -> str:
        if self.opening is None or not text.startswith(self.opening.planned):
            return text
        return self.opening.sent + text[len(self.opening.planned) :]

    def _opened_ids(self, ids: Sequence[int]) -> Sequence[int]:
        opening = self.opening
        if opening is None or opening.sent_id is None or opening.planned_id not in ids:
            return ids
        place = ids.index(opening.planned_id)
        return [*ids[:place], opening.sent_id, *ids[place + 1 :]]

    def _isolation(self, row: Mapping[str, Any]) -> dict[str, str]:
        """A row's own salt stays a part of the key: groups kept apart stay apart."""
        parts = [part for part in (self.salt, row.get("cache_salt")) if part]
        return {"cache_salt": ":".join(parts)} if parts else {}

    def _rank(self, request: PlannedRequest) -> dict[str, int]:
        return {self.rank_field: request.dp_id} if self.rank_field else {}


def _prefix_of(request: PlannedRequest, filler: Mapping[str, Any]) -> dict[str, Any]:
    row, chars = request.row, request.metadata.get("prefix_chars", 0)
    if "messages" in row:
        first = row["messages"][0]
        content = first["content"][:chars] + filler["text"]
        return {"messages": [first | {"content": content}, *filler.get("messages_behind", ())]}
    if "prompt_token_ids" in row:
        ids = row["prompt_token_ids"][: request.planned_prefix_len]
        return {"prompt_token_ids": [*ids, filler["id"]]}
    return {"prompt": row["prompt"][:chars] + filler["text"]}
