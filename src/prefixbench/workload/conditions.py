"""What conditions do to a plan: its order, requests in flight, caches of limited size."""

from __future__ import annotations

from typing import Any

import numpy as np

from prefixbench.core.percentiles import percentile_of_sorted
from prefixbench.workload.given import Heads
from prefixbench.workload.order import reuse_distances
from prefixbench.workload.planner import Plan

#: Points of the reported curve, and so many requests at most where no capacity is asked for.
CURVE_POINTS = 200
CURVE_REQUESTS = 200_000
#: Points of the run at which the cumulative ratio is stated.
TRAJECTORY_POINTS = 10


def robustness(plan: Plan) -> dict[str, Any]:
    """What concurrency does to the plan on its own order (lag model)."""
    model, granularity = plan.lag_model, plan.geometry.granularity
    one_point = plan.workload.input_tokens // (100 * granularity)
    robust = model.largest_lag_keeping(plan.sequential_hit_blocks)
    return {
        "robust_to_concurrency": robust,
        "robust_to_concurrency_1pp": model.largest_lag_keeping(
            plan.sequential_hit_blocks - one_point
        ),
        "designed_hit_ratio_at_concurrency": {
            str(lag): float(plan.ratio(hits)) for lag, hits in plan.hits_at_reported_lags.items()
        },
        "planned_concurrency": plan.config.planning.concurrency,
        "concurrency_loss": _concurrency_loss(plan, robust),
    }


def _concurrency_loss(plan: Plan, robust: int) -> dict[str, Any] | None:
    """What the concurrency that is planned for or sent with costs; None where it costs nothing."""
    concurrency = max(plan.config.planning.concurrency, plan.config.execution.concurrency)
    if concurrency <= robust:
        return None
    lost = plan.sequential_hit_blocks - plan.lag_model.hits(concurrency)
    if not lost:  # More in flight than there are requests.
        return None
    lost_pp = float(100 * plan.ratio(lost))
    return {
        "concurrency": concurrency,
        "lost_tokens": lost * plan.geometry.granularity,
        "lost_pp": lost_pp,
        "message": f"{concurrency} requests in flight find {lost_pp:.2f} pp less than requests sent"
        f" one after the other; up to {robust} lose nothing on this order",
    }


def reuse_distance(plan: Plan) -> dict[str, Any] | None:
    """How far apart two requests of a group are sent, in requests; None where no group repeats."""
    found = reuse_distances(plan.order, plan.workload.group)
    distances = found.data  # plain integers, and no list of them
    if not distances:
        return None
    wanted = plan.arrangement.reuse_distance
    as_wanted = int(np.count_nonzero(found == wanted)) / len(found)
    return {
        "wanted": wanted,
        "as_wanted": None if wanted is None else as_wanted,
        **{f"p{q}": percentile_of_sorted(distances, q) for q in (10, 50, 90)},
        "min": distances[0],
        "max": distances[-1],
    }


def cumulative_hit_ratio(plan: Plan) -> list[dict[str, Any]]:
    """How the ratio of the headline run grows, at even steps of the run."""
    hits = np.cumsum(plan.depths.hits[plan.order]).data  # plain integers, and no list of them
    tokens = np.cumsum(plan.workload.input_len[plan.order]).data
    count, step = len(hits), plan.geometry.granularity
    sent = {-(-count * part // TRAJECTORY_POINTS) for part in range(1, TRAJECTORY_POINTS + 1)}
    return [
        {"requests": done, "hit_ratio": hits[done - 1] * step / tokens[done - 1]}
        for done in sorted(sent)
    ]


def capacity_keys(plan: Plan) -> dict[str, Any]:
    """What LRU caches of limited size do to the plan, one request after the other."""
    capacity = plan.config.planning.capacity_blocks
    keys: dict[str, Any] = {
        "designed_hit_ratio_unlimited": float(plan.ratio(plan.sequential_hit_blocks)),
        "planned_capacity_blocks": capacity,
        "designed_hit_ratio_at_capacity": None,
        "lossless_capacity_blocks": None,
        "capacity_curve": None,
    }
    flat = plan.tree is None and plan.workload.session_count is None
    flat = flat and plan.heads is not Heads.MIXED
    if not flat or (capacity is None and plan.workload.request_count > CURVE_REQUESTS):
        return keys
    found = plan.hits_by_capacity
    steps = found.capacities(CURVE_POINTS)
    if plan.capacity_blocks is not None:
        keys["designed_hit_ratio_at_capacity"] = float(plan.ratio(found.hits(plan.capacity_blocks)))
    return keys | {
        "lossless_capacity_blocks": plan.in_cache_blocks(found.lossless),
        "capacity_curve": [
            {
                "capacity_blocks": plan.in_cache_blocks(step),
                "hit_ratio": float(plan.ratio(found.hits(step))),
            }
            for step in steps
        ],
    }
