"""The certificate of a plan: numbers a reader can check with additions alone.

`sum_prefix_blocks - cold_loss_blocks - head_loss_blocks` must equal `hit_blocks`, and
`hit_blocks - wanted_blocks` is the residual.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from prefixbench.core.version import RULE_VERSION
from prefixbench.workload.losses import LISTED_DOMAINS
from prefixbench.workload.planner import Plan


def certificate(plan: Plan) -> dict[str, Any]:
    """Everything that proves a plan, in tokens and blocks of the hit granularity."""
    domains, geometry = plan.domains, plan.geometry
    cold = domains.cold_losses(plan.prefix_blocks)
    counted = plan.counted_hits(plan.prefix_blocks)
    return {
        "rule_version": RULE_VERSION,
        "requests": plan.workload.request_count,
        "input_tokens": plan.workload.input_tokens,
        "hit_granularity": geometry.granularity,
        "head_len": geometry.head_len,
        "tail_len": geometry.tail_len,
        "head_blocks": geometry.head_blocks,
        "caches": len(np.unique(domains.cache)),
        "domains": domains.count,
        "warmed": domains.warmed,
        "wanted_blocks": plan.targets.total,
        "counted_blocks": counted,
        "residual_blocks": counted - plan.targets.total,
        "sum_prefix_blocks": int(plan.prefix_blocks.sum()),
        "cold_loss_blocks": int(cold.sum()),
        "head_loss_blocks": domains.head_loss,
        "hit_blocks": plan.hit_blocks,
        "least_hit_blocks": plan.range.least,
        "most_hit_blocks": plan.range.most,
        "cold_loss_by_domain": _largest_losses(plan),
        "search_steps": plan.steps,
        "plan_sha256": plan_digest(plan),
    }


def _largest_losses(plan: Plan) -> list[dict[str, Any]]:
    domains = plan.domains
    lost = domains.cold_losses(plan.prefix_blocks)
    largest = np.argsort(-lost, kind="stable")[:LISTED_DOMAINS].tolist()
    return [
        {
            "prefix_group_id": plan.workload.group_ids[int(domains.group[domain])],
            "cache": int(domains.cache[domain]),
            "blocks": int(lost[domain]),
        }
        for domain in largest
        if lost[domain]
    ]


def plan_digest(plan: Plan) -> str:
    """SHA-256 over (cache, group, prefix blocks) of all requests in sending order."""
    rows = np.stack(
        (
            plan.routes.cache[plan.order],
            plan.workload.group[plan.order],
            plan.prefix_blocks[plan.order],
        ),
        axis=1,
    )
    return hashlib.sha256(rows.astype("<i8").tobytes()).hexdigest()
