"""Runs against the embedded server: what was designed is what is measured, to the token."""

from __future__ import annotations

import asyncio
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.errors import EndpointError, TooManyFailuresError
from prefixbench.dataset.reader import DatasetReader
from prefixbench.explain.run_files import read_run
from prefixbench.run.journal import RunResult, RunStatus
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import (
    COLD,
    STATIC,
    chat_tokenizer,
    checks,
    document,
    expected_hits,
    options,
    phases,
    rows,
    sample,
)

INSTANT = ServeOptions(time_scale=0)


@pytest.fixture(scope="module")
def cold() -> Path:
    return sample()


@pytest.fixture(scope="module")
def static() -> Path:
    return sample(STATIC)


def assert_exact(run: Path, dataset: Path) -> None:
    """Counters, answers and plan agree to the token, and there was something to agree on."""
    planned = expected_hits(dataset)
    (phase,) = phases(run)
    assert phase["hits"] == sum(planned.values()) > 0
    assert phase["runtime_deviation"] == 0
    got = rows(run)
    assert [row["status"] for row in got] == ["ok"] * len(planned)
    assert {row["request_id"]: row["cached_tokens"] for row in got} == planned
    bad = {name: status for name, status in checks(run).items() if status in ("warn", "fail")}
    assert bad == {}


@pytest.fixture(scope="module")
def progressive(cold: Path, tmp_path_factory: pytest.TempPathFactory) -> RunResult:
    """A plain run, for tests that only look at what it left."""

    async def run() -> RunResult:
        async with running_server(INSTANT) as url:
            command = ("prefixbench", "run", "--header", "X-Team: hunter2", "--url", url)
            asked = options(
                cold,
                tmp_path_factory.mktemp("progressive") / "run",
                url,
                headers=(("X-Team", "hunter2"),),
                command=command,
            )
            return await run_dataset_async(asked)

    return asyncio.run(run())


def test_progressive_fill_hits_what_was_designed(cold: Path, progressive: RunResult) -> None:
    assert progressive.status is RunStatus.COMPLETE
    assert_exact(progressive.directory, cold)
    assert phases(progressive.directory)[0]["cache_state_before"] == "salted"
    tally = progressive.runtime.cache.tally
    assert tally is not None
    assert tally.hits == sum(expected_hits(cold).values())


def test_requests_go_out_in_the_planned_order(cold: Path, progressive: RunResult) -> None:
    got = rows(progressive.directory)
    assert [row["request_id"] for row in got] == list(expected_hits(cold))
    sent = [row["sent_ns"] for row in got]
    assert sent == sorted(sent)


def test_the_run_directory_says_where_it_comes_from(cold: Path, progressive: RunResult) -> None:
    run = progressive.directory
    for name in ("manifest.json", "request_metadata.jsonl", "validation_report.json", "data.jsonl"):
        assert (run / "dataset" / name).read_bytes() == (cold / name).read_bytes()
    documents = ("run", "performance_metrics", "prefix_cache_metrics")
    parts = [*(document(run, name) for name in documents), *rows(run), rows(run, "events")[0]]
    assert len({(part["dataset_id"], part["manifest_sha256"]) for part in parts}) == 1
    server = document(run, "run")["server"]
    assert (server["engine"], server["block_size"]) == ("vllm", 16)


def test_no_prompt_and_no_header_value_is_written(cold: Path, progressive: RunResult) -> None:
    files = [path for path in (progressive.directory / "runtime").iterdir() if path.is_file()]
    assert len(files) == 5
    text = b"".join(path.read_bytes() for path in files).decode()
    assert "hunter2" not in text
    for row in DatasetReader(cold).requests():
        assert row["prompt"][-40:] not in text


def test_the_report_reads_what_the_run_wrote(progressive: RunResult) -> None:
    record = read_run(progressive.directory)
    assert [result.status for result in record.results] == ["ok"] * 24


