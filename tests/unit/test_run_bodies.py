"""What is sent: the planned prompt, what the run adds, and warm-up requests."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from prefixbench.run.bodies import BodyBuilder, OpeningWord
from prefixbench.run.planned import PlannedRequest

FILLER = {"text": " baba", "id": 456}
PREFIX = "The shared words"


def planned(prompt: dict[str, Any], **more: Any) -> PlannedRequest:
    row = {"request_id": "r", "max_tokens": 8, **prompt, **more}
    metadata = {"planned_prefix_len": 3, "prefix_chars": len(PREFIX), "planned_dp_id": 1}
    return PlannedRequest(row=row, metadata=metadata)


TEXT = {"prompt": PREFIX + " own end"}
IDS = {"prompt_token_ids": [1, 2, 3, 90, 91]}
CHAT = {"messages": [{"role": "user", "content": PREFIX + " own end"}]}


def sent(bodies: BodyBuilder, request: PlannedRequest) -> dict[str, Any]:
    body: dict[str, Any] = orjson.loads(bodies.measured(request))
    return body


def test_a_measured_request_is_the_planned_prompt_streamed_with_usage() -> None:
    assert sent(BodyBuilder(model="m"), planned(TEXT)) == {
        "prompt": TEXT["prompt"],
        "model": "m",
        "max_tokens": 8,
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
        "ignore_eos": True,
    }


def test_measured_requests_and_their_probe_ask_for_answers_in_one_form() -> None:
    bodies = BodyBuilder(model="m", answer_fields={"return_token_ids": True})
    probe = orjson.loads(bodies.answer_probe("Probe"))
    for body in (sent(bodies, planned(IDS)), probe):
        assert body["return_token_ids"] is body["stream"] is True
    assert "return_token_ids" not in orjson.loads(bodies.warm_up(planned(IDS), FILLER))


def test_ids_and_messages_go_out_as_they_are() -> None:
    bodies = BodyBuilder(model="m")
    assert sent(bodies, planned(IDS))["prompt"] == [1, 2, 3, 90, 91]
    assert sent(bodies, planned(CHAT))["messages"] == CHAT["messages"]


def test_a_rows_own_model_wins() -> None:
    assert sent(BodyBuilder(model="m"), planned(TEXT, model="lora"))["model"] == "lora"


def test_a_rows_own_salt_stays_a_part_of_the_key() -> None:
    bodies = BodyBuilder(model="m", salt="run")
    assert sent(bodies, planned(TEXT))["cache_salt"] == "run"
    one, other = (sent(bodies, planned(TEXT, cache_salt=salt)) for salt in ("a", "b"))
    assert len({"run", one["cache_salt"], other["cache_salt"]}) == 3
    assert sent(BodyBuilder(model="m"), planned(TEXT, cache_salt="a"))["cache_salt"] == "a"


def test_other_content_changes_the_opening_word_alone() -> None:
    bodies = BodyBuilder(model="m").isolated_by(opening=OpeningWord("The", "Af"))
    assert sent(bodies, planned(TEXT))["prompt"] == "Af shared words own end"
    assert sent(bodies, planned(CHAT))["messages"][0]["content"] == "Af shared words own end"


@pytest.mark.parametrize(
    ("prompt", "key", "expected"),
    [
        (TEXT, "prompt", PREFIX + " baba"),
        (IDS, "prompt", [1, 2, 3, 456]),
        (CHAT, "messages", [{"role": "user", "content": PREFIX + " baba"}]),
    ],
)
def test_a_warm_up_request_is_the_prefix_and_a_filler(
    prompt: dict[str, Any], key: str, expected: Any
) -> None:
    body = orjson.loads(BodyBuilder(model="m", salt="s").warm_up(planned(prompt), FILLER))
    assert body[key] == expected
    assert (body["max_tokens"], body["cache_salt"]) == (1, "s")
    assert "stream" not in body


def test_a_warm_up_request_is_isolated_like_the_measured_ones() -> None:
    bodies = BodyBuilder(model="m", opening=OpeningWord("The", "Af"))
    body = orjson.loads(bodies.warm_up(planned(TEXT), FILLER))
    assert body["prompt"] == "Af shared words baba"


def test_a_rank_can_be_pinned_by_a_field() -> None:
    bodies = BodyBuilder(model="m", rank_field="routed_dp_rank")
    assert sent(bodies, planned(TEXT))["routed_dp_rank"] == 1


def test_other_content_of_ids_changes_the_opening_id_alone() -> None:
    row = {"request_id": "r", "prompt_token_ids": [1, 20, 30, 20, 40], "max_tokens": 2}
    bodies = BodyBuilder(model="m").isolated_by(opening=OpeningWord("The", "Af", 20, 21))
    assert sent(bodies, planned(row))["prompt"] == [1, 21, 30, 20, 40]
    warm = orjson.loads(bodies.warm_up(planned(row), {"text": " x", "id": 9}))
    assert warm["prompt"][0:2] == [1, 21]
    other = {"request_id": "r", "prompt_token_ids": [1, 5, 30], "max_tokens": 2}
    assert sent(bodies, planned(other))["prompt"] == [1, 5, 30]
