"""What a later turn goes on from, what is remembered for it, and for how long."""

from __future__ import annotations

from typing import Any

import pytest

from prefixbench.core.errors import DatasetChangedError
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder, OpeningWord
from prefixbench.run.client import Exchange
from prefixbench.run.conversations import Conversations
from prefixbench.run.planned import PlannedRequest, last_turns, planned_requests
from run_samples import sample
from session_samples import ANSWER, conversations

BODIES = BodyBuilder(model="m", opening=OpeningWord("The", "An", 1, 2))


def turn(number: int, prompt: dict[str, Any], *, last: int = 2) -> PlannedRequest:
    before = f"r{number - 1}" if number else None
    row: dict[str, Any] = {"request_id": f"r{number}", **prompt}
    return PlannedRequest(
        row=row | ({"continues": before} if number else {}),
        metadata={"session_id": "s", "turn": number, "history_request_id": before},
        has_later_turn=number < last,
    )


def said(status: Status = Status.OK, **more: Any) -> Exchange:
    fields = {"text": " yes", "token_ids": [7, 8], "output_tokens": 2}
    return Exchange(status=status, sent_ns=0, finished_ns=1, **(fields | more))


def sent(talk: Conversations, request: PlannedRequest, exchange: Exchange) -> Any:
    prompt = talk.prompt_of(request)
    talk.answered(request, prompt, exchange)
    return prompt["prompt"]


def test_a_turn_is_all_that_was_sent_the_answers_and_the_new_text() -> None:
    talk = Conversations(BODIES, served=True)
    texts = ["The story", "The end", "The very end"]
    prompts = [sent(talk, turn(n, {"prompt": text}), said()) for n, text in enumerate(texts)]
    assert prompts == ["An story", "An story yesThe end", "An story yesThe end yesThe very end"]
    assert talk.held == 0


def test_ids_go_on_from_ids() -> None:
    talk = Conversations(BODIES, served=True)
    rows = [[1, 40, 41], [1, 50], [60]]
    prompts = [sent(talk, turn(n, {"prompt_token_ids": ids}), said()) for n, ids in enumerate(rows)]
    assert prompts == [[2, 40, 41], [2, 40, 41, 7, 8, 1, 50], [2, 40, 41, 7, 8, 1, 50, 7, 8, 60]]


def test_planned_answers_are_remembered_by_nobody() -> None:
    talk = Conversations(BODIES, served=False)
    assert sent(talk, turn(0, {"prompt": "The story"}), said()) == "An story"
    assert talk.held == 0


@pytest.mark.parametrize("served", [True, False])
def test_a_failure_ends_its_session_and_is_forgotten_behind_the_last_turn(served: bool) -> None:
    talk = Conversations(BODIES, served=served)
    sent(talk, turn(0, {"prompt": "The story"}), said(Status.TIMEOUT))
    assert "timeout" in (talk.why_unsent(turn(1, {"prompt": ""})) or "")
    assert talk.held == 1
    assert talk.why_unsent(turn(2, {"prompt": ""})) is not None
    assert talk.held == 0


@pytest.mark.parametrize(
    ("fields", "told"),
    [({"token_ids": []}, "0 token ids for 2"), ({"token_ids": [7]}, "1 token ids for 2")],
)
def test_an_answer_without_all_its_ids_cannot_be_gone_on_from(
    fields: dict[str, Any], told: str
) -> None:
    talk = Conversations(BODIES, served=True)
    sent(talk, turn(0, {"prompt_token_ids": [1, 2]}), said(**fields))
    assert told in (talk.why_unsent(turn(1, {"prompt_token_ids": [3]})) or "")


def test_the_last_turn_of_a_session_is_known_before_it_is_sent(tmp_path: Any) -> None:
    dataset = DatasetReader(
        conversations(sample(output_length=ANSWER), tmp_path / "set", answers="served")
    )
    requests = list(planned_requests(dataset, last_turns(dataset)))
    assert [each.has_later_turn for each in requests] == [
        each.metadata["turn"] < 2 for each in requests
    ]
    assert last_turns(DatasetReader(sample())) == {}


def test_a_turn_before_its_predecessor_is_no_data_set(tmp_path: Any) -> None:
    folder = conversations(sample(output_length=ANSWER), tmp_path / "set", answers="planned")
    lines = (folder / "request_metadata.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "request_metadata.jsonl").write_bytes(b"".join(reversed(lines)))
    with pytest.raises(DatasetChangedError, match="does not follow"):
        last_turns(DatasetReader(folder))