async def test_a_static_plan_hits_its_prefixes_after_warm_up(static: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(static, tmp_path / "run", url))
    assert_exact(tmp_path / "run", static)
    (phase,) = phases(tmp_path / "run")
    assert (phase["phase"], phase["warmed"], phase["warmup_requests"]) == ("warmup", True, 3)


async def test_compare_has_a_designed_ratio_for_each_phase(static: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        result = await run_dataset_async(options(static, tmp_path / "run", url, mode="compare"))
    cold, hot = phases(tmp_path / "run")
    assert (cold["phase"], hot["phase"]) == ("cold", "hot")
    assert hot["hits"] == sum(expected_hits(static).values())
    assert 0 < cold["hits"] < hot["hits"]
    assert cold["runtime_deviation"] == hot["runtime_deviation"] == 0
    whole = document(tmp_path / "run", "prefix_cache_metrics")
    assert whole["headline"] == "hot"
    assert whole["global"]["hits"] == hot["hits"]
    assert len(result.runtime.performance.phases) == 2


async def test_a_cold_plan_run_warm_hits_all_its_prefixes(cold: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, mode="warmup"))
    (phase,) = phases(tmp_path / "run")
    assert phase["hits"] > sum(expected_hits(cold).values())
    assert phase["runtime_deviation"] == 0


async def test_a_second_run_without_isolation_starts_warm_and_finds_more(
    cold: Path, tmp_path: Path
) -> None:
    async with running_server(INSTANT) as url:
        for name in ("first", "second"):
            await run_dataset_async(options(cold, tmp_path / name, url, isolation="none"))
    (first,), (second,) = phases(tmp_path / "first"), phases(tmp_path / "second")
    assert (first["cache_state_before"], first["runtime_deviation"]) == ("cold", 0)
    assert second["cache_state_before"] == "warm"
    assert second["runtime_deviation"] > 0.1
    assert checks(tmp_path / "second")["cache_state"] == "warn"


@pytest.mark.parametrize(
    ("isolation", "state"), [("salt", "salted"), ("reset", "reset"), ("content", "salted")]
)
async def test_an_isolated_second_run_finds_nothing_of_the_first(
    cold: Path, tmp_path: Path, isolation: str, state: str
) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "first", url, isolation="none"))
        await run_dataset_async(options(cold, tmp_path / "second", url, isolation=isolation))
    assert_exact(tmp_path / "second", cold)
    (phase,) = phases(tmp_path / "second")
    assert (phase["cache_state_before"], phase["isolation"]) == (state, isolation)


async def test_a_salt_is_seen_to_work_in_blocks_larger_than_the_plans(
    cold: Path, tmp_path: Path
) -> None:
    async with running_server(ServeOptions(time_scale=0, block_size=128)) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url))
    assert phases(tmp_path / "run")[0]["cache_state_before"] == "salted"


async def test_content_isolation_keeps_warmed_plans_exact(static: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(
            options(static, tmp_path / "run", url, isolation="content", mode="compare")
        )
    assert [phase["runtime_deviation"] for phase in phases(tmp_path / "run")] == [0, 0]


async def test_hot_runs_on_what_is_there_and_says_so(static: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(static, tmp_path / "run", url, mode="hot", rounds=2))
    first, second = phases(tmp_path / "run")
    assert (first["cache_state_before"], first["runtime_deviation"]) == ("cold", 0)
    assert second["cache_state_before"] == "warm"
    assert second["runtime_deviation"] > 0
    assert first["isolation"] == second["isolation"] == "none"


async def test_hot_warms_a_data_set_that_was_made_for_a_cold_run(
    cold: Path, tmp_path: Path
) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, mode="hot"))
    (phase,) = phases(tmp_path / "run")
    assert phase["warmup_requests"] == 3
    assert phase["hits"] == phase["designed_hits"] > sum(expected_hits(cold).values())


async def test_restart_is_believed_only_of_a_fresh_server(cold: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, isolation="restart"))
        assert phases(tmp_path / "run")[0]["cache_state_before"] == "restarted"
        with pytest.raises(EndpointError, match="restart"):
            await run_dataset_async(options(cold, tmp_path / "again", url, isolation="restart"))


