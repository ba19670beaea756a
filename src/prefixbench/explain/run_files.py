"""A run directory read back: what was planned, what was sent, what the counters said.

Every file must speak of the same data set. A file of another run among them would give a report
that looks right and is not, so it is refused (contract, section 4).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from prefixbench.core.errors import (
    DatasetChangedError,
    ErrorContext,
    InputPathError,
    Stage,
    StorageError,
)
from prefixbench.core.records import RequestPlan
from prefixbench.dataset.json_files import Refuse, read_document, read_rows
from prefixbench.dataset.layout import METADATA, REPORT, file_sha256
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.file_shapes import (
    COUNTERS_DOCUMENT,
    PERFORMANCE_DOCUMENT,
    RESULT_ROW,
    RUN_DOCUMENT,
)

_RUN = "runtime/run.json"
_RESULTS = "runtime/request_results.jsonl"
_PERFORMANCE = "runtime/performance_metrics.json"
_COUNTERS = "runtime/prefix_cache_metrics.json"
_DOCUMENTS = {
    _RUN: RUN_DOCUMENT,
    _PERFORMANCE: PERFORMANCE_DOCUMENT,
    _COUNTERS: COUNTERS_DOCUMENT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedRequest:
    """One attempt at one request, as the client saw it; None is "not measured"."""

    request_id: str
    phase: str
    status: str
    round: int = 0
    attempt: int = 0
    actual_dp_id: int | None = None
    actual_instance_id: int | None = None
    sent_ns: int | None = None
    first_token_ns: int | None = None
    server_prefill_start_ns: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    schedule_ttft_ms: float | None = None
    schedule_e2e_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    http_status: int | None = None

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def ended_early(self) -> bool:
        """Whether the server may have worked on it, and may have counted it or not."""
        return self.status in ("disconnected", "timeout", "malformed")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRecord:
    """Everything a report is made of. `plans` are in planned order."""

    manifest: DatasetManifest
    validation: Mapping[str, Any]
    run: Mapping[str, Any]
    performance: Mapping[str, Any]
    counters: Mapping[str, Any]
    plans: tuple[RequestPlan, ...]
    results: tuple[ObservedRequest, ...]


def read_run(run_dir: str | Path) -> RunRecord:
    """Read a run directory; raise DatasetChangedError where two files disagree on the data set."""
    folder = Path(run_dir)
    _check_is_a_run(folder)
    dataset = DatasetReader(folder / "dataset")
    _check_copies(dataset)
    documents = {
        name: read_document(folder / name, _refusing(name), shape, name=name)
        for name, shape in _DOCUMENTS.items()
    }
    for name, document in documents.items():
        _check_identity(dataset.manifest, name, document)
    plans = tuple(dataset.plans())
    return RunRecord(
        manifest=dataset.manifest,
        validation=dataset.validation,
        run=documents[_RUN],
        performance=documents[_PERFORMANCE],
        counters=documents[_COUNTERS],
        plans=plans,
        results=tuple(_results(folder, dataset.manifest)),
    )


def _check_is_a_run(folder: Path) -> None:
    if not (folder / "runtime").is_dir():
        raise InputPathError(
            "no run here: there is no folder runtime/ in it",
            context=ErrorContext(stage=Stage.REPORT, field="--run-dir"),
            hint="name a run directory: the folder that `prefixbench run` writes and names at its "
            "end, by default outputs/run_NNN",
        )


def _check_copies(dataset: DatasetReader) -> None:
    """The copies in a run directory lack data.jsonl; the other files must be the manifest's."""
    dataset.check_complete()
    for name in (METADATA, REPORT):
        path = dataset.folder / name
        if not path.is_file() or file_sha256(path) != dataset.manifest.hash_of(name):
            raise _changed(
                dataset.manifest, f"dataset/{name}", "is missing or not what manifest.json says"
            )


def _check_identity(manifest: DatasetManifest, name: str, row: Mapping[str, Any]) -> None:
    for key, expected in (
        ("dataset_id", manifest.dataset_id),
        ("manifest_sha256", manifest.sha256),
    ):
        if row.get(key) != expected:
            raise _changed(
                manifest, name, f"belongs to another data set than manifest.json: its {key} differs"
            )


def _changed(manifest: DatasetManifest, name: str, why: str) -> DatasetChangedError:
    return DatasetChangedError(
        f"{name} {why}",
        context=ErrorContext(stage=Stage.REPORT, dataset_id=manifest.dataset_id, field=name),
        hint="report on a run directory as `prefixbench run` left it; never mix files of runs",
    )


def _refusing(name: str) -> Refuse:
    return lambda why: StorageError(
        f"no complete run here: {why}",
        context=ErrorContext(stage=Stage.REPORT, field=name),
        hint="name the folder that `prefixbench run --output` wrote; where a file was edited or "
        "damaged, restore it, or run again",
    )


_RESULT_KEYS = tuple(field.name for field in fields(ObservedRequest))


def _results(folder: Path, manifest: DatasetManifest) -> Iterator[ObservedRequest]:
    for row in read_rows(folder / _RESULTS, _refusing(_RESULTS), RESULT_ROW, name=_RESULTS):
        _check_identity(manifest, _RESULTS, row)
        yield ObservedRequest(**{key: row[key] for key in _RESULT_KEYS if key in row})
