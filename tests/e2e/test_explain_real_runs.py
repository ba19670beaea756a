"""Reports of real runs against the embedded server: exact where it can be, explained where not."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.errors import EndpointError, MetricsError, TooManyFailuresError
from prefixbench.explain.report import REPORT_HTML, write_report
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import STATIC, options, sample

_SERVER = ("capacity_blocks", "block_size", "dp_size")


async def reported(dataset: Path, folder: Path, *faults: str, **more: Any) -> dict[str, Any]:
    limits = {name: more.pop(name) for name in _SERVER if name in more}
    async with running_server(ServeOptions(time_scale=0, faults=faults, **limits)) as url:
        with suppress(EndpointError, MetricsError, TooManyFailuresError):
            await run_dataset_async(options(dataset, folder, url, **more))
    report = write_report(folder)
    assert (folder / REPORT_HTML).stat().st_size > 1_000_000
    return report


def causes(report: dict[str, Any]) -> dict[str, float | None]:
    return {row["cause"]: row["contribution_pp"] for row in report["attribution"]["verdicts"]}


async def test_a_progressive_run_one_at_a_time_is_exact(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path)
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["predicted_hit_ratio"] == report["designed_hit_ratio"] > 0.4
    assert report["usage"]["hit_rate"] == report["actual_hit_rate"]
    assert {row["status"] for row in report["checks"] if row["phase"] is None} == {"ok"}
    assert causes(report) == {}
    assert report["status"] == "PASS"


async def test_a_comparison_is_exact_in_both_phases(tmp_path: Path) -> None:
    report = await reported(sample(STATIC), tmp_path, mode="compare")
    assert [row["phase"] for row in report["phases"]] == ["cold", "hot"]
    for row in report["phases"]:
        assert row["actual_hit_rate"] == row["designed_hit_ratio"]
    assert report["phases"][0]["designed_hit_ratio"] < report["designed_hit_ratio"]
    assert report["phases"][1]["warmup_requests"] == 3


async def test_a_small_cache_is_found_out(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, capacity_blocks=16)
    assert report["runtime_deviation"] < -0.05
    assert causes(report).keys() == {"capacity_eviction"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)
    assert report["scenario_class"] == "real_traffic_or_capacity_pressure"
    assert report["predicted_hit_ratio"] < report["designed_hit_ratio"]


async def test_a_small_cache_that_was_planned_for_is_no_cause_to_blame(tmp_path: Path) -> None:
    dataset = sample(planning={"capacity_blocks": 20}, target={"hit_ratio": 0.2})
    report = await reported(dataset, tmp_path, capacity_blocks=20)
    steps = {row["name"]: row["contribution_pp"] for row in report["attribution"]["stations"]}
    assert steps["theory"] > 1, "nothing was given up: nothing to show"
    assert abs(steps.get("capacity_eviction", 0)) < steps["theory"] / 2
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


async def test_an_extra_token_stops_the_run_and_the_report_says_why(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, "extra_prompt_token")
    assert {"template_tokens", "failed_requests"} <= causes(report).keys()
    assert any("cut short" in note for note in report["notes"])


async def test_another_block_size_is_found_out(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, block_size=32)
    assert causes(report).keys() == {"block_size_mismatch"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


async def test_a_false_label_that_the_requests_contradict_is_no_cause(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, "block_size_label=32")
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert causes(report) == {}
    assert "block_size" in {row["name"] for row in report["checks"] if row["status"] == "warn"}


async def test_tokens_of_requests_that_broke_off_are_no_foreign_traffic(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, "disconnect=0.3", isolation="reset")
    assert causes(report).keys() == {"failed_requests"}
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)
    assert "unexplained" not in {row["status"] for row in report["checks"]}


async def test_failed_requests_are_found_out(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, "http_error=4")
    assert next(iter(causes(report))) == "failed_requests"
    assert report["status"] == "FAIL"
    assert any("of 24 requests were not answered" in note for note in report["notes"])
    answered = next(row for row in report["checks"] if row["name"] == "requests_answered")
    assert answered["status"] == "explained"
    assert 0 < answered["observed"] < 24


async def test_a_run_in_which_nothing_was_answered_fails_and_blames_the_requests(
    tmp_path: Path,
) -> None:
    report = await reported(sample(), tmp_path, "http_error")
    assert report["actual_hit_rate"] is None
    assert report["status"] == report["runtime_status"] == "FAIL"
    assert "24 http error" in report["actual_hit_rate_reason"]
    assert causes(report) == {"failed_requests": None}


async def test_a_rate_over_the_few_requests_that_fit_fails_and_blames_the_others(
    tmp_path: Path,
) -> None:
    report = await reported(sample(), tmp_path, capacity_blocks=5)
    assert report["actual_hit_rate"] is not None
    assert report["scenario_class"] == "real_traffic_or_capacity_pressure"
    assert report["status"] == "FAIL"
    assert next(iter(causes(report))) == "failed_requests"
    assert "more than 1.00 % of them" in report["notes"][0]


async def test_failures_that_were_allowed_do_not_fail_the_report(tmp_path: Path) -> None:
    report = await reported(sample(), tmp_path, "http_error=4", max_failure_rate=0.5)
    assert report["status"] == "PASS"
    assert "failed_requests" in causes(report)


@pytest.mark.parametrize(
    ("fault", "cause"),
    [("counter_reset=10", "server_restart"), ("metrics_404", "metrics_unavailable")],
)
async def test_void_counters_give_no_rate_and_the_requests_still_speak(
    tmp_path: Path, fault: str, cause: str
) -> None:
    report = await reported(sample(), tmp_path, fault)
    assert report["actual_hit_rate"] is None
    assert report["actual_hit_rate_reason"]
    assert causes(report)[cause] is None
    assert report["usage"]["hit_rate"] == report["designed_hit_ratio"]
    assert report["status"] == "PASS_WITH_WARNING"


async def test_answers_without_cached_tokens_leave_the_counters_alone_to_speak(
    tmp_path: Path,
) -> None:
    report = await reported(sample(), tmp_path, "no_cached_tokens")
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["usage"]["cached_tokens"] is None
    assert {group["actual"] for group in report["groups"]} == {None}


async def test_ranks_that_were_not_planned_are_sized_exactly_where_answers_name_them(
    tmp_path: Path,
) -> None:
    report = await reported(sample(), tmp_path, dp_size=4)
    assert report["runtime_deviation"] < -0.05
    assert causes(report).keys() == {"routing"}
    assert causes(report)["routing"] == pytest.approx(report["runtime_deviation"] * 100)


async def test_ranks_that_no_answer_names_are_sized_by_what_requests_missed(
    tmp_path: Path,
) -> None:
    exact = await reported(sample(), tmp_path, dp_size=4)
    results = tmp_path / "runtime" / "request_results.jsonl"
    silent = re.sub(r'"actual_dp_id":\d', '"actual_dp_id":null', results.read_text())
    assert silent != results.read_text()
    results.write_text(silent)
    report = write_report(tmp_path)
    assert causes(report) == pytest.approx(causes(exact))
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


async def test_two_ranks_add_up(tmp_path: Path) -> None:
    dataset = sample(routing={"cache_scope": "dp_local", "dp_size": 2})
    async with running_server(ServeOptions(time_scale=0, dp_size=2)) as url:
        await run_dataset_async(options(dataset, tmp_path, url))
    report = write_report(tmp_path)
    assert len(report["instances"]) == 2
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["scenario_class"] == "multi_instance"
    assert report["actual_hit_rate"] == (
        sum(row["hits"] for row in report["instances"])
        / sum(row["queries"] for row in report["instances"])
    )
