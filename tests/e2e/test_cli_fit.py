"""`prefixbench fit` and `simulate --cost`, as typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from prefixbench.cli.main import main

STEP_MS, TOKEN_MS = 10.0, 0.1


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Requests that were alone, served by 10 ms a step and 0.1 ms a prompt token."""
    path = tmp_path / "measured.jsonl"
    with path.open("w") as file:
        for number in range(8):
            tokens, sent = 100 + 200 * number, 10_000 * number
            first = sent + STEP_MS + TOKEN_MS * tokens
            row = {"sent_ms": sent, "first_token_ms": first, "finished_ms": first + 9 * STEP_MS}
            file.write(json.dumps(row | {"prompt_tokens": tokens, "output_tokens": 10}) + "\n")
        file.write(json.dumps({"sent_ms": 1, "status": "timeout"}) + "\n")
    return path


@pytest.fixture
def cost(measured: Path, tmp_path: Path) -> Path:
    path = tmp_path / "cost.json"
    done = run("fit", measured, "--output", path)
    assert done.exit_code == 0, done.output
    told = " ".join(done.stdout.split())
    assert "cost.json 8 requests of measured.jsonl, 1 left out, played by vllm-0.33" in told
    return path


def test_prices_are_written_and_unknown_ones_are_null(cost: Path) -> None:
    document = json.loads(cost.read_text())
    assert document["step_ns"] == pytest.approx(1e7, rel=1e-6)
    assert document["prefill_token_ns"] == pytest.approx(1e5, rel=1e-6)
    assert document["context_token_ns"] is document["decode_sequence_ns"] is None
    assert document["unknown"].keys() == {"context_token_ns", "decode_sequence_ns"}
    assert document["relative_errors"]["e2e"]["p95"] == pytest.approx(0, abs=1e-6)


def test_a_trace_takes_the_time_it_takes(cost: Path, tmp_path: Path) -> None:
    """Two requests 5 ms apart share steps; in a closed loop of one they do not."""
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2026-01-01 00:00:00.000,100,3\n2026-01-01 00:00:00.005,200,3\n"
    )
    engine = ("--format", "azure", "--profile", "vllm-0.33", "--cost", cost, "--json")
    document = json.loads(run("simulate", "--trace", trace, *engine).stdout)
    times = document["engine"]["times"]
    # 20 ms for the first prompt, then 30 ms for the second and a token; 2 further steps of 10 ms.
    assert times["duration_s"] == pytest.approx(0.07)
    assert times["queued_ms"]["p50"] == pytest.approx((0 + 15) / 2)
    assert times["ttft_ms"]["p50"] == pytest.approx((20 + 45) / 2)
    alone = json.loads(run("simulate", "--trace", trace, *engine, "--concurrency", 1).stdout)
    assert alone["engine"]["times"]["duration_s"] == pytest.approx(0.02 + 0.03 + 4 * 0.01)
    assert alone["engine"]["times"]["queued_ms"]["p99"] == 0
    assert alone["engine"]["hit_ratio"] is None
    page = run("simulate", "--trace", trace, *engine[:-1]).stdout
    assert "time to first token" in page


def test_a_story_shows_the_time_of_each_step(cost: Path, tmp_path: Path) -> None:
    story = tmp_path / "story.yaml"
    story.write_text("block_size: 4\nrequests: [{id: A, prompt: abcdefghij, output_length: 2}]\n")
    document = json.loads(run("simulate", "--story", story, "--cost", cost, "--json").stdout)
    durations = [step["duration_ms"] for step in document["steps"]]
    assert durations == [pytest.approx(11), pytest.approx(10)]


def test_wrong_usage_is_told(measured: Path, cost: Path, tmp_path: Path) -> None:
    again = run("fit", measured, "--output", cost)
    assert (again.exit_code, "cost.json exists" in again.output) == (2, True)
    assert run("fit", measured, "--output", cost, "--overwrite").exit_code == 0
    lonely = run("simulate", "--trace", measured, "--format", "azure", "--cost", cost)
    assert (lonely.exit_code, "where --profile names an engine" in lonely.output) == (2, True)
    wrong = run("simulate", "--trace", measured, "--profile", "ideal", "--cost", measured)
    assert (wrong.exit_code, "Traceback" in wrong.output) == (2, False)
    missing = run("fit", tmp_path / "nothing", "--output", tmp_path / "new.json")
    assert missing.exit_code == 2
    assert "nothing: no such file" in missing.output
