"""The report of a run: asked, planned, measured, and where the differences come from.

Reads finished files only; the page and the JSON document are made of the same object.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.core.errors import ErrorContext, Stage, StorageError
from prefixbench.core.log import event
from prefixbench.core.records import RequestPlan, ValidationStatus
from prefixbench.core.tally import as_rate
from prefixbench.dataset.layout import document
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.causes import ADVICE, Cause
from prefixbench.explain.documents import (
    Document,
    counters_document,
    performance_document,
    validation_document,
)
from prefixbench.explain.groups import group_rows
from prefixbench.explain.judgement import Judgement, judge
from prefixbench.explain.latency import latencies_by_cache
from prefixbench.explain.notes import notes
from prefixbench.explain.phases import Phase
from prefixbench.explain.provenance import provenance
from prefixbench.explain.reconcile import known_sum, reconcile, runtime_checks
from prefixbench.explain.run_facts import run_facts
from prefixbench.explain.run_files import ObservedRequest, RunRecord, read_run
from prefixbench.explain.stations import THEORY, Attribution, conditions_in_words
from prefixbench.explain.unsized import Unsized, noticed, why_unmeasured
from prefixbench.explain.verdict import THRESHOLDS, overall_status, scenario_class

if TYPE_CHECKING:
    from prefixbench.run.cache_metrics import PrefixCacheRuntimeMetrics
    from prefixbench.run.performance import PerformanceResult
    from prefixbench.workload.verdict import ValidationReport

log = logging.getLogger(__name__)

REPORT_JSON = "report/prefix_cache_report.json"
REPORT_HTML = "report/prefix_cache_report.html"


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheReport:
    """Keys of contract section 4. Ratios, rates and deviations are fractions, `*_pp` points;
    None is "not measured"."""

    dataset_id: str
    manifest_sha256: str
    run_id: str | None
    mode: str | None
    target_hit_ratio: float | None
    designed_hit_ratio: float
    predicted_hit_ratio: float | None
    actual_hit_rate: float | None
    actual_hit_rate_reason: str | None
    construction_deviation: float | None
    runtime_deviation: float | None
    construction_status: str
    runtime_status: str | None
    runtime_status_reason: str | None
    status: str
    scenario_class: str
    runtime_threshold_pp: Mapping[str, float | None]
    hit_definition: str | None
    planned_conditions: Mapping[str, Any] | None
    prediction: Mapping[str, Any]
    usage: Mapping[str, Any]
    notes: list[str]
    phases: list[dict[str, Any]]
    groups: list[dict[str, Any]]
    instances: list[dict[str, Any]]
    performance: dict[str, Any]
    attribution: dict[str, Any]
    checks: list[dict[str, Any]]
    provenance: dict[str, Any]

    def to_json(self) -> dict[str, Any]:
        """The document as written to `prefix_cache_report.json`."""
        return asdict(self)


def write_report(run_dir: str | Path) -> dict[str, Any]:
    """Explain a finished run; write the JSON document and the page; return the document.

    Raises DatasetChangedError if the files of the run do not belong to one data set.
    """
    from prefixbench.explain.charts import charts
    from prefixbench.explain.html import render_page

    analysis = Analysis(read_run(run_dir))
    report = report_of(analysis)
    content = report.to_json()
    _write(Path(run_dir) / REPORT_JSON, document(content))
    _write(Path(run_dir) / REPORT_HTML, render_page(report, charts(analysis)).encode())
    event(
        log,
        "report.done",
        dataset_id=report.dataset_id,
        designed=report.designed_hit_ratio,
        actual=report.actual_hit_rate,
        status=report.status,
    )
    return content


def build_prefix_cache_report(
    manifest: DatasetManifest,
    validation: ValidationReport | Document,
    runtime_metrics: PrefixCacheRuntimeMetrics | Document,
    performance_result: PerformanceResult | Document,
    *,
    run: Document | None = None,
    plans: Iterable[RequestPlan] = (),
    results: Iterable[ObservedRequest] = (),
) -> PrefixCacheReport:
    """Build a report from the objects of a run, or from the documents they are written as.

    Without plans and results (the RFC's interface, 3.5.2, gives neither) groups have no measured
    rate, and the whole runtime deviation stays unexplained.
    """
    report = validation_document(validation)
    performance = performance_document(performance_result)
    counters = counters_document(
        runtime_metrics, phase=performance["headline"], designed=report["designed_hit_ratio"]
    )
    record = RunRecord(
        manifest=manifest,
        validation=report,
        run=run or {},
        performance=performance,
        counters=counters,
        plans=tuple(plans),
        results=tuple(results),
    )
    return report_of(Analysis(record))


def report_of(analysis: Analysis) -> PrefixCacheReport:
    """Put together what the analysis found."""
    record, designed = analysis.record, analysis.designed
    actual = None if analysis.actual is None else analysis.actual.ratio
    scenario = scenario_class(
        record.manifest.data, caches=analysis.caches, under_pressure=analysis.under_pressure
    )
    runtime = None if actual is None else actual - designed
    construction_status = ValidationStatus(record.validation["validation_status"])
    judgement = judge(run_facts(analysis, THRESHOLDS[scenario]))
    missing = why_unmeasured(analysis.rounds, analysis.server)
    return PrefixCacheReport(
        dataset_id=record.manifest.dataset_id,
        manifest_sha256=record.manifest.sha256,
        run_id=record.run.get("run_id"),
        mode=record.run.get("mode"),
        target_hit_ratio=_number(analysis.target),
        designed_hit_ratio=float(designed),
        predicted_hit_ratio=analysis.prediction.ratio,
        actual_hit_rate=_number(actual),
        actual_hit_rate_reason=None if missing is None else missing.evidence,
        construction_deviation=_number(_construction(analysis)),
        runtime_deviation=_number(runtime),
        construction_status=construction_status,
        runtime_status=judgement.status,
        runtime_status_reason=judgement.reason,
        status=overall_status(construction_status, judgement.status),
        scenario_class=scenario,
        runtime_threshold_pp=THRESHOLDS[scenario].to_json(),
        hit_definition=record.manifest.data.get("hit_definition"),
        planned_conditions=_planned_conditions(analysis),
        prediction=analysis.prediction.to_json(),
        usage=_usage(analysis),
        notes=notes(analysis, scenario, judgement),
        phases=[_phase_row(phase) for phase in analysis.phases],
        groups=group_rows(analysis),
        instances=[dict(row) for row in analysis.instances],
        performance=_performance(analysis),
        attribution=_attribution(analysis, judgement),
        checks=_checks(analysis),
        provenance=provenance(record),
    )


def _planned_conditions(analysis: Analysis) -> dict[str, Any] | None:
    """What the designed ratio allows for, and what the plan would hit without it."""
    conditions = analysis.conditions
    if conditions is None:
        return None
    theory = next(
        (step.ratio for step in analysis.attribution.stations if step.name == THEORY), None
    )
    return {
        "concurrency": conditions.in_flight,
        "capacity_blocks": conditions.capacity_blocks,
        "in_words": conditions_in_words(conditions),
        "theoretical_hit_ratio": _number(theory),
    }


def _usage(analysis: Analysis) -> dict[str, Any]:
    """What the answered requests of the headline phase said of themselves, added up."""
    answered, told = analysis.answered, analysis.told
    return {
        "prompt_tokens": known_sum(result.prompt_tokens for result in answered),
        "cached_tokens": known_sum(result.cached_tokens for result in answered),
        "hit_rate": None if told is None else as_rate(told),
    }


def _construction(analysis: Analysis) -> Fraction | None:
    return None if analysis.target is None else analysis.planned - analysis.target


def _phase_row(phase: Phase) -> dict[str, Any]:
    rate = None if phase.tally is None else as_rate(phase.tally)
    designed = phase.designed
    return {
        "phase": phase.name,
        "round": phase.round,
        "cache_state_before": phase.counters.get("cache_state_before"),
        "warmup_requests": phase.counters.get("warmup_requests"),
        "designed_hit_ratio": designed,
        "queries": phase.counters.get("queries"),
        "hits": phase.counters.get("hits"),
        "actual_hit_rate": rate,
        "runtime_deviation": None if rate is None or designed is None else rate - designed,
        "performance": dict(phase.performance),
    }


def _performance(analysis: Analysis) -> dict[str, Any]:
    """The headline phase's own document, of its last round, and its latencies by hit and miss."""
    if not analysis.rounds:
        return {}
    return {
        **analysis.rounds[-1][0].performance,
        "by_cache": latencies_by_cache(analysis.answered),
    }


def _attribution(analysis: Analysis, judgement: Judgement) -> dict[str, Any]:
    attribution = analysis.attribution
    return {
        "stations": [
            {
                "name": station.name,
                "hit_ratio": float(station.ratio),
                "contribution_pp": float(station.contribution * 100),
                "evidence": station.evidence,
            }
            for station in attribution.stations
        ],
        "unexplained_pp": _number(attribution.unexplained, 100),
        "verdicts": _verdicts(analysis, attribution, judgement),
    }


def _verdicts(
    analysis: Analysis, attribution: Attribution, judgement: Judgement
) -> list[dict[str, Any]]:
    """Named causes: what decided the verdict, then the largest, then those without a size."""
    sized = sorted(
        (station for station in attribution.stations if station.is_cause),
        key=lambda station: -abs(station.contribution),
    )
    verdicts = [
        _verdict(Cause(station.name), station.evidence, station.contribution) for station in sized
    ]
    verdicts += [
        _verdict(found.cause, found.evidence, None)
        for found in _unsized(analysis, {verdict["cause"] for verdict in verdicts})
    ]
    decisive = judgement.cause
    if decisive is not None and all(verdict["cause"] != decisive for verdict in verdicts):
        verdicts.append(_verdict(decisive, str(judgement.reason), None))
    return sorted(verdicts, key=lambda verdict: verdict["cause"] != decisive)


def _unsized(analysis: Analysis, known: set[str]) -> Iterator[Unsized]:
    """Causes without a size, as long as something is left that they may stand for."""
    missing = why_unmeasured(analysis.rounds, analysis.server)
    if missing is not None:
        yield missing
        known = known | {missing.cause}
    if analysis.rounds and analysis.attribution.unexplained != 0:
        checks = list(analysis.record.counters.get("checks", ()))
        if analysis.server_step_refuted:
            known = known | {Cause.BLOCK_SIZE_MISMATCH, Cause.HIT_GRANULARITY}
        yield from noticed(checks, analysis.rounds[0][0].name, known)


def _verdict(cause: Cause, evidence: str, contribution: Fraction | None) -> dict[str, Any]:
    return {
        "cause": cause,
        "confidence": ADVICE[cause].confidence,
        "contribution_pp": _number(contribution, 100),
        "evidence": evidence,
        "hint": ADVICE[cause].hint_for(contribution),
    }


def _checks(analysis: Analysis) -> list[dict[str, Any]]:
    causes = {station.name for station in analysis.attribution.stations if station.is_cause}
    designed_hits = analysis.record.validation.get("expected_hit_tokens")
    checks = reconcile(
        analysis.rounds,
        designed_hits=None if analysis.other_mode else designed_hits,
        causes=causes,
    )
    return [asdict(check) for check in (*checks, *runtime_checks(analysis.record.counters))]


def _number(fraction: Fraction | None, times: int = 1) -> float | None:
    return None if fraction is None else float(fraction * times)


def _write(path: Path, content: bytes) -> None:
    try:
        path.parent.mkdir(exist_ok=True)
        draft = path.with_name(f".{path.name}.draft")
        draft.write_bytes(content)
        draft.replace(path)
    except OSError as error:
        raise StorageError(
            f"the report could not be written: {error.strerror or type(error).__name__}",
            context=ErrorContext(stage=Stage.REPORT, field=path.name),
            hint="free some room, or allow writing to the run directory",
        ) from error
