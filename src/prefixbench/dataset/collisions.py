"""Composes a plan so that no two requests share a block by accident (RFC 3.3.14, 3.3.15)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from prefixbench.content.compose import Composer, ContentColumns
from prefixbench.dataset.materials import Materials
from prefixbench.workload.planner import Plan


@dataclass(frozen=True, kw_only=True)
class Collisions:
    """What the search found: by request where it is not `ok`, and in all."""

    checked: int
    repaired: int = 0
    retries: int = 0
    warnings: tuple[str, ...] = ()
    status_by_request: dict[int, str] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {
            "checked": self.checked,
            "repaired": self.repaired,
            "retries": self.retries,
            "warnings": list(self.warnings),
        }


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


def compose_without_collisions(plan: Plan, materials: Materials) -> tuple[Composer, Collisions]:
    composer = Composer(
        materials.pool,
        materials.frame,
        content_columns(plan),
        materials.labels,
        passages=materials.passages,
    )
    return composer, Collisions(checked=len(composer))
