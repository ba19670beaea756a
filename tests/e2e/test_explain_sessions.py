"""Reports of conversations: exact where all goes well, explained to the last token where not."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.errors import EndpointError, TooManyFailuresError
from prefixbench.explain.report import write_report
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import COLD, options, sample

TREE = {"tree": [{"name": "system", "length": 40}, {"name": "tenant", "count": 3}]}
TALK = COLD | {
    "request_count": 72,
    "output_length": 21,
    "target": {"hit_ratio": 0.8, "semantics": "order_aware_global"},
    "validation": {"on_failure": "warn"},
}
WARMED = TALK | {"target": {"hit_ratio": 0.8, "semantics": "static_prefix_ratio"}}


def talks(base: dict[str, Any], answers: str, **changes: Any) -> Path:
    sessions = {"turns": 3, "new_tokens": 13, "answers": answers}
    return sample(base, sessions=sessions, **changes)


async def reported(dataset: Path, folder: Path, *faults: str, **more: Any) -> dict[str, Any]:
    limits = {name: more.pop(name) for name in ("capacity_blocks", "dp_size") if name in more}
    async with running_server(ServeOptions(time_scale=0, faults=faults, **limits)) as url:
        with suppress(EndpointError, TooManyFailuresError):
            await run_dataset_async(options(dataset, folder, url, **more))
    return write_report(folder)


def causes(report: dict[str, Any]) -> set[str]:
    return {row["cause"] for row in report["attribution"]["verdicts"]}


@pytest.mark.parametrize("prefix", [COLD["prefix"], TREE], ids=["groups", "tree"])
@pytest.mark.parametrize("base", [TALK, WARMED], ids=["cold", "warmed"])
@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_conversations_are_exact(
    tmp_path: Path, answers: str, base: dict[str, Any], prefix: dict[str, Any]
) -> None:
    report = await reported(talks(base, answers, prefix=prefix), tmp_path / "run")
    assert report["actual_hit_rate"] == report["designed_hit_ratio"] > 0.5
    assert report["predicted_hit_ratio"] == report["designed_hit_ratio"]
    assert {row["status"] for row in report["checks"] if row["phase"] is None} == {"ok"}
    assert causes(report) == set()


@pytest.mark.parametrize("answers", ["planned", "served"])
@pytest.mark.parametrize(
    "changes",
    [
        {"request_order": {"within_group": "shuffle", "across_group": "shuffle"}},
        {"request_order": {"within_group": "sequential", "across_group": "interleave"}},
        {"request_order": {"within_group": "sequential", "across_group": "grouped"}},
        {"prompt_format": "token_ids", "prefix": TREE},
        {"save_prompts": False},
        {"routing": {"cache_scope": "dp_local", "dp_size": 2}},
    ],
    ids=["shuffled", "interleaved", "grouped", "token ids", "recipes", "ranks"],
)
async def test_conversations_of_every_kind_are_exact(
    tmp_path: Path, changes: dict[str, Any], answers: str
) -> None:
    ranks = changes.get("routing", {}).get("dp_size", 1)
    report = await reported(talks(TALK, answers, **changes), tmp_path / "run", dp_size=ranks)
    assert report["actual_hit_rate"] == report["designed_hit_ratio"] > 0.5
    assert {row["status"] for row in report["checks"] if row["phase"] is None} == {"ok"}


@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_eight_at_a_time_are_exact_where_requests_of_a_group_wait(
    tmp_path: Path, answers: str
) -> None:
    order = {"preserve_group_dependency": True}
    dataset = talks(TALK, answers, request_order=order)
    report = await reported(dataset, tmp_path / "run", concurrency=8)
    assert report["actual_hit_rate"] == report["designed_hit_ratio"] > 0.5
    assert causes(report) <= {"processing_order"}


@pytest.mark.parametrize("prefix", [COLD["prefix"], TREE], ids=["groups", "tree"])
@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_eight_at_a_time_are_explained_where_they_do_not_wait(
    tmp_path: Path, answers: str, prefix: dict[str, Any]
) -> None:
    dataset = talks(TALK, answers, prefix=prefix)
    report = await reported(dataset, tmp_path / "run", concurrency=8)
    assert causes(report) <= {"concurrency_visibility", "processing_order"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_a_comparison_of_conversations_is_exact_in_both_phases(
    tmp_path: Path, answers: str
) -> None:
    report = await reported(talks(WARMED, answers), tmp_path / "run", mode="compare")
    for row in report["phases"]:
        assert row["actual_hit_rate"] == row["designed_hit_ratio"]
    assert report["phases"][0]["designed_hit_ratio"] < report["designed_hit_ratio"]


@pytest.mark.parametrize("prompt_format", ["text", "token_ids"])
@pytest.mark.parametrize("base", [TALK, WARMED], ids=["cold", "warmed"])
async def test_shorter_answers_explain_what_later_turns_miss(
    tmp_path: Path, base: dict[str, Any], prompt_format: str
) -> None:
    dataset = talks(base, "served", prompt_format=prompt_format)
    report = await reported(dataset, tmp_path / "run", "short_answer=0.5")
    assert report["runtime_deviation"] != 0
    assert causes(report) == {"served_answers"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)
    (lengths,) = (row for row in report["checks"] if row["name"] == "prompt_lengths")
    assert lengths["status"] == "explained"


@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_a_session_that_broke_off_is_explained_by_failed_requests(
    tmp_path: Path, answers: str
) -> None:
    report = await reported(talks(TALK, answers), tmp_path / "run", "http_error=0.1")
    (failed,) = report["attribution"]["verdicts"]
    assert failed["cause"] == "failed_requests"
    assert "not sent" in failed["evidence"]
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("answers", ["planned", "served"])
async def test_turns_that_move_between_ranks_are_explained_by_routing(
    tmp_path: Path, answers: str
) -> None:
    report = await reported(talks(TALK, answers), tmp_path / "run", dp_size=2, concurrency=2)
    assert report["runtime_deviation"] < 0
    assert "routing" in causes(report)
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("answers", ["planned", "served"])
@pytest.mark.parametrize("prefix", [COLD["prefix"], TREE], ids=["groups", "tree"])
async def test_a_small_cache_is_found_out(
    tmp_path: Path, prefix: dict[str, Any], answers: str
) -> None:
    dataset = talks(TALK, answers, prefix=prefix)
    report = await reported(dataset, tmp_path / "run", capacity_blocks=60)
    assert report["runtime_deviation"] < -0.05
    assert report["predicted_hit_ratio"] == pytest.approx(report["actual_hit_rate"], abs=0.02)
    assert causes(report) == {"capacity_eviction"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)
