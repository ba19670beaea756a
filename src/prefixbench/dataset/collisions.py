"""Composes a plan so that no two requests share a block by accident (RFC 3.3.14, 3.3.15)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.config.suffix import CacheMatchSemantics, CollisionDetectionConfig, OnCollision
from prefixbench.content.compose import Composer, ContentColumns
from prefixbench.content.repair import CollisionReport, resolve_collisions
from prefixbench.core.log import event
from prefixbench.core.records import ValidationStatus
from prefixbench.dataset.materials import Materials
from prefixbench.workload.lengths import request_id
from prefixbench.workload.planner import Plan
from prefixbench.workload.validate import count_accidental_hits, worst

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ComposedPlan:
    """A composer whose requests were checked, and the accidental hits that the theory counts."""

    composer: Composer
    report: CollisionReport
    accidental_hits: Mapping[int, int]

    def status_of(self, request: int) -> str:
        return self.report.statuses[request].value


def content_columns(plan: Plan) -> ContentColumns:
    """The plan as the composer takes it; no divergence block where none is wanted."""
    divergence = plan.divergence_len
    if not plan.config.suffix.divergence_block:
        divergence = np.zeros_like(divergence)
    return ContentColumns(
        group=plan.workload.group,
        input_len=plan.workload.input_len,
        planned_prefix_len=plan.prefix_len,
        divergence_len=divergence,
        group_ids=list(plan.workload.group_ids),
    )


def compose_without_collisions(plan: Plan, materials: Materials) -> ComposedPlan:
    """Compose, search, redraw; raises CollisionError where the retries do not suffice."""
    detection = plan.config.suffix.collision_detection
    composer, report = resolve_collisions(
        materials.composer(content_columns(plan)),
        plan.geometry.granularity,
        detection,
        name_of=request_id,
    )
    for warning in report.warnings:
        event(log, "collision.warning", level=logging.WARNING, detail=warning)
    counted = report.accidental_hit_lens if _counts(detection) else {}
    return ComposedPlan(composer=composer, report=report, accidental_hits=counted)


def _counts(detection: CollisionDetectionConfig) -> bool:
    """Whether accidental hits belong to the theory: the cache would find them, or so it is said."""
    chained = detection.cache_match_semantics is CacheMatchSemantics.CHAINED_PREFIX
    return not chained or detection.on_collision is OnCollision.ACCEPT_WITH_WARNING


def with_accidental_hits(
    plan: Plan, composed: ComposedPlan, report: Mapping[str, Any]
) -> dict[str, Any]:
    """The validation report with accidental hits in the designed ratio, and a warning."""
    tokens = sum(composed.accidental_hits.values())
    if not tokens:
        return dict(report)
    counted = count_accidental_hits(plan, report, tokens)
    statuses = [
        ValidationStatus(counted["validation_status"]),
        ValidationStatus.PASS_WITH_WARNING,
    ]
    return {**counted, "validation_status": worst(statuses), "accidental_hit_tokens": tokens}
