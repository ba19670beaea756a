"""Measured requests out of run directories and tables."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.exchange.measured import read_measured
from prefixbench.simulator.cost_run import MeasuredRequest

ROW = {"sent_ns": 10**9, "first_token_ns": 2 * 10**9, "finished_ns": 4 * 10**9}
ROW |= {"prompt_tokens": 100, "cached_tokens": 32, "output_tokens": 7}
REQUEST = MeasuredRequest(
    input_len=100,
    output_len=7,
    cached_len=32,
    sent_ns=10**9,
    first_token_ns=2 * 10**9,
    finished_ns=4 * 10**9,
)


def lines(path: Path, *rows: object) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_run_directory_has_its_rows_below(tmp_path: Path) -> None:
    (tmp_path / "runtime").mkdir()
    answered = ROW | {"status": "ok", "phase": "cold", "error": None}
    unanswered = answered | {"status": "timeout"}
    without_stream = answered | {"first_token_ns": None}
    lines(tmp_path / "runtime/request_results.jsonl", answered, unanswered, without_stream)
    run = read_measured(tmp_path)
    assert (run.requests, run.left_out) == ([REQUEST], 2)


def test_a_table_tells_moments_in_its_own_unit(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text(
        "sent_s,first_token_ms,finished_ns,prompt_tokens,output_tokens,cached_tokens,user\n"
        "1.0,2000,4000000000,100,7,32,someone\n"
        "1.0,,,100,7,,someone\n"
    )
    run = read_measured(path)
    assert (run.requests, run.left_out) == ([REQUEST], 1)


def test_what_nobody_told_was_not_cached_and_one_token_always_is_computed(tmp_path: Path) -> None:
    unknown = {name: value for name, value in ROW.items() if name != "cached_tokens"}
    whole = ROW | {"cached_tokens": 100}
    found = read_measured(lines(tmp_path / "rows.jsonl", unknown, whole)).requests
    assert [one.cached_len for one in found] == [0, 99]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sent_ns": None}, "line 1: sent_ns is missing"),
        ({"finished_ns": None}, "line 1: finished_ns is missing"),
        ({"prompt_tokens": 0}, "line 1: prompt_tokens is no whole number from 1 on"),
        ({"prompt_tokens": "many"}, "line 1: prompt_tokens is no number"),
        ({"output_tokens": None}, "line 1: output_tokens is missing"),
        ({"finished_ns": 1}, "line 1: sent, first_token and finished do not follow"),
        ({"sent_ns": 3 * 10**9}, "line 1: sent, first_token and finished do not follow"),
        ({"first_token_ns": True}, "line 1: first_token_ns is no number"),
    ],
)
def test_a_wrong_field_is_named(changes: dict[str, object], reason: str, tmp_path: Path) -> None:
    path = lines(tmp_path / "rows.jsonl", ROW | changes)
    with pytest.raises(ConfigError) as raised:
        read_measured(path)
    assert f"rows.jsonl, {reason}" in raised.value.message


def test_a_table_names_its_line_too(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("sent_s,first_token_s,finished_s,prompt_tokens,output_tokens\n1,2,3,x,5\n")
    with pytest.raises(ConfigError, match=r"rows\.csv, line 2: prompt_tokens is no number"):
        read_measured(path)


def test_requests_that_took_no_time_tell_nothing(tmp_path: Path) -> None:
    at_once = ROW | dict.fromkeys(("first_token_ns", "finished_ns"), ROW["sent_ns"])
    with pytest.raises(ConfigError, match="took time"):
        read_measured(lines(tmp_path / "rows.jsonl", at_once))


def test_nothing_answered_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="holds no answered request"):
        read_measured(lines(tmp_path / "rows.jsonl", ROW | {"status": "timeout"}))