async def test_rounds_are_repetitions_and_add_up(cold: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, rounds=2))
    planned = sum(expected_hits(cold).values())
    assert [phase["hits"] for phase in phases(tmp_path / "run")] == [planned, planned]
    whole = document(tmp_path / "run", "prefix_cache_metrics")
    assert whole["global"]["hits"] == 2 * planned
    assert whole["instances"][0]["hits"] == 2 * planned
    assert Counter(row["round"] for row in rows(tmp_path / "run")) == {1: 24, 2: 24}


@pytest.mark.parametrize("base", [COLD, STATIC], ids=["cold", "static"])
async def test_token_ids_are_as_exact(tmp_path: Path, base: dict[str, Any]) -> None:
    dataset = sample(base, prompt_format="token_ids")
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)


@pytest.mark.parametrize(
    ("base", "isolation"), [(COLD, "auto"), (STATIC, "content")], ids=["cold", "static"]
)
@pytest.mark.parametrize("carrier", ["user", "system"])
async def test_chats_are_as_exact(
    tmp_path: Path, base: dict[str, Any], isolation: str, carrier: str
) -> None:
    tokenizer = str(chat_tokenizer(tmp_path / "tokenizer"))
    prefix = base["prefix"] | {"carrier": carrier}
    dataset = sample(base, prompt_format="chat", tokenizer=tokenizer, prefix=prefix)
    async with running_server(ServeOptions(time_scale=0, tokenizer=tokenizer)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url, isolation=isolation))
    assert_exact(tmp_path / "run", dataset)


@pytest.mark.parametrize("base", [COLD, STATIC], ids=["cold", "static"])
async def test_ranks_are_pinned_and_counted_apart(tmp_path: Path, base: dict[str, Any]) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": 2}
    dataset = sample(base, routing=routing)
    async with running_server(ServeOptions(time_scale=0, dp_size=2)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)
    got = rows(tmp_path / "run")
    assert {row["actual_dp_id"] for row in got} == {0, 1}
    assert all(row["actual_dp_id"] == row["planned_dp_id"] for row in got)
    by_dp = document(tmp_path / "run", "prefix_cache_metrics")["by_dp"]
    assert [row["dp_id"] for row in by_dp] == [0, 1]
    assert all(row["queries"] > 0 for row in by_dp)
    assert checks(tmp_path / "run")["routing"] == "ok"


@pytest.mark.parametrize(
    ("dialect", "ranks"), [("sglang", 1), ("sglang", 2), ("mindie", 1), ("llamacpp", 1)]
)
async def test_every_dialect_is_recognised_and_read(
    tmp_path: Path, dialect: str, ranks: int
) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": ranks} if ranks > 1 else {}
    dataset = sample(routing=routing)
    async with running_server(ServeOptions(time_scale=0, dialect=dialect, dp_size=ranks)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)
    measured = document(tmp_path / "run", "prefix_cache_metrics")
    assert (measured["adapter"], measured["unit"]) == (dialect, "token")
    assert len(measured["instances"]) == ranks
    assert checks(tmp_path / "run")["queries_vs_prompt_tokens"] == "ok"
    assert checks(tmp_path / "run")["hits_vs_cached_tokens"] == "ok"


async def test_a_group_goes_to_its_planned_instance(tmp_path: Path) -> None:
    routing = {"cache_scope": "instance_local", "instances": 2}
    dataset = sample(STATIC, routing=routing)
    async with running_server(INSTANT) as one, running_server(INSTANT) as other:
        await run_dataset_async(options(dataset, tmp_path / "run", one, other))
    assert_exact(tmp_path / "run", dataset)
    got = rows(tmp_path / "run")
    assert {row["actual_instance_id"] for row in got} == {0, 1}
    assert all(row["actual_instance_id"] == row["planned_instance_id"] for row in got)
    endpoints = document(tmp_path / "run", "prefix_cache_metrics")["by_endpoint"]
    assert len(endpoints) == 2
    assert all(row["hits"] > 0 for row in endpoints)
    assert checks(tmp_path / "run")["routing"] == "ok"


