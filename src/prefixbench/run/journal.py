"""Writes a run down while it goes on: rows at once, documents after every phase."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any, Self

from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.run.cache_document import cache_document, metrics_of, phase_row
from prefixbench.run.cache_metrics import PrefixCacheRuntimeMetrics
from prefixbench.run.checks import as_row, phase_checks
from prefixbench.run.directory import CACHE, EVENTS, PERFORMANCE, RESULTS, RUN, RunDirectory
from prefixbench.run.file_shapes import (
    EVENT_ROW,
    RESULT_ROW,
    RESUMED_COUNTERS,
    RESUMED_PERFORMANCE,
    RESUMED_RUN,
)
from prefixbench.run.performance import PerformanceResult
from prefixbench.run.phase_run import PhaseOutcome
from prefixbench.run.results import RequestResult


class RunStatus(StrEnum):
    """How far a run came."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeMetrics:
    """What was measured: latencies and throughput by phase, counters of the headline phase."""

    performance: PerformanceResult
    cache: PrefixCacheRuntimeMetrics


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """A finished run and where it stands."""

    directory: Path
    status: RunStatus
    runtime: RuntimeMetrics


class RunJournal:
    """Context manager around the files of runtime/. `description` is what run.json says."""

    def __init__(
        self,
        directory: RunDirectory,
        *,
        identity: Mapping[str, str],
        headline: str,
        description: Mapping[str, Any],
    ) -> None:
        self._directory = directory
        self._identity = identity
        self._headline = headline
        self._description = dict(description)
        self._performance: list[Mapping[str, Any]] = []
        self._cache: list[Mapping[str, Any]] = []
        self._checks: list[Mapping[str, Any]] = []
        self._isolation: list[Mapping[str, Any]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._results = stack.enter_context(self._directory.rows(RESULTS))
            self._events = stack.enter_context(self._directory.rows(EVENTS))
            self._files = stack.pop_all()
        self.event("run.started", self._identity)
        self._write_documents(RunStatus.RUNNING)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.close()

    def resume(self) -> set[tuple[str, int]]:
        """Take over the whole phases of an earlier run; says which, by name and round."""
        if not self._directory.holds_a_run:
            return set()
        self._check_same_dataset()
        counters = self._directory.read(CACHE, RESUMED_COUNTERS)
        done = {_key(row) for row in counters["phases"] if row["complete"]}
        performance = self._directory.read(PERFORMANCE, RESUMED_PERFORMANCE)
        self._performance = _of_phases(performance["phases"], done)
        self._cache = _of_phases(counters["phases"], done)
        self._checks = _of_phases(counters["checks"], done)
        earlier = self._directory.read(RUN, RESUMED_RUN)
        self._isolation = _of_phases(earlier["isolation"]["phases"], done)
        self._directory.keep_rows(RESULTS, RESULT_ROW, lambda row: _key(row) in done)
        self._directory.keep_rows(EVENTS, EVENT_ROW, lambda _: True)
        return done

    def event(self, name: str, keys: Mapping[str, Any]) -> None:
        """Write an event with the moment it happened."""
        self._events.write({"ns": time.time_ns(), "event": name, **keys})

    def result(self, row: RequestResult) -> None:
        self._results.write(row)

    def phase_done(self, outcome: PhaseOutcome) -> None:
        """Add a phase to the documents."""
        facts = outcome.facts
        self._performance.append(outcome.performance)
        self._cache.append(phase_row(facts, is_complete=outcome.is_complete))
        self._checks.extend(as_row(check, outcome.phase) for check in phase_checks(facts))
        isolated = facts.isolated
        self._isolation.append(
            {
                "phase": outcome.phase.name,
                "round": outcome.phase.round,
                "used": isolated.method,
                "cache_state_before": isolated.cache_state,
                "verified": isolated.verified,
                "detail": isolated.detail,
            }
        )
        self._write_documents(RunStatus.RUNNING)

    def finish(self, status: RunStatus, error: Mapping[str, Any] | None = None) -> RunResult:
        """Close the books; `error` is what the run ended with."""
        self.event("run.ended", {"status": status})
        self._write_documents(status, ended=now_text(), error=error)
        rows = [row for row in self._cache if row["phase"] == self._headline]
        return RunResult(
            directory=self._directory.path,
            status=status,
            runtime=RuntimeMetrics(performance=self._performance_result(), cache=_joined(rows)),
        )

    def _performance_result(self) -> PerformanceResult:
        return PerformanceResult(
            **self._identity, headline=self._headline, phases=tuple(self._performance)
        )

    def _write_documents(
        self,
        status: RunStatus,
        *,
        ended: str | None = None,
        error: Mapping[str, Any] | None = None,
    ) -> None:
        self._directory.write(PERFORMANCE, self._performance_result().to_json())
        self._directory.write(
            CACHE,
            cache_document(
                self._cache, self._checks, headline=self._headline, identity=self._identity
            ),
        )
        isolation = {**self._description["isolation"], "phases": self._isolation}
        self._directory.write(
            RUN,
            {
                **self._description,
                "isolation": isolation,
                "status": status,
                "ended": ended,
                "error": error,
            },
        )

    def _check_same_dataset(self) -> None:
        earlier = self._directory.read(RUN, RESUMED_RUN)
        if any(earlier.get(key) != value for key, value in self._identity.items()):
            raise DatasetChangedError(
                "the run in the output folder is of another data set",
                context=ErrorContext(
                    stage=Stage.RUN, dataset_id=self._identity["dataset_id"], field="--output"
                ),
                hint="resume with the same data set, or choose another --output",
            )


def now_text() -> str:
    """The present moment for people, in UTC."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _of_phases(
    rows: Sequence[Mapping[str, Any]], done: set[tuple[str, int]]
) -> list[Mapping[str, Any]]:
    return [row for row in rows if _key(row) in done]


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["phase"], row["round"]


def _joined(rows: Sequence[Mapping[str, Any]]) -> PrefixCacheRuntimeMetrics:
    """The rounds of one phase as one; their tallies add."""
    parts = [metrics_of(row) for row in rows]
    return PrefixCacheRuntimeMetrics(
        adapter=next((part.adapter for part in parts if part.adapter), None),
        instances=tuple(row for part in parts for row in part.instances),
    )
