"""Turns of sessions as they were observed, put in the place of the planned ones."""

from __future__ import annotations

from dataclasses import replace

from prefixbench.core.records import RequestPlan
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.turns import parted_from_histories, with_served_answers

#: Three turns of 10 new tokens and answers of 8; of an answer all but the last token is stored.
FIRST = RequestPlan(
    request_id="0", prefix_group_id="g", input_len=20, output_len=8, planned_prefix_len=12
)
SECOND = replace(FIRST, request_id="1", input_len=38, planned_prefix_len=27, history_request_id="0")
THIRD = replace(FIRST, request_id="2", input_len=56, planned_prefix_len=45, history_request_id="1")
TALK = (FIRST, SECOND, THIRD)


def seen(*lengths: tuple[int | None, int | None], cached: int = 3) -> dict[str, ObservedRequest]:
    """Prompt and answer tokens of each turn."""
    return {
        str(turn): ObservedRequest(
            request_id=str(turn),
            phase="cold",
            status="ok",
            prompt_tokens=prompt,
            output_tokens=answer,
            cached_tokens=cached,
        )
        for turn, (prompt, answer) in enumerate(lengths)
    }


def test_turns_that_came_as_planned_stay_as_they_are() -> None:
    assert with_served_answers(TALK, seen((20, 8), (38, 8), (56, 8)), 0) == TALK


def test_a_shorter_answer_shortens_every_turn_behind_it() -> None:
    _, second, third = with_served_answers(TALK, seen((20, 5), (35, 8), (53, 8)), 0)
    assert (second.input_len, second.planned_prefix_len) == (35, 24)
    assert (third.input_len, third.planned_prefix_len) == (53, 42)


def test_of_an_answer_that_became_other_tokens_no_more_is_taken_than_was_found() -> None:
    _, second, _ = with_served_answers(TALK, seen((20, 8), (39, 8), (57, 8), cached=16), 0)
    assert (second.input_len, second.planned_prefix_len) == (39, 16)


def test_tokens_that_the_server_adds_to_every_prompt_are_not_counted_twice() -> None:
    _, second, _ = with_served_answers(TALK, seen((21, 5), (36, 8), (54, 8)), 1)
    assert (second.input_len, second.planned_prefix_len) == (35, 24)


def test_what_was_not_told_is_taken_as_planned() -> None:
    assert with_served_answers(TALK, seen((20, None), (35, 8), (53, 8)), 0)[1] == SECOND


def on_ranks(*ranks: int) -> list[RequestPlan]:
    return [replace(plan, planned_dp_id=rank) for plan, rank in zip(TALK, ranks, strict=True)]


def test_a_session_on_one_rank_keeps_its_histories() -> None:
    assert list(parted_from_histories(on_ranks(1, 1, 1))) == on_ranks(1, 1, 1)


def test_a_turn_on_another_rank_is_like_a_first_turn() -> None:
    _, second, third = parted_from_histories(on_ranks(0, 1, 1))
    assert (second.history_request_id, second.planned_prefix_len) == (None, 12)
    assert (third.history_request_id, third.planned_prefix_len) == ("1", 45)


def test_a_turn_that_comes_back_finds_what_was_stored_when_it_left() -> None:
    _, _, third = parted_from_histories(on_ranks(0, 1, 0))
    assert (third.history_request_id, third.planned_prefix_len) == ("1", 27)
