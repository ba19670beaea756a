"""Figures of a manifest and its validation report, computed again from the rows on disk.

Each function names the keys that say something else than the rows do, or than each other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.config.target import TargetScope
from prefixbench.content.collide import CollisionStatus
from prefixbench.core.records import ValidationStatus
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.workload.verdict import (
    ValidationReport,
    validate_theoretical_hit_rate,
    worst,
)

Row = Mapping[str, Any]

#: The target of several groups is a fraction; as a number in JSON it is rounded.
_ROUNDING = 1e-12

#: Settings that a manifest repeats beside its configuration.
_REPEATED = (
    "dataset_id",
    "seed",
    "request_count",
    "block_size",
    "hit_granularity",
    "engine_profile",
    "prompt_format",
    "target",
    "input_length",
    "output_length",
    "suffix",
    "request_order",
    "routing",
)


@dataclass(frozen=True, slots=True)
class _Counted:
    hits: int
    queries: int


def wrong_report_figures(report: Row, rows: Sequence[Row]) -> Iterator[str]:
    """Totals, deviations and verdict of the validation report."""
    verdict = _verdict_on(report, report["target_hit_ratio"], rows)
    figures = _totals(verdict) | _deviations(verdict) | _accidents(rows)
    yield from _differing(report, figures)
    if report["validation_status"] != _status(report, rows, verdict):
        yield "validation_status"
    by_group = _by_group(rows)
    for stated in report["per_group"]:
        own = _verdict_on(report, stated["target_hit_ratio"], by_group[stated["id"]], planned=True)
        for key in _differing(stated, own.deviation_keys()):
            yield f"{key} of {stated['id']}"


def wrong_manifest_figures(
    manifest: DatasetManifest, report: Row, rows: Sequence[Row]
) -> Iterator[str]:
    """Results and groups of the manifest, and the settings it repeats."""
    yield from _differing(manifest.data["theoretical_result"], report)
    by_group = _by_group(rows)
    for stated in manifest.groups:
        for key in _differing(stated, _group_figures(by_group[stated["id"]])):
            yield f"{key} of {stated['id']}"
    config = manifest.config
    yield from _differing(manifest.data, {key: config[key] for key in _REPEATED})
    target = config["target"]
    if target["scope"] == TargetScope.GLOBAL:
        yield from _differing(report, {"target_hit_ratio": target["hit_ratio"]})


def _verdict_on(
    report: Row, target: float, rows: Sequence[Row], *, planned: bool = False
) -> ValidationReport:
    """`planned`: without what is hit by accident, which belongs to no group's plan."""
    hits = sum(row["expected_hit_len"] - planned * row["accidental_hit_len"] for row in rows)
    counted = _Counted(hits, sum(row["input_len"] for row in rows))
    tolerances = report["pass_tolerance"], report["warning_tolerance"]
    return validate_theoretical_hit_rate(counted, target, *tolerances)


def _totals(verdict: ValidationReport) -> dict[str, Any]:
    return {
        "input_tokens": verdict.input_tokens,
        "expected_hit_tokens": verdict.expected_hit_tokens,
    }


def _deviations(verdict: ValidationReport) -> dict[str, Any]:
    return {**verdict.deviation_keys(), "deviation_pp": float(verdict.deviation_pp)}


def _accidents(rows: Sequence[Row]) -> dict[str, int]:
    by_marker, others = (
        sum(row["accidental_hit_len"] for row in rows if _repeats_marker(row) is wanted)
        for wanted in (True, False)
    )
    return {
        "accidental_hit_tokens": by_marker + others,
        "repeated_marker_hit_tokens": by_marker,
    }


def _repeats_marker(row: Row) -> bool:
    return bool(row["collision_status"] == CollisionStatus.REPEATS_MARKER)


def _status(report: Row, rows: Sequence[Row], verdict: ValidationReport) -> ValidationStatus:
    """The worst of all that is judged: the ratio, each group, reachability, accidents of texts."""
    judged = [verdict.validation_status]
    judged += [ValidationStatus(stated["validation_status"]) for stated in report["per_group"]]
    if not report["reachable"]:
        judged.append(ValidationStatus.FAIL)
    if any(row["accidental_hit_len"] and not _repeats_marker(row) for row in rows):
        judged.append(ValidationStatus.PASS_WITH_WARNING)
    return worst(judged)


def _group_figures(rows: Sequence[Row]) -> dict[str, int]:
    return {
        "request_count": len(rows),
        "input_tokens": sum(row["input_len"] for row in rows),
        "master_prefix_len": max(
            (row["planned_prefix_len"] for row in rows if not row.get("turn")), default=0
        ),
        "designed_hit_tokens": sum(
            row["expected_hit_len"] - row["accidental_hit_len"] for row in rows
        ),
    }


def _by_group(rows: Sequence[Row]) -> Mapping[str, list[Row]]:
    by_group: defaultdict[str, list[Row]] = defaultdict(list)
    for row in rows:
        by_group[row["prefix_group_id"]].append(row)
    return by_group


def _differing(stated: Row, computed: Row) -> Iterator[str]:
    """Keys of both that have another value in each."""
    for key in stated.keys() & computed.keys():
        one, other = stated[key], computed[key]
        if isinstance(one, float) and isinstance(other, float):
            if abs(one - other) > _ROUNDING:
                yield key
        elif one != other:
            yield key
