"""The Python interface: a report from the objects of the stages, and the headline on a terminal."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

from rich.console import Console

from prefixbench.core.tally import HitTally
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.explain.console import print_headline
from prefixbench.explain.report import build_prefix_cache_report, write_report
from prefixbench.run.cache_metrics import Gap, InstanceMetrics, PrefixCacheRuntimeMetrics
from prefixbench.run.performance import PerformanceResult
from prefixbench.workload.verdict import validate_theoretical_hit_rate
from synthetic_runs import write_run

ADDRESS = "http://gpu-7.cluster.example:8000/metrics"


def instance(rank: str, hits: int, queries: int) -> InstanceMetrics:
    return InstanceMetrics(endpoint=ADDRESS, engine=rank, tally=HitTally(hits, queries))


@dataclass(frozen=True)
class Simulated:
    """A simulation that found some tokens of all."""

    hits: int
    queries: int


def built(folder: Path, *instances: InstanceMetrics) -> Any:
    write_run(folder)
    return build_prefix_cache_report(
        DatasetManifest.load(folder / "dataset"),
        validate_theoretical_hit_rate(Simulated(60, 100), 0.6, 0.01, 0.02),
        PrefixCacheRuntimeMetrics(adapter="vllm", instances=instances),
        PerformanceResult(
            dataset_id="synthetic_60",
            manifest_sha256="0",
            headline="progressive_prefix_fill",
            phases=({"phase": "progressive_prefix_fill", "round": 1, "duration_s": 1.0},),
        ),
    )


def test_ranks_of_unequal_traffic_add_up_and_are_never_averaged(tmp_path: Path) -> None:
    report = built(tmp_path, instance("0", 90, 100), instance("1", 0, 900))
    assert report.actual_hit_rate == 0.09
    assert report.runtime_deviation == 0.09 - 0.6
    assert [row["hit_rate"] for row in report.instances] == [0.9, 0.0]
    assert report.status == "FAIL"


def test_without_requests_the_whole_deviation_is_unexplained(tmp_path: Path) -> None:
    report = built(tmp_path, instance("0", 50, 100))
    assert report.attribution["unexplained_pp"] == -10
    assert {group["actual"] for group in report.groups} == {None}


def test_metrics_that_could_not_be_read_give_a_null_rate(tmp_path: Path) -> None:
    gap = InstanceMetrics(endpoint=ADDRESS, engine=None, gap=Gap.UNREACHABLE, reason="no answer")
    report = built(tmp_path, gap)
    assert report.actual_hit_rate is None
    assert report.actual_hit_rate_reason == "no answer"


def test_a_report_from_objects_is_json_and_holds_no_address(tmp_path: Path) -> None:
    text = json.dumps(built(tmp_path, instance("0", 50, 100)).to_json())
    assert "cluster" not in text


def test_the_terminal_says_the_answer_the_notes_and_the_causes(tmp_path: Path) -> None:
    write_run(tmp_path, failing=frozenset({3}), foreign_queries=3000)
    console = Console(file=StringIO(), width=160)
    print_headline(write_report(tmp_path), console)
    said = console.file.getvalue()  # type: ignore[attr-defined]
    assert said.startswith("60.00 % asked, 60.00 % planned, 5")
    assert "1 of 60 requests were not answered" in said
    assert "counter" in said
    assert "foreign traffic −" in said


def test_reading_a_report_module_loads_no_network_client_and_no_chart_library() -> None:
    script = (
        "import sys, prefixbench.explain.report;"
        "print({'aiohttp', 'plotly', 'rich', 'numpy', 'tokenizers'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "set()"
