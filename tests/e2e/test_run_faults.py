"""What goes wrong, a test for each line of contract section 7, and what a run makes of it."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp
import orjson
import pytest

from prefixbench.core.errors import (
    DatasetChangedError,
    EndpointError,
    MetricsError,
    OutputExistsError,
    TooManyFailuresError,
)
from prefixbench.run.journal import RunResult, RunStatus
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import (
    STATIC,
    checks,
    document,
    expected_hits,
    options,
    phases,
    rows,
    sample,
)


@pytest.fixture(scope="module")
def cold() -> Path:
    return sample()


async def run_with(dataset: Path, output: Path, *faults: str, **more: Any) -> RunResult:
    async with running_server(ServeOptions(time_scale=0, faults=faults)) as url:
        return await run_dataset_async(options(dataset, output, url, **more))


def assert_whole(run: Path) -> None:
    """Every file of the run directory is there and can be read."""
    for name in ("run", "performance_metrics", "prefix_cache_metrics"):
        assert document(run, name)["dataset_id"]
    assert rows(run)
    assert rows(run, "events")[-1]["event"] == "run.ended"
    assert (run / "dataset" / "manifest.json").is_file()


METRICS_FAULTS = {
    "metrics_400": "400",
    "metrics_404": "404",
    "metrics_html": "HTML",
    "metrics_empty": "empty",
    "metrics_truncated": "middle of a line",
}


@pytest.mark.parametrize(("fault", "reason"), METRICS_FAULTS.items())
async def test_unusable_metrics_end_with_5_after_a_whole_run(
    cold: Path, tmp_path: Path, fault: str, reason: str
) -> None:
    with pytest.raises(MetricsError, match=reason) as caught:
        await run_with(cold, tmp_path / "run", fault)
    assert caught.value.exit_code == 5
    assert_whole(tmp_path / "run")
    (phase,) = phases(tmp_path / "run")
    assert phase["queries"] is phase["hits"] is phase["hit_rate"] is None
    assert reason in phase["reason"]
    assert phase["usage"]["cached_tokens"] == sum(expected_hits(cold).values())
    assert document(tmp_path / "run", "prefix_cache_metrics")["global"]["hit_rate"] is None
    assert checks(tmp_path / "run")["counters"] == "fail"


async def test_an_unreachable_metrics_address_is_no_error_if_metrics_are_optional(
    cold: Path, tmp_path: Path
) -> None:
    async with running_server(ServeOptions(time_scale=0)) as url:
        result = await run_dataset_async(
            options(
                cold,
                tmp_path / "run",
                url,
                metrics_urls=("http://127.0.0.1:9/metrics",),
                metrics_optional=True,
            )
        )
    assert result.status is RunStatus.COMPLETE
    (phase,) = phases(tmp_path / "run")
    assert phase["hit_rate"] is None
    assert "cannot be reached" in phase["reason"]
    assert phase["cache_state_before"] == "salted"  # cached_tokens showed that the salt works


async def test_a_counter_reset_voids_the_rate_and_keeps_the_answers(
    cold: Path, tmp_path: Path
) -> None:
    result = await run_with(cold, tmp_path / "run", "counter_reset=12")
    assert result.status is RunStatus.COMPLETE
    (phase,) = phases(tmp_path / "run")
    assert phase["hit_rate"] is None
    assert "counter reset" in phase["reason"]
    assert phase["usage"]["cached_tokens"] == sum(expected_hits(cold).values())
    assert checks(tmp_path / "run")["counters"] == "fail"


@pytest.mark.parametrize(
    ("fault", "status", "http_status"),
    [("http_error=0.3", "http_error", 500), ("disconnect=0.3", "disconnected", 200)],
)
async def test_failed_requests_are_counted_and_end_with_6(
    cold: Path, tmp_path: Path, fault: str, status: str, http_status: int
) -> None:
    with pytest.raises(TooManyFailuresError) as caught:
        await run_with(cold, tmp_path / "run", fault, isolation="reset")
    assert caught.value.exit_code == 6
    assert_whole(tmp_path / "run")
    failed = [row for row in rows(tmp_path / "run") if row["status"] != "ok"]
    assert failed
    assert {row["status"] for row in failed} == {status}
    assert {row["http_status"] for row in failed} == {http_status}
    assert all(row["e2e_ms"] is None for row in failed)
    counts = document(tmp_path / "run", "performance_metrics")["phases"][0]["requests"]
    assert counts["failed"] == len(failed)
    assert counts["sent"] == counts["planned"] == 24
    assert checks(tmp_path / "run")["requests"] == "warn"


async def test_few_failures_are_no_failure_of_the_run(cold: Path, tmp_path: Path) -> None:
    result = await run_with(
        cold, tmp_path / "run", "http_error=0.3", isolation="reset", max_failure_rate=0.9
    )
    assert result.status is RunStatus.COMPLETE


async def test_requests_that_hang_are_timeouts(cold: Path, tmp_path: Path) -> None:
    with pytest.raises(TooManyFailuresError):
        await run_with(
            cold, tmp_path / "run", "timeout=2", isolation="reset", timeout_s=0.3, idle_timeout_s=2
        )
    phase = document(tmp_path / "run", "performance_metrics")["phases"][0]
    assert phase["requests"]["timed_out"] == 2
    assert phase["timeout_rate"] == pytest.approx(2 / 24)


async def test_missing_metrics_of_one_instance_are_named_and_make_it_partial(
    tmp_path: Path,
) -> None:
    routing = {"cache_scope": "instance_local", "instances": 2}
    dataset = sample(STATIC, routing=routing)
    blind = ServeOptions(time_scale=0, faults=("metrics_404",))
    async with running_server(ServeOptions(time_scale=0)) as one, running_server(blind) as other:
        result = await run_dataset_async(options(dataset, tmp_path / "run", one, other))
    assert result.status is RunStatus.COMPLETE
    whole = document(tmp_path / "run", "prefix_cache_metrics")
    seen, unseen = whole["instances"]
    assert seen["hits"] > 0
    assert unseen["endpoint"] == other
    assert unseen["queries"] is unseen["hit_rate"] is None
    assert "404" in unseen["reason"]
    assert whole["global"]["partial"] is True
    assert whole["global"]["hits"] == seen["hits"]


async def test_other_prompt_lengths_stop_the_run_after_the_first_answers(
    cold: Path, tmp_path: Path
) -> None:
    with pytest.raises(EndpointError, match="prompt tokens where the plan has") as caught:
        await run_with(cold, tmp_path / "run", "extra_prompt_token")
    assert caught.value.exit_code == 5
    assert len(rows(tmp_path / "run")) <= 5
    assert_whole(tmp_path / "run")
    assert document(tmp_path / "run", "run")["status"] == "failed"
    assert phases(tmp_path / "run")[0]["complete"] is False
    assert checks(tmp_path / "run")["prompt_tokens"] == "fail"


async def test_a_server_that_tells_no_cached_tokens_is_measured_by_its_counters(
    cold: Path, tmp_path: Path
) -> None:
    await run_with(cold, tmp_path / "run", "no_cached_tokens", rounds=2)
    first, second = phases(tmp_path / "run")
    for phase in (first, second):
        assert phase["hits"] == sum(expected_hits(cold).values())
        assert phase["usage"]["cached_tokens"] is None
    assert (second["cache_state_before"], second["isolation_verified"]) == ("salted", True)
    assert checks(tmp_path / "run")["hits_vs_cached_tokens"] == "skipped"


async def test_another_block_size_is_a_warning(cold: Path, tmp_path: Path) -> None:
    await run_with(cold, tmp_path / "run", "block_size_label=32")
    assert checks(tmp_path / "run")["block_size"] == "warn"
    assert document(tmp_path / "run", "run")["server"]["block_size"] == 32


async def test_traffic_of_others_is_noticed(cold: Path, tmp_path: Path) -> None:
    async with (
        running_server(ServeOptions(time_scale=0)) as url,
        aiohttp.ClientSession() as session,
    ):

        async def disturb() -> None:
            for number in range(10_000):
                body = {"prompt": f"stranger {number}", "max_tokens": 1}
                async with session.post(url + "/v1/completions", json=body) as answer:
                    await answer.read()

        stranger = asyncio.create_task(disturb())
        try:
            with pytest.raises(MetricsError, match="not idle"):
                await run_dataset_async(
                    options(cold, tmp_path / "run", url, idle_timeout_s=0.5, isolation="none")
                )
        finally:
            stranger.cancel()
            await asyncio.gather(stranger, return_exceptions=True)
    assert document(tmp_path / "run", "run")["error"]["code"] == "metrics"


def edited(dataset: Path, folder: Path, change: Any) -> Path:
    folder.mkdir()
    for file in dataset.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    lines = (folder / "data.jsonl").read_bytes().splitlines(keepends=True)
    (folder / "data.jsonl").write_bytes(b"".join(change(lines)))
    return folder


@pytest.mark.parametrize(
    "change",
    [lambda lines: [lines[1], lines[0], *lines[2:]], lambda lines: lines[:-1]],
    ids=["reordered", "shortened"],
)
async def test_a_changed_data_set_is_refused(cold: Path, tmp_path: Path, change: Any) -> None:
    dataset = edited(cold, tmp_path / "set", change)
    with pytest.raises(DatasetChangedError) as caught:
        await run_dataset_async(options(dataset, tmp_path / "run", "http://127.0.0.1:9"))
    assert caught.value.exit_code == 3
    assert not (tmp_path / "run").exists()


async def test_a_server_that_is_not_there_leaves_nothing_behind(cold: Path, tmp_path: Path) -> None:
    nowhere = options(cold, tmp_path / "run", "http://127.0.0.1:9", startup_timeout_s=0.3)
    with pytest.raises(EndpointError, match="cannot be reached") as caught:
        await run_dataset_async(nowhere)
    assert caught.value.exit_code == 5
    assert not (tmp_path / "run").exists()


async def test_a_server_that_is_still_starting_is_waited_for(
    cold: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        port = chosen.getsockname()[1]
    run = asyncio.create_task(
        run_dataset_async(options(cold, tmp_path / "run", f"http://127.0.0.1:{port}"))
    )
    while "server.starting wait_s=10" not in caplog.text:
        await asyncio.sleep(0.01)
    async with running_server(ServeOptions(time_scale=0, port=port)):
        assert (await run).status is RunStatus.COMPLETE


async def test_a_model_that_is_not_served_is_told(cold: Path, tmp_path: Path) -> None:
    with pytest.raises(EndpointError, match="does not serve") as caught:
        await run_with(cold, tmp_path / "run", model="gpt-9")
    assert "prefixbench" in caught.value.hint


async def test_a_folder_in_use_is_refused_and_replaced_only_on_demand(
    cold: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    await run_with(cold, run)
    with pytest.raises(OutputExistsError):
        await run_with(cold, run)
    first = document(run, "run")["run_id"]
    await run_with(cold, run, overwrite=True)
    assert document(run, "run")["run_id"] != first
    assert len(rows(run)) == 24


async def test_overwrite_never_touches_what_is_no_run(cold: Path, tmp_path: Path) -> None:
    (tmp_path / "work" / "dataset").mkdir(parents=True)
    (tmp_path / "work" / "dataset" / "precious.txt").write_text("mine")
    with pytest.raises(OutputExistsError, match="something else"):
        await run_with(cold, tmp_path / "work", overwrite=True)
    assert (tmp_path / "work" / "dataset" / "precious.txt").read_text() == "mine"


async def test_a_run_of_another_data_set_is_not_resumed(cold: Path, tmp_path: Path) -> None:
    await run_with(cold, tmp_path / "run")
    other = sample(seed=4)
    with pytest.raises(DatasetChangedError):
        await run_with(other, tmp_path / "run", resume=True)


def test_documents_hold_no_absolute_path(cold: Path, tmp_path: Path) -> None:
    asyncio.run(run_with(cold, tmp_path / "run", command=("prefixbench", "run", str(cold))))
    text = (tmp_path / "run" / "runtime" / "run.json").read_text()
    assert str(tmp_path) not in text
    assert str(cold.parent) not in text
    assert orjson.loads(text)["command"] == ["prefixbench", "run", cold.name]
