"""Conversations against the embedded server: what is designed is measured, to the token."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from prefixbench.core.errors import EndpointError, TooManyFailuresError
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import (
    COLD,
    STATIC,
    checks,
    document,
    expected_hits,
    options,
    phases,
    rows,
    sample,
)
from session_samples import ANSWER, conversations

INSTANT = ServeOptions(time_scale=0)

#: Requests of a group wait for each other, so that eight in flight find what one would.
IN_ORDER = {"request_order": {"preserve_group_dependency": True}}


def talks(folder: Path, answers: str, base: dict[str, Any] = COLD, **changes: Any) -> Path:
    single = sample(base, output_length=ANSWER, **changes)
    return conversations(single, folder / "dataset", answers=answers)


def assert_exact(run: Path, dataset: Path) -> None:
    """Every request, the counters and every check agree with the plan."""
    expected = expected_hits(dataset)
    got = rows(run)
    assert len(got) == len(expected) == 72
    assert {row["request_id"]: row["cached_tokens"] for row in got} == expected
    (phase,) = phases(run)
    assert phase["hits"] == phase["designed_hits"] == sum(expected.values())
    assert phase["runtime_deviation"] == 0
    assert set(checks(run).values()) <= {"ok", "skipped"}


def assert_turns_wait(run: Path) -> None:
    """No turn was sent before the one before it had ended."""
    ended: defaultdict[str, int] = defaultdict(int)
    for row in sorted(rows(run), key=lambda row: row["sent_ns"]):
        session = row["request_id"].partition("-")[0]
        assert row["sent_ns"] >= ended[session]
        ended[session] = row["finished_ns"]


@pytest.mark.parametrize("concurrency", [1, 8])
@pytest.mark.parametrize("base", [COLD | IN_ORDER, STATIC], ids=["cold", "warmed"])
@pytest.mark.parametrize("prompt_format", ["text", "token_ids"])
@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_conversations_hit_what_was_designed(
    tmp_path: Path, answers: str, prompt_format: str, base: dict[str, Any], concurrency: int
) -> None:
    dataset = talks(tmp_path, answers, base, prompt_format=prompt_format)
    run = tmp_path / "run"
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(dataset, run, url, concurrency=concurrency))
    assert_exact(run, dataset)
    assert_turns_wait(run)
    if answers == "served":
        assert checks(run)["served_answers"] == "ok"


async def test_nothing_that_was_said_is_written_down(tmp_path: Path) -> None:
    dataset, run = talks(tmp_path, "served"), tmp_path / "run"
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(dataset, run, url))
        async with ClientSession() as session:
            [first, *_] = DatasetReader(dataset).requests()
            body = {"prompt": first["prompt"], "max_tokens": ANSWER}
            async with session.post(f"{url}/v1/completions", json=body) as answer:
                said = (await answer.json())["choices"][0]["text"]
    text = b"".join(path.read_bytes() for path in (run / "runtime").iterdir()).decode()
    assert said[:30] not in text
    assert first["prompt"][:30] not in text


@pytest.mark.parametrize("prompt_format", ["text", "token_ids"])
async def test_another_opening_word_stays_with_a_session_to_its_end(
    tmp_path: Path, prompt_format: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Drawn words are the same one in two runs out of 63.
    drawn = count()
    monkeypatch.setattr("prefixbench.run.isolation.secrets.randbelow", lambda _bound: next(drawn))
    dataset = talks(tmp_path, "served", prompt_format=prompt_format)
    async with running_server(INSTANT) as url:
        for name in ("first", "second"):
            await run_dataset_async(options(dataset, tmp_path / name, url, isolation="content"))
            assert_exact(tmp_path / name, dataset)


async def test_turns_of_a_session_stay_on_their_rank(tmp_path: Path) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": 2}
    dataset = talks(tmp_path, "served", routing=routing)
    async with running_server(ServeOptions(time_scale=0, dp_size=2)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)
    ranks: defaultdict[str, set[int]] = defaultdict(set)
    for row in rows(tmp_path / "run"):
        ranks[row["request_id"].partition("-")[0]].add(row["actual_dp_id"])
    assert [len(each) for each in ranks.values()] == [1] * 24
    assert set.union(*ranks.values()) == {0, 1}


async def test_an_open_loop_lets_turns_wait_and_says_so(tmp_path: Path) -> None:
    dataset, run = talks(tmp_path, "served"), tmp_path / "run"
    async with running_server(ServeOptions(time_scale=1)) as url:
        await run_dataset_async(options(dataset, run, url, request_rate=2000.0))
    assert_turns_wait(run)
    waited = [row for row in rows(run) if row["sent_ns"] - row["planned_send_ns"] > 50_000_000]
    assert waited
    for row in waited:
        assert row["schedule_ttft_ms"] - row["ttft_ms"] > 49


@pytest.mark.parametrize("answers", ["planned", "served"])
@pytest.mark.parametrize("fault", ["http_error=0.2", "disconnect=0.2"])
async def test_a_session_that_breaks_off_is_not_taken_up_again(
    tmp_path: Path, answers: str, fault: str
) -> None:
    dataset, run = talks(tmp_path, answers), tmp_path / "run"
    async with running_server(ServeOptions(time_scale=0, faults=(fault,))) as url:
        with pytest.raises(TooManyFailuresError) as raised:
            await run_dataset_async(options(dataset, run, url, concurrency=4))
    ends: defaultdict[str, list[str]] = defaultdict(list)
    got = rows(run)
    for row in got:
        ends[row["request_id"].partition("-")[0]].append(row["status"])
        if row["status"] == "not_sent":
            assert row["sent_ns"] is row["cached_tokens"] is row["ttft_ms"] is None
            assert (row["attempt"], "earlier turn" in row["error"]) == (0, True)
    assert len(got) == 72
    for statuses in ends.values():
        first_failure = next((n for n, status in enumerate(statuses) if status != "ok"), 3)
        assert "not_sent" not in statuses[: first_failure + 1]
        assert set(statuses[first_failure + 1 :]) <= {"not_sent"}
    counts = Counter(row["status"] for row in got)
    assert {"ok", "not_sent"} < set(counts)
    (performance,) = document(run, "performance_metrics")["phases"]
    requests = performance["requests"]
    assert requests["not_sent"] == counts["not_sent"]
    assert requests["sent"] == 72 - counts["not_sent"]
    assert requests["failed"] == 72 - counts["ok"]
    assert performance["success_rate"] == counts["ok"] / 72
    assert f"{72 - counts['ok']} of 72" in raised.value.message
    assert phases(run)[0]["complete"]


async def test_shorter_answers_are_counted_and_warned_about_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    dataset, run = talks(tmp_path, "served"), tmp_path / "run"
    async with running_server(ServeOptions(time_scale=0, faults=("short_answer=10",))) as url:
        await run_dataset_async(options(dataset, run, url))
    (check,) = (
        row
        for row in document(run, "prefix_cache_metrics")["checks"]
        if row["name"] == "served_answers"
    )
    assert (check["status"], check["cause"]) == ("warn", "served_answers")
    assert "ignore_eos" in check["detail"]
    assert checks(run)["prompt_tokens"] == checks(run)["hits_vs_cached_tokens"] == "ok"
    warnings = [row for row in caplog.records if "answers.other_length" in row.getMessage()]
    assert len(warnings) == 1


async def test_a_server_that_tells_no_token_ids_is_refused_before_anything_is_measured(
    tmp_path: Path,
) -> None:
    dataset, run = talks(tmp_path, "served", prompt_format="token_ids"), tmp_path / "run"
    async with running_server(ServeOptions(time_scale=0, dialect="llamacpp")) as url:
        with pytest.raises(EndpointError) as raised:
            await run_dataset_async(options(dataset, run, url))
    assert "prompt_format: text" in (raised.value.hint or "")
    assert rows(run) == []


@pytest.mark.parametrize("dialect", ["sglang", "llamacpp"])
async def test_texts_go_on_from_the_answers_of_any_engine(tmp_path: Path, dialect: str) -> None:
    dataset = talks(tmp_path, "served")
    async with running_server(ServeOptions(time_scale=0, dialect=dialect)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)


async def test_each_round_holds_its_conversations_anew(tmp_path: Path) -> None:
    dataset, run = talks(tmp_path, "served"), tmp_path / "run"
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(dataset, run, url, rounds=2))
    planned = sum(expected_hits(dataset).values())
    assert [phase["hits"] for phase in phases(run)] == [planned, planned]
