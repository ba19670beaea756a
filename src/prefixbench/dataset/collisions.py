"""Composes a plan so that no two requests share a block by accident (RFC 3.3.14, 3.3.15)."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefixbench.content.accidents import Sending
from prefixbench.content.collide import CollisionStatus
from prefixbench.content.compose import Composer
from prefixbench.content.repair import CollisionReport, resolve_collisions
from prefixbench.core.log import event
from prefixbench.core.records import ValidationStatus
from prefixbench.dataset.content_plan import content_columns, rows_of_plan
from prefixbench.dataset.materials import Materials
from prefixbench.workload.lengths import request_id
from prefixbench.workload.order import positions
from prefixbench.workload.planner import Plan
from prefixbench.workload.validate import count_accidental_hits
from prefixbench.workload.verdict import worst

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ComposedPlan:
    """A composer whose requests were checked, and what was found."""

    composer: Composer
    report: CollisionReport

    @property
    def accidental_hits(self) -> Mapping[int, int]:
        """Tokens by request that the theory counts beside the planned ones."""
        return self.report.accidental_hit_lens

    def repeats_marker(self, request: int) -> bool:
        return self.report.statuses[request] is CollisionStatus.REPEATS_MARKER


def compose_without_collisions(plan: Plan, materials: Materials) -> ComposedPlan:
    """Compose, search, redraw; raises CollisionError where the retries do not suffice."""
    sending = _sending(plan)
    composer, report = resolve_collisions(
        materials.composer(content_columns(rows_of_plan(plan), plan.config)),
        plan.geometry.granularity,
        plan.config.suffix.collision_detection,
        sending,
        name_of=request_id,
    )
    for warning in report.warnings:
        event(log, "collision.warning", level=logging.WARNING, detail=warning)
    return ComposedPlan(composer=composer, report=report)


def _sending(plan: Plan) -> Sending:
    """One request after the other: texts know nothing of concurrency or of limits of a cache."""
    namespace = plan.namespaces[plan.workload.group]
    hits = plan.lag_model.depths(lag=1).hits
    return Sending(
        place=positions(plan.order),
        cache=plan.routes.cache * (int(namespace.max()) + 1) + namespace,
        planned_hits=hits * plan.geometry.granularity,
        warmed=plan.domains.warmed,
    )


def with_accidental_hits(
    plan: Plan, composed: ComposedPlan, report: Mapping[str, Any]
) -> dict[str, Any]:
    """The validation report with accidental hits in the designed ratio.

    Those that are no property of the plan, but of the texts, are a warning as well.
    """
    hits = composed.accidental_hits
    repeated = sum(hits[request] for request in hits if composed.repeats_marker(request))
    tokens = sum(hits.values())
    counted = count_accidental_hits(plan, report, tokens)
    statuses = [ValidationStatus(counted["validation_status"])]
    if tokens > repeated:
        statuses.append(ValidationStatus.PASS_WITH_WARNING)
    return {
        **counted,
        "validation_status": worst(statuses),
        "accidental_hit_tokens": tokens,
        "repeated_marker_hit_tokens": repeated,
    }
