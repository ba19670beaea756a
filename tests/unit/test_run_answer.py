"""Reading an answer of an OpenAI-compatible server while it arrives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from prefixbench.run.answer import Answer


def event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


def piece(text: str, finish: str | None = None) -> bytes:
    return event(choices=[{"index": 0, "text": text, "finish_reason": finish}], usage=None)


def chat(finish: str | None = None, **delta: Any) -> bytes:
    return event(choices=[{"index": 0, "delta": delta, "finish_reason": finish}])


USAGE = event(
    choices=[],
    usage={
        "prompt_tokens": 40,
        "completion_tokens": 3,
        "prompt_tokens_details": {"cached_tokens": 32},
    },
)
DONE = b"data: [DONE]\n\n"


def read(*chunks: bytes) -> Answer:
    """Chunk number n arrives at n * 10 ns."""
    answer = Answer()
    for number, chunk in enumerate(chunks):
        answer.feed(number * 10, chunk)
    answer.end(len(chunks) * 10)
    return answer


def test_times_are_those_of_the_pieces_with_text() -> None:
    answer = read(piece("a"), piece("b"), b": ping\n\n", piece("c", "length"), USAGE, DONE)
    assert answer.first_token_ns == 0
    assert answer.gaps_ns == [10, 20]
    assert (answer.prompt_tokens, answer.cached_tokens, answer.output_tokens) == (40, 32, 3)
    assert answer.finished
    assert not answer.malformed


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n"])
def test_a_stream_cut_anywhere_reads_the_same(end: bytes) -> None:
    stream = (piece("a") + piece("b", "length") + USAGE + DONE).replace(b"\n\n", end)
    for cut in range(1, len(stream)):
        answer = read(stream[:cut], stream[cut:])
        assert len(answer.gaps_ns) == 1
        assert (answer.output_tokens, answer.finished, answer.malformed) == (3, True, False)


def test_byte_by_byte_the_first_token_is_the_piece_that_is_complete() -> None:
    stream = piece("a") + DONE
    answer = read(*(stream[n : n + 1] for n in range(len(stream))))
    assert answer.first_token_ns == (len(piece("a")) - 2) * 10  # the newline that ends its line


@pytest.mark.parametrize("count", ["12", 12.5, -1, True, None, [3]])
def test_a_count_that_is_none_stays_unknown(count: Any) -> None:
    details = {"cached_tokens": count}
    usage = {"prompt_tokens": count, "completion_tokens": count, "prompt_tokens_details": details}
    answer = read(piece("a", "length"), event(choices=[], usage=usage), DONE)
    assert (answer.prompt_tokens, answer.output_tokens, answer.cached_tokens) == (None, None, None)
    assert not answer.malformed


def test_more_cached_than_prompted_is_not_believed() -> None:
    usage = {"prompt_tokens": 40, "prompt_tokens_details": {"cached_tokens": 41}}
    answer = read(piece("a", "length"), event(choices=[], usage=usage), DONE)
    assert (answer.prompt_tokens, answer.cached_tokens) == (40, None)


@pytest.mark.parametrize("usage", [[1], "many", 3])
def test_usage_of_another_form_is_malformed(usage: Any) -> None:
    assert read(piece("a", "length"), event(choices=[], usage=usage), DONE).malformed
    answer = Answer()
    answer.read_whole(json.dumps({"choices": [{"text": "a"}], "usage": usage}).encode())
    assert answer.malformed


def test_a_stream_without_any_choice_is_malformed() -> None:
    assert read(event(foo=1), USAGE, DONE).malformed
    assert not read(b": ping\n\n").malformed  # it ended early, which is another failure


def test_role_and_empty_pieces_are_no_first_token() -> None:
    opening = chat(role="assistant", content="")
    answer = read(opening, chat(), chat(content="x"), chat("length", content=""), DONE)
    assert answer.first_token_ns == 20
    assert answer.gaps_ns == []


@pytest.mark.parametrize("name", ["content", "reasoning_content", "reasoning"])
def test_reasoning_is_text_too(name: str) -> None:
    assert read(chat(role="assistant"), chat(**{name: "x"}), DONE).first_token_ns == 10


def test_an_answer_of_one_piece_has_its_first_token_in_it() -> None:
    answer = read(piece("all", "length"), USAGE, DONE)
    assert answer.first_token_ns == 0
    assert answer.gaps_ns == []


def test_a_token_without_text_counts_when_its_answer_ends() -> None:
    assert read(piece(""), piece("", "length"), USAGE, DONE).first_token_ns == 10


def test_an_answer_without_tokens_has_no_first_token() -> None:
    usage = event(choices=[], usage={"prompt_tokens": 4, "completion_tokens": 0})
    answer = read(piece("", "stop"), usage, DONE)
    assert answer.first_token_ns is None
    assert answer.output_tokens == 0


def test_usage_inside_the_last_piece_is_read() -> None:
    last = event(
        choices=[{"index": 0, "text": "b", "finish_reason": "stop"}],
        usage={"prompt_tokens": 7, "completion_tokens": 2},
    )
    answer = read(piece("a"), last, DONE)
    assert (answer.prompt_tokens, answer.cached_tokens) == (7, None)


def test_what_the_server_does_not_tell_stays_unknown() -> None:
    silent = event(choices=[], usage={"prompt_tokens": 7, "prompt_tokens_details": None})
    assert read(piece("a", "stop"), silent, DONE).cached_tokens is None
    assert read(piece("a", "stop"), DONE).prompt_tokens is None


def test_the_first_token_is_told_at_once_and_once() -> None:
    told: list[int] = []
    answer = Answer(lambda: told.append(len(told)))
    answer.feed(1, chat(role="assistant", content=""))
    assert told == []
    answer.feed(2, piece("a") + piece("b"))
    assert told == [0]


def test_a_stream_that_stops_is_not_finished() -> None:
    assert not read(piece("a"), piece("b")).finished


@pytest.mark.parametrize(
    "line",
    [b"data: {oops\n\n", b"data: [1]\n\n", b'data: {"choices": [1]}\n\n', b"data: \xff\n\n"],
)
def test_other_data_is_malformed(line: bytes) -> None:
    assert read(piece("a"), line, DONE).malformed


def test_an_error_inside_a_stream_is_an_error() -> None:
    answer = read(piece("a"), event(error={"message": "engine died", "code": 500}), DONE)
    assert (answer.error, answer.error_status) == ("engine died", 500)


def test_an_answer_in_one_piece_of_json() -> None:
    answer = Answer()
    answer.read_whole(json.dumps({"choices": [{}], "usage": {"prompt_tokens": 3}}).encode())
    assert (answer.finished, answer.prompt_tokens, answer.first_token_ns) == (True, 3, None)


@pytest.mark.parametrize("body", [b"<html>", b'{"choices": []}', b"7"])
def test_json_that_is_no_answer_is_malformed(body: bytes) -> None:
    answer = Answer()
    answer.read_whole(body)
    assert answer.malformed


def test_what_an_answer_says_is_kept_for_the_turn_behind_it() -> None:
    first = event(choices=[{"text": "one", "token_ids": [5], "prompt_token_ids": [1, 2]}])
    half = event(choices=[{"text": "", "token_ids": [6]}])
    answer = read(first, half, piece(" two", "length"), USAGE, DONE)
    assert "".join(answer.pieces) == "one two"
    assert answer.token_ids == [5, 6]


def test_an_answer_in_one_piece_is_kept_too() -> None:
    answer = Answer()
    answer.read_whole(json.dumps({"choices": [{"text": "one", "token_ids": [5]}]}).encode())
    assert (answer.pieces, answer.token_ids) == (["one"], [5])


@pytest.mark.parametrize(
    "choice", [5, {"text": 5}, {"text": "a", "token_ids": 5}, {"text": "a", "token_ids": ["a"]}]
)
def test_what_is_of_another_form_says_nothing(choice: Any) -> None:
    whole = Answer()
    whole.read_whole(json.dumps({"choices": [choice]}).encode())
    assert whole.token_ids == []
    streamed = read(event(choices=[choice]), DONE)
    assert all(isinstance(text, str) for text in streamed.pieces)
