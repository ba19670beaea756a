"""The certificate of a plan: numbers a reader can check with additions alone.

`sum_prefix_blocks - cold_loss_blocks - head_loss_blocks` must equal `sequential_hit_blocks`, which
is `hit_blocks` unless the plan allows for requests in flight or a limited cache; and
`counted_blocks - wanted_blocks` is the residual.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np

from prefixbench.config.routing import RoutingPolicy
from prefixbench.core.records import CacheScope
from prefixbench.core.version import RULE_VERSION
from prefixbench.workload.planner import Plan
from prefixbench.workload.routing import route

#: Rows hashed at a time, so that a million of them need no copy in memory.
_HASHED_ROWS = 1 << 16

#: Domains whose cold start is listed on its own; the largest.
LISTED_DOMAINS = 10


def certificate(plan: Plan) -> dict[str, Any]:
    """Everything that proves a plan, in tokens and blocks of the hit granularity."""
    domains, geometry = plan.domains, plan.geometry
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
        "counted_blocks": plan.counted_blocks,
        "residual_blocks": plan.residual_blocks,
        "sum_prefix_blocks": int(plan.prefix_blocks.sum()),
        "cold_loss_blocks": int(domains.cold_losses(plan.prefix_blocks).sum()),
        "head_loss_blocks": domains.head_loss,
        "sequential_hit_blocks": plan.sequential_hit_blocks,
        "hit_blocks": plan.hit_blocks,
        "hit_blocks_at_concurrency": {
            str(lag): blocks for lag, blocks in plan.hits_at_reported_lags.items()
        },
        "planned_concurrency": plan.config.planning.concurrency,
        "planned_capacity_blocks": plan.config.planning.capacity_blocks,
        "least_hit_blocks": plan.range.least,
        "most_hit_blocks": plan.range.most,
        "cold_loss_by_domain": _largest_losses(plan),
        "routing_costs": list(_routing_costs(plan)),
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
            "cost_pp": float(100 * plan.ratio(int(lost[domain]))),
        }
        for domain in largest
        if lost[domain]
    ]


def _routing_costs(plan: Plan) -> Iterator[dict[str, Any]]:
    """What this plan would compute cold under each routing; nothing where there is one rank.

    One request after the other, from cold caches; the planned routing comes first.
    """
    routing = plan.config.routing
    if routing.rank_count == 1 or routing.cache_scope is CacheScope.GLOBAL:
        return
    policies = [policy for policy in RoutingPolicy if policy is not RoutingPolicy.EXPLICIT]
    for policy in dict.fromkeys([routing.policy, *policies]):
        changed = routing.model_copy(update={"policy": policy})
        routes = route(plan.workload, changed, plan.order)
        domains = plan.domains_under(routes, warmed=False)
        lost = int(domains.cold_losses(plan.prefix_blocks).sum()) + domains.head_loss
        yield {
            "policy": policy.value,
            "planned": policy is routing.policy,
            "domains": domains.count,
            "lost_blocks": lost,
            "lost_pp": float(100 * plan.ratio(lost)),
        }


def plan_digest(plan: Plan) -> str:
    """SHA-256 over (cache, group, prefix blocks) of all requests in sending order."""
    digest = hashlib.sha256()
    for start in range(0, len(plan.order), _HASHED_ROWS):
        sent = plan.order[start : start + _HASHED_ROWS]
        columns = (plan.routes.cache[sent], plan.workload.group[sent], plan.prefix_blocks[sent])
        digest.update(np.stack(columns, axis=1).astype("<i8").tobytes())
    return digest.hexdigest()
