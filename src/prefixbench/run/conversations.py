"""Sessions while they are sent: what a later turn goes on from, and which turns cannot be sent.

Where the server's own answers stand in the histories, a turn is the whole prompt sent before it,
the answer, and the row's new text. A text goes on from the answer's text, and ids from the answer's
ids, so that nothing is encoded twice. A session that broke off is not taken up again: its later
turns would find nothing of a history that the server does not have.
"""

from __future__ import annotations

from array import array
from typing import Any, TypeAlias

from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder, Prompt
from prefixbench.run.client import Exchange
from prefixbench.run.planned import PlannedRequest

#: Four bytes an id, where a list has more than eight.
_IDS = "I"

_History: TypeAlias = "str | array[int]"


class Conversations:
    """The sessions of one phase.

    Holds one history for each session with a served answer and a turn to come. Without sessions it
    holds nothing, and every request is sent as planned.
    """

    def __init__(self, bodies: BodyBuilder, *, served: bool) -> None:
        self._bodies = bodies
        self._served = served
        self._histories: dict[str, _History] = {}
        self._broken: dict[str, str] = {}

    @property
    def held(self) -> int:
        """Sessions of which something is remembered."""
        return len(self._histories) + len(self._broken)

    def prompt_of(self, request: PlannedRequest) -> Prompt:
        """What is sent for a request; its history is taken out of memory."""
        row = request.row
        if not request.continues_answer:
            return self._bodies.prompt(row)
        history = self._histories.pop(_session(request))
        if isinstance(history, str):
            return {"prompt": history + row["prompt"]}
        return {"prompt": [*history, *row["prompt_token_ids"]]}

    def answered(self, request: PlannedRequest, prompt: Prompt, exchange: Exchange) -> None:
        """Remember what the next turn of the session goes on from, if there is one."""
        if not request.has_later_turn:
            return
        is_text = isinstance(prompt.get("prompt"), str)
        problem = _problem(exchange, needs_ids=self._served and not is_text)
        if problem is not None:
            self._broken[_session(request)] = problem
        elif self._served:
            self._histories[_session(request)] = _history(prompt["prompt"], exchange)

    def why_unsent(self, request: PlannedRequest) -> str | None:
        """Why a turn cannot be sent, to be asked once; None if it can."""
        if request.history_id is None:
            return None
        session = _session(request)
        if request.has_later_turn:
            return self._broken.get(session)
        return self._broken.pop(session, None)


def _session(request: PlannedRequest) -> str:
    return request.session_id or ""


def _problem(exchange: Exchange, *, needs_ids: bool) -> str | None:
    if exchange.status is not Status.OK:
        return f"not sent: an earlier turn of its session failed ({exchange.status})"
    told = exchange.output_tokens
    if needs_ids and (not exchange.token_ids or told not in (None, len(exchange.token_ids))):
        return (
            f"not sent: an earlier answer of its session came with {len(exchange.token_ids)} token"
            f" ids for {'its' if told is None else told} tokens"
        )
    return None


def _history(prompt: Any, exchange: Exchange) -> _History:
    if isinstance(prompt, str):
        return prompt + exchange.text
    return array(_IDS, [*prompt, *exchange.token_ids])
