"""A run that is killed leaves readable files; one that is interrupted ends with what is there."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from prefixbench.run.journal import RunStatus
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import document, expected_hits, options, phases, rows, sample

RUN = """
import sys
from pathlib import Path
from prefixbench.run.options import RunOptions
from prefixbench.run.runner import run_dataset

dataset, output, url = sys.argv[1:]
result = run_dataset(RunOptions(dataset=Path(dataset), output=Path(output), urls=(url,)))
print(result.status)
"""

#: One request takes about 0.15 s, the run 4 s.
SLOW = ServeOptions(time_scale=0.1)
ANSWERS_BEFORE_THE_SIGNAL = 3


@pytest.fixture(scope="module")
def cold() -> Path:
    return sample()


@asynccontextmanager
async def run_under_way(
    dataset: Path, run: Path, url: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """A run in a process of its own that has had its first answers."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", RUN, dataset, run, url, stdout=asyncio.subprocess.PIPE
    )
    try:
        results = run / "runtime" / "request_results.jsonl"
        while (
            not results.is_file() or results.read_bytes().count(b"\n") < ANSWERS_BEFORE_THE_SIGNAL
        ):
            assert process.returncode is None
            await asyncio.sleep(0.02)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_a_killed_run_is_readable_and_can_be_resumed(cold: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    async with running_server(SLOW) as url, run_under_way(cold, run, url) as process:
        process.kill()
        await process.wait()
    assert ANSWERS_BEFORE_THE_SIGNAL <= len(rows(run)) < 24
    assert document(run, "run")["status"] == "running"
    assert document(run, "performance_metrics")["phases"] == []
    assert phases(run) == []
    async with running_server(ServeOptions(time_scale=0)) as url:
        result = await run_dataset_async(options(cold, run, url, resume=True))
    assert result.status is RunStatus.COMPLETE
    assert len(rows(run)) == 24
    assert phases(run)[0]["hits"] == sum(expected_hits(cold).values())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_an_interrupted_run_ends_with_what_is_there(
    cold: Path, tmp_path: Path, number: signal.Signals
) -> None:
    run = tmp_path / "run"
    async with running_server(SLOW) as url, run_under_way(cold, run, url) as process:
        process.send_signal(number)
        output, _ = await asyncio.wait_for(process.communicate(), 20)
    assert process.returncode == 0
    assert output.decode().strip() == "interrupted"
    answered = rows(run)
    assert ANSWERS_BEFORE_THE_SIGNAL <= len(answered) < 24
    assert [row["status"] for row in answered] == ["ok"] * len(answered)
    (phase,) = phases(run)
    assert phase["complete"] is False
    assert phase["runtime_deviation"] is None
    assert phase["queries"] == sum(row["prompt_tokens"] for row in answered)
    assert document(run, "run")["status"] == "interrupted"
    assert document(run, "performance_metrics")["phases"][0]["requests"]["sent"] == len(answered)