async def test_a_rank_that_the_server_lacks_is_no_silent_success(tmp_path: Path) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": 2}
    dataset = sample(STATIC, routing=routing)
    async with running_server(INSTANT) as url:
        with pytest.raises(TooManyFailuresError):
            await run_dataset_async(options(dataset, tmp_path / "run", url))
    failed = {row["planned_dp_id"] for row in rows(tmp_path / "run") if row["status"] != "ok"}
    assert failed == {1}
    assert checks(tmp_path / "run")["warm_up"] == "fail"


async def test_groups_with_a_salt_or_an_adapter_of_their_own(tmp_path: Path) -> None:
    groups = [
        {"id": "plain", "request_weight": 1},
        {"id": "salted", "request_weight": 1, "cache_salt": "tenant"},
        {"id": "adapter", "request_weight": 1, "model": "lora-a"},
    ]
    prefix = {"mode": "multi_prefix", "groups": groups}
    dataset = sample(STATIC, prefix=prefix)
    async with running_server(ServeOptions(time_scale=0, lora_models=("lora-a",))) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url))
    assert_exact(tmp_path / "run", dataset)


async def test_group_dependency_keeps_a_concurrent_run_exact(tmp_path: Path) -> None:
    order = {"preserve_group_dependency": True}
    dataset = sample(request_order=order)
    async with running_server(ServeOptions(time_scale=20)) as url:
        await run_dataset_async(options(dataset, tmp_path / "run", url, concurrency=3))
    (phase,) = phases(tmp_path / "run")
    assert phase["hits"] == sum(expected_hits(dataset).values())
    got = rows(tmp_path / "run")
    for group in {row["prefix_group_id"] for row in got}:
        mine = sorted(
            (row for row in got if row["prefix_group_id"] == group), key=lambda r: r["sent_ns"]
        )
        for before, after in pairwise(mine):
            assert before["first_token_ns"] <= after["sent_ns"]
    reached = document(tmp_path / "run", "performance_metrics")["phases"][0]["concurrency"]
    assert reached["configured"] == 3
    assert 1 < reached["achieved_max"] <= 3


async def test_an_open_loop_sends_at_its_rate(cold: Path, tmp_path: Path) -> None:
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, request_rate=100.0))
    got = rows(tmp_path / "run")
    planned = sorted(row["planned_send_ns"] for row in got)
    steps = {after - before for before, after in pairwise(planned)}
    assert steps == {10_000_000}
    assert all(row["sent_ns"] >= row["planned_send_ns"] for row in got)
    assert all(row["schedule_ttft_ms"] >= row["ttft_ms"] for row in got)
    assert document(tmp_path / "run", "run")["concurrency"] is None


async def test_load_is_sampled_while_requests_run(cold: Path, tmp_path: Path) -> None:
    async with running_server(ServeOptions(time_scale=1)) as url:
        await run_dataset_async(options(cold, tmp_path / "run", url, concurrency=4))
    samples = [row for row in rows(tmp_path / "run", "events") if row["event"] == "sample"]
    assert any(row["running"] > 0 for row in samples)
    (instance,) = document(tmp_path / "run", "prefix_cache_metrics")["instances"]
    assert 0 < instance["kv_cache_usage"]["mean"] <= instance["kv_cache_usage"]["max"]


async def test_a_resumed_run_keeps_whole_phases_and_does_the_others(
    static: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    async with running_server(INSTANT) as url:
        await run_dataset_async(options(static, run, url, mode="cold"))
        first = rows(run)
        result = await run_dataset_async(options(static, run, url, mode="compare", resume=True))
    assert result.status is RunStatus.COMPLETE
    assert [phase["phase"] for phase in phases(run)] == ["cold", "hot"]
    assert rows(run)[: len(first)] == first
    assert len(rows(run)) == 2 * len(first)
    assert {row["phase"] for row in document(run, "run")["isolation"]["phases"]} == {"cold", "hot"}
