"""A run directory becomes a report: the keys, the arithmetic, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.errors import DatasetChangedError, StorageError
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.report import REPORT_HTML, REPORT_JSON, report_of, write_report
from prefixbench.explain.run_files import read_run
from synthetic_runs import write_run

CONTRACT_KEYS = {
    "target_hit_ratio", "designed_hit_ratio", "predicted_hit_ratio", "actual_hit_rate",
    "construction_deviation", "runtime_deviation", "construction_status", "runtime_status",
    "status", "scenario_class", "runtime_threshold_pp", "hit_definition", "phases", "groups",
    "instances", "performance", "planned_conditions", "runtime_status_reason",
    "attribution", "dataset_id", "manifest_sha256",
}  # fmt: skip


def reported(folder: Path, **changes: Any) -> dict[str, Any]:
    report = explained(write_run(folder, **changes))
    assert report["groups"], "an empty report proves nothing"
    assert sum(group["requests"] for group in report["groups"]) > 0
    return report


def explained(folder: Path) -> dict[str, Any]:
    return report_of(Analysis(read_run(folder))).to_json()


def test_a_report_has_every_key_of_the_contract_and_stands_on_disk(tmp_path: Path) -> None:
    report = write_report(write_run(tmp_path))
    assert report.keys() >= CONTRACT_KEYS
    assert report["attribution"].keys() >= {"stations", "unexplained_pp", "verdicts"}
    assert report["groups"][0].keys() >= {
        "id", "requests", "input_tokens", "target", "designed", "predicted", "actual", "ttft_ms",
    }  # fmt: skip
    on_disk = json.loads((tmp_path / REPORT_JSON).read_text())
    assert on_disk == json.loads(json.dumps(report))
    assert (tmp_path / REPORT_HTML).stat().st_size > 1_000_000


def test_a_run_as_planned_measures_what_was_designed(tmp_path: Path) -> None:
    report = reported(tmp_path)
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["predicted_hit_ratio"] == report["designed_hit_ratio"]
    assert report["runtime_deviation"] == 0
    assert report["status"] == "PASS"
    assert report["attribution"]["verdicts"] == []
    assert report["notes"] == []
    assert {check["status"] for check in report["checks"]} == {"ok"}


def test_deviations_are_signed_fractions_of_designed_less_target_and_actual_less_designed(
    tmp_path: Path,
) -> None:
    report = reported(tmp_path, requests=200, concurrency=16)
    designed, actual = report["designed_hit_ratio"], report["actual_hit_rate"]
    assert report["construction_deviation"] == pytest.approx(designed - 0.6, abs=1e-12)
    assert report["runtime_deviation"] == pytest.approx(actual - designed, abs=1e-12)
    assert report["runtime_deviation"] < 0


def test_groups_are_measured_by_their_own_requests(tmp_path: Path) -> None:
    report = reported(tmp_path)
    rows = [json.loads(line) for line in _lines(tmp_path / "runtime/request_results.jsonl")]
    for group in report["groups"]:
        own = [row for row in rows if row["prefix_group_id"] == group["id"]]
        assert group["requests"] == len(own) > 0
        assert group["cached_tokens"] == sum(row["cached_tokens"] for row in own)
        assert group["actual"] == pytest.approx(
            group["cached_tokens"] / sum(row["prompt_tokens"] for row in own)
        )
        assert group["ttft_ms"]["count"] == len(own)


def test_a_comparison_reports_cold_and_hot_with_their_own_designed_ratio(tmp_path: Path) -> None:
    report = reported(tmp_path, mode="compare", semantics="static_prefix_ratio", target=0.5)
    cold, hot = report["phases"]
    assert (cold["phase"], hot["phase"]) == ("cold", "hot")
    assert cold["designed_hit_ratio"] < hot["designed_hit_ratio"]
    assert cold["actual_hit_rate"] == cold["designed_hit_ratio"]
    assert report["actual_hit_rate"] == hot["actual_hit_rate"]
    assert report["designed_hit_ratio"] == hot["designed_hit_ratio"]
    assert report["status"] == "PASS"


def test_a_warmed_plan_run_cold_is_judged_by_the_ratio_of_a_cold_run(tmp_path: Path) -> None:
    report = reported(tmp_path, mode="cold", semantics="static_prefix_ratio", target=0.5)
    assert report["designed_hit_ratio"] < 0.49
    assert report["runtime_deviation"] == 0
    assert abs(report["construction_deviation"]) < 0.001
    names = [station["name"] for station in report["attribution"]["stations"]]
    assert names == ["target", "designed", "execution_mode", "unexplained"]
    assert report["attribution"]["unexplained_pp"] == pytest.approx(0, abs=1e-12)
    assert any("another mode" in note for note in report["notes"])


def test_rounds_add_up_to_one_headline(tmp_path: Path) -> None:
    report = reported(tmp_path, rounds=3)
    assert [phase["round"] for phase in report["phases"]] == [1, 2, 3]
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["groups"][0]["requests"] == 20
    assert report["groups"][0]["answered"] == 60


@pytest.mark.parametrize(
    "name",
    ["run.json", "performance_metrics.json", "prefix_cache_metrics.json", "request_results.jsonl"],
)
@pytest.mark.parametrize("key", ["dataset_id", "manifest_sha256"])
def test_a_file_of_another_data_set_is_refused(tmp_path: Path, name: str, key: str) -> None:
    path = write_run(tmp_path) / "runtime" / name
    text = path.read_text()
    value = json.loads(text.splitlines()[0] if name.endswith("l") else text)[key]
    assert value in text
    path.write_text(text.replace(value, "other", 1))
    with pytest.raises(DatasetChangedError, match=name):
        write_report(tmp_path)
    assert not (tmp_path / "report").exists()


@pytest.mark.parametrize("name", ["request_metadata.jsonl", "validation_report.json"])
def test_an_edited_copy_of_the_data_set_is_refused(tmp_path: Path, name: str) -> None:
    path = write_run(tmp_path) / "dataset" / name
    path.write_text(path.read_text().replace("1", "2", 1))
    with pytest.raises(DatasetChangedError, match=name):
        write_report(tmp_path)


def test_an_edited_manifest_is_refused(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "dataset" / "manifest.json"
    path.write_text(path.read_text().replace('"seed": 7', '"seed": 8'))
    with pytest.raises(DatasetChangedError, match="manifest_sha256"):
        write_report(tmp_path)


@pytest.mark.parametrize("folder", ["", "nope"])
def test_a_folder_that_holds_no_run_is_told(tmp_path: Path, folder: str) -> None:
    with pytest.raises(StorageError, match="no run here") as told:
        write_report(tmp_path / folder)
    assert "run directory: the folder that `prefixbench run` writes" in told.value.hint


@pytest.mark.parametrize("name", ["run.json", "request_results.jsonl"])
def test_an_unfinished_run_is_told_apart_from_a_broken_one(tmp_path: Path, name: str) -> None:
    (write_run(tmp_path) / "runtime" / name).unlink()
    with pytest.raises(StorageError, match=f"no complete run here.*{name}"):
        write_report(tmp_path)


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "runtime" / "request_results.jsonl"
    path.write_text(path.read_text() + '{"request_id"\n')
    with pytest.raises(StorageError, match="line 61 of"):
        write_report(tmp_path)


@pytest.mark.parametrize("retry_first", [True, False])
def test_the_last_attempt_of_a_request_counts(tmp_path: Path, retry_first: bool) -> None:
    path = write_run(tmp_path, failing=frozenset({0})) / "runtime" / "request_results.jsonl"
    rows = [json.loads(line) for line in _lines(path)]
    assert rows[0]["status"] == "timeout"
    retry = rows[1] | {key: rows[0][key] for key in ("request_id", "prefix_group_id")}
    retry |= {"attempt": 2, "cached_tokens": 0}
    written = [retry, *rows] if retry_first else [*rows, retry]
    path.write_text("".join(json.dumps(row) + "\n" for row in written))
    report = explained(tmp_path)
    answered = next(row for row in report["checks"] if row["name"] == "requests_answered")
    assert answered["observed"] == answered["expected"] == 60


def test_one_request_without_cached_tokens_leaves_its_group_unmeasured(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "runtime" / "request_results.jsonl"
    rows = [json.loads(line) for line in _lines(path)]
    rows[4]["cached_tokens"] = None
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    report = explained(tmp_path)
    unmeasured = {group["id"] for group in report["groups"] if group["actual"] is None}
    assert unmeasured == {rows[4]["prefix_group_id"]}
    assert report["usage"]["hit_rate"] is None
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]


def test_a_cache_that_is_too_small_lowers_the_prediction(tmp_path: Path) -> None:
    report = reported(tmp_path, num_blocks=30)
    assert report["predicted_hit_ratio"] < report["designed_hit_ratio"] - 0.01
    assert "LRU evicts" in report["prediction"]["reason"]
    assert {group["predicted"] for group in report["groups"]} == {None}
    assert report["scenario_class"] == "real_traffic_or_capacity_pressure"
    assert report["runtime_threshold_pp"] == {"warn": 10, "fail": None}
    assert any("under pressure" in note for note in report["notes"])


def test_a_small_cache_with_requests_in_flight_has_no_prediction(tmp_path: Path) -> None:
    report = reported(tmp_path, num_blocks=30, concurrency=4)
    assert report["predicted_hit_ratio"] is None
    assert "the cache is small" in report["prediction"]["reason"]


def test_no_error_text_salt_or_prompt_reaches_the_report(tmp_path: Path) -> None:
    write_report(write_run(tmp_path, failing=frozenset({3})))
    for name in (REPORT_JSON, REPORT_HTML):
        assert "SECRET" not in (tmp_path / name).read_text()


def test_a_client_that_was_the_bottleneck_is_told_in_the_first_screen(tmp_path: Path) -> None:
    notes = {"client": "late", "client_reason": "p99 of its event loop's lag: 12.0 ms"}
    assert reported(tmp_path, notes=notes)["notes"] == [
        "The client was late in sending or reading (p99 of its event loop's lag: 12.0 ms):"
        " latencies may be its own."
    ]


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()
