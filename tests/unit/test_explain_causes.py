"""Each thing that goes wrong is named by its own cause, sized, and nothing else is named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixbench.explain.analysis import Analysis
from prefixbench.explain.report import report_of
from prefixbench.explain.run_files import read_run
from synthetic_runs import write_run

#: What happens, and the only cause with a size that may be named for it.
FAULTS: dict[str, dict[str, Any]] = {
    "failed_requests": {"failing": frozenset({0, 31, 32})},
    "residual_cache": {"residue": 128},
    "template_tokens": {"extra_tokens": 5},
    "block_size_mismatch": {"server_step": 64},
    "foreign_traffic": {"foreign_queries": 3000, "foreign_hits": 100},
    "counter_window": {"foreign_queries": -500, "foreign_hits": -500},
    "routing": {"ranks": 3, "scope": "dp_local", "misrouted": True},
    "capacity_eviction": {"forgetful": True, "evictions": 40},
}


def explained(folder: Path, **changes: Any) -> dict[str, Any]:
    return report_of(Analysis(read_run(write_run(folder, **changes)))).to_json()


def causes(report: dict[str, Any]) -> dict[str, float | None]:
    return {row["cause"]: row["contribution_pp"] for row in report["attribution"]["verdicts"]}


@pytest.mark.parametrize("cause", FAULTS)
def test_a_fault_is_named_sized_and_leaves_nothing_unexplained(tmp_path: Path, cause: str) -> None:
    report = explained(tmp_path, **FAULTS[cause])
    assert abs(report["runtime_deviation"]) > 0.0005, "the fault had no effect to explain"
    assert causes(report).keys() == {cause}
    assert causes(report)[cause] == pytest.approx(report["runtime_deviation"] * 100, abs=1e-9)
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)
    assert all(row["status"] != "unexplained" for row in report["checks"])
    (verdict,) = report["attribution"]["verdicts"]
    assert verdict["evidence"]
    assert verdict["hint"]
    assert verdict["confidence"] in ("high", "medium")


def test_checks_count_the_requests_that_went_as_planned(tmp_path: Path) -> None:
    report = explained(tmp_path, extra_tokens=5, ranks=2, scope="dp_local", misrouted=True)
    seen = {row["name"]: (row["expected"], row["observed"]) for row in report["checks"]}
    assert seen["prompt_lengths"] == (60, 0)
    # Groups a and c are planned for rank 0 and b for rank 1; requests go to ranks 0, 1, 0, 1, ...
    assert seen["routing"] == (60, 30)
    assert 0 < seen["requests_as_planned"][1] < 60


PLANNED = {"planned_flight": 4, "groups": ("a",), "requests": 40}


def test_a_plan_for_requests_in_flight_has_a_station_of_its_own(tmp_path: Path) -> None:
    report = explained(tmp_path, **PLANNED, concurrency=4)
    steps = {row["name"]: row["contribution_pp"] for row in report["attribution"]["stations"]}
    assert list(steps)[:3] == ["target", "designed", "theory"]
    assert steps["theory"] > 0.5, "the plan gave nothing up: nothing to show"
    assert steps["planned_conditions"] == pytest.approx(-steps["theory"])
    assert causes(report).get("concurrency_visibility", 0) == pytest.approx(
        report["runtime_deviation"] * 100
    )
    assert report["attribution"]["unexplained_pp"] == 0
    allowed = report["planned_conditions"]
    assert (allowed["concurrency"], allowed["capacity_blocks"]) == (4, None)
    assert allowed["in_words"] == "4 requests in flight"
    assert allowed["theoretical_hit_ratio"] == pytest.approx(
        report["designed_hit_ratio"] + steps["theory"] / 100
    )


def test_what_was_kept_although_the_plan_gave_it_up_is_a_gain(tmp_path: Path) -> None:
    flying = explained(tmp_path / "flying", **PLANNED, concurrency=1)
    assert causes(flying)["concurrency_visibility"] == pytest.approx(
        flying["runtime_deviation"] * 100
    )
    roomy = explained(tmp_path / "roomy", planned_blocks=60)
    assert roomy["planned_conditions"]["in_words"] == "a cache of 60 blocks"
    assert causes(roomy) == {"capacity_eviction": pytest.approx(roomy["runtime_deviation"] * 100)}
    for report in (flying, roomy):
        (verdict,) = report["attribution"]["verdicts"]
        assert verdict["contribution_pp"] > 0.5
        assert verdict["hint"].startswith("plan ")
        assert report["attribution"]["unexplained_pp"] == 0


def test_a_plan_for_the_cache_that_served_it_blames_nothing(tmp_path: Path) -> None:
    report = explained(tmp_path, planned_blocks=60, served_blocks=60)
    assert report["runtime_deviation"] == 0
    assert causes(report) == {}
    assert {row["status"] for row in report["checks"]} == {"ok"}


def test_what_was_noticed_while_running_is_named_only_while_something_is_left(
    tmp_path: Path,
) -> None:
    noticed = {"name": "cache_state", "status": "warn", "detail": "left", "cause": "residual_cache"}
    elsewhere = {"name": "rest", "status": "fail", "detail": "busy", "cause": "foreign_traffic"}
    here = {"phase": "progressive_prefix_fill", "round": 1}
    checks = [here | noticed, here | noticed, elsewhere | {"phase": "cold", "round": 1}]
    assert causes(explained(tmp_path / "fine", checks=tuple(checks))) == {}
    lossy = explained(tmp_path / "lossy", checks=tuple(checks), forgetful=True)
    assert causes(lossy) == {"residual_cache": None}


def test_losses_without_any_sign_of_eviction_stay_unexplained(tmp_path: Path) -> None:
    report = explained(tmp_path, forgetful=True)
    assert causes(report) == {}
    unexplained = report["attribution"]["unexplained_pp"]
    assert unexplained == pytest.approx(report["runtime_deviation"] * 100)
    assert unexplained < -1
    assert any(row["status"] == "unexplained" for row in report["checks"])


def test_requests_in_flight_together_lose_what_the_prediction_allows(tmp_path: Path) -> None:
    report = explained(tmp_path, requests=200, concurrency=16)
    found = causes(report)
    assert found.keys() == {"processing_order", "concurrency_visibility"}
    assert found["processing_order"] == pytest.approx(0, abs=1e-12)
    assert found["concurrency_visibility"] == pytest.approx(report["runtime_deviation"] * 100)
    assert report["predicted_hit_ratio"] is None
    prediction = report["prediction"]
    assert prediction["low"] <= report["actual_hit_rate"] <= prediction["high"]


def test_several_faults_are_told_apart(tmp_path: Path) -> None:
    report = explained(
        tmp_path, failing=frozenset({40}), extra_tokens=3, residue=128, foreign_queries=2000
    )
    assert causes(report).keys() == {
        "failed_requests", "template_tokens", "residual_cache", "foreign_traffic",
    }  # fmt: skip
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-9)


def test_requests_without_cached_tokens_leave_the_effect_of_concurrency_unexplained(
    tmp_path: Path,
) -> None:
    report = explained(tmp_path, requests=200, concurrency=16, reports_cached=False)
    assert causes(report).keys() == {"processing_order"}
    assert report["attribution"]["unexplained_pp"] < -0.5
    assert {group["actual"] for group in report["groups"]} == {None}
    assert report["usage"]["hit_rate"] is None
    assert "not_measured" in {row["status"] for row in report["checks"]}


@pytest.mark.parametrize(
    ("changes", "cause", "reason"),
    [
        ({"gap": "counter reset: the counters fell"}, "server_restart", "counter reset"),
        ({"gap": "the metrics page could not be read"}, "metrics_unavailable", "could not be read"),
    ],
)
def test_what_was_not_measured_is_null_with_its_reason_and_never_zero(
    tmp_path: Path, changes: dict[str, Any], cause: str, reason: str
) -> None:
    report = explained(tmp_path, **changes)
    assert report["actual_hit_rate"] is None
    assert report["runtime_deviation"] is None
    assert report["runtime_status"] is None
    assert report["attribution"]["unexplained_pp"] is None
    assert report["status"] == "PASS_WITH_WARNING"
    assert reason in report["actual_hit_rate_reason"]
    assert causes(report) == {cause: None}
    assert report["notes"][0].startswith("The hit rate was not measured")
    assert report["usage"]["prompt_tokens"] > 0


def test_a_server_that_does_not_cache_fails_a_plan_with_hits(tmp_path: Path) -> None:
    report = explained(tmp_path, caching=False)
    assert report["actual_hit_rate"] is None
    assert report["status"] == report["runtime_status"] == "FAIL"
    assert "caching is off" in report["actual_hit_rate_reason"]
    assert causes(report) == {"caching_disabled": None}


def test_counters_that_saw_no_query_are_not_a_rate_of_zero(tmp_path: Path) -> None:
    path = write_run(tmp_path, caching=False) / "runtime" / "run.json"
    path.write_text(path.read_text().replace('"enable_prefix_caching": false', '"flag": null'))
    report = report_of(Analysis(read_run(tmp_path))).to_json()
    assert report["actual_hit_rate"] is None
    assert report["actual_hit_rate_reason"] == "the counters saw no query in this phase"
    assert causes(report) == {"caching_disabled": None}


def test_one_void_round_voids_the_sum_of_the_rounds(tmp_path: Path) -> None:
    folder = write_run(tmp_path, rounds=2)
    path = folder / "runtime" / "prefix_cache_metrics.json"
    rewritten = path.read_text().replace('"hits": ', '"hits": null, "was": ', 4)
    path.write_text(rewritten)
    report = report_of(Analysis(read_run(folder))).to_json()
    rates = [phase["actual_hit_rate"] for phase in report["phases"]]
    assert None in rates
    assert report["actual_hit_rate"] is None
