"""The RFC's record-based interfaces of planning (3.5.2), over the same planner.

Groups come as records with their requests; order is each request's `order_index`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.load import parse_config
from prefixbench.config.target import TargetHitRateConfig
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.records import PrefixGroupPlan, RequestPlan
from prefixbench.workload.losses import unreachable_reasons
from prefixbench.workload.planner import plan_workload
from prefixbench.workload.rows import group_plans, request_plans
from prefixbench.workload.setting import Frame, Setting, set_up
from prefixbench.workload.suggestions import advise


@dataclass(frozen=True, slots=True, kw_only=True)
class ReachabilityResult:
    """Whether a target lies between the least and the most any plan hits, and why not."""

    reachable: bool
    target_hit_ratio: float
    min_reachable_hit_ratio: float
    max_reachable_hit_ratio: float
    unreachable_reasons: tuple[dict[str, Any], ...]
    suggestions: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixPlanningResult:
    """Groups with planned requests; hits in tokens, the residual in blocks."""

    groups: dict[str, PrefixGroupPlan]
    target_hit_tokens: int
    designed_hit_tokens: int
    designed_hit_ratio: float
    residual_blocks: int
    steps: int


def validate_target_reachability(
    groups: dict[str, PrefixGroupPlan],
    target: TargetHitRateConfig,
    block_size: int,
    minimum_non_shared_length: int,
) -> ReachabilityResult:
    """Say whether some plan of these requests meets the target, and what would if none does."""
    config = _configuration(groups, target, block_size, minimum_non_shared_length)
    setting = set_up(config, block_size)
    reasons, suggestions = _explain(setting)
    return ReachabilityResult(
        reachable=setting.reachable,
        target_hit_ratio=float(setting.targets.ratio),
        min_reachable_hit_ratio=float(setting.ratio(setting.range.least)),
        max_reachable_hit_ratio=float(setting.ratio(setting.range.most)),
        unreachable_reasons=reasons,
        suggestions=suggestions,
    )


def plan_prefix_lengths(
    groups: dict[str, PrefixGroupPlan],
    target: TargetHitRateConfig,
    block_size: int,
    minimum_non_shared_length: int,
) -> PrefixPlanningResult:
    """Choose the prefix of every request; out of reach, the nearest plan (see the residual).

    Groups and their requests come back in the order in which they were given.
    """
    config = _configuration(groups, target, block_size, minimum_non_shared_length)
    plan = plan_workload(config, block_size)
    figures = group_plans(plan)
    # The configuration keeps the order of sending, so the rows of both match.
    planned = dict(zip(_in_sending_order(groups), request_plans(plan), strict=True))
    granularity = plan.geometry.granularity
    return PrefixPlanningResult(
        groups={
            name: replace(
                figures.get(name, group),
                requests=tuple(
                    _with_prefix(request, planned[name, place])
                    for place, request in enumerate(group.requests)
                ),
                request_weight=group.request_weight,
            )
            for name, group in groups.items()
        },
        target_hit_tokens=plan.targets.total * granularity,
        designed_hit_tokens=plan.hit_blocks * granularity,
        designed_hit_ratio=float(plan.ratio(plan.hit_blocks)),
        residual_blocks=plan.residual_blocks,
        steps=plan.steps,
    )


def _with_prefix(request: RequestPlan, row: RequestPlan) -> RequestPlan:
    return replace(
        request,
        planned_prefix_len=row.planned_prefix_len,
        divergence_len=row.divergence_len,
        suffix_len=row.suffix_len,
    )


def _in_sending_order(groups: dict[str, PrefixGroupPlan]) -> dict[tuple[str, int], RequestPlan]:
    """All requests by their group and their place in it, the first to be sent first."""
    requests = {
        (name, place): request
        for name, group in groups.items()
        for place, request in enumerate(group.requests)
    }
    return dict(sorted(requests.items(), key=lambda item: item[1].order_index))


def _configuration(
    groups: dict[str, PrefixGroupPlan],
    target: TargetHitRateConfig,
    block_size: int,
    minimum_non_shared_length: int,
) -> PrefixCacheDatasetConfig:
    requests = _in_sending_order(groups)
    if not requests:
        raise ConfigError(
            "the groups hold no requests",
            context=ErrorContext(stage=Stage.PLAN, field="groups"),
            hint="allocate the requests first: allocate_prefix_groups(requests, config)",
        )
    return parse_config(
        {
            "request_count": len(requests),
            "block_size": block_size,
            "input_length": {
                "mode": "explicit",
                "values": [request.input_len for request in requests.values()],
            },
            "output_length": {
                "mode": "explicit",
                "values": [request.output_len for request in requests.values()],
            },
            "prefix": {
                "mode": "multi_prefix",
                "assignment": [name for name, _ in requests],
                "minimum_non_shared_length": minimum_non_shared_length,
            },
            "request_order": {"mode": "sequential"},
            "target": target.model_dump(mode="json", exclude_unset=True),
        }
    )


def _explain(setting: Setting) -> tuple[tuple[dict[str, Any], ...], tuple[dict[str, Any], ...]]:
    if setting.reachable:
        return (), ()
    tokens = setting.workload.input_tokens
    reasons = tuple(loss.to_json(tokens) for loss in unreachable_reasons(setting))
    return reasons, tuple(s.to_json() for s in advise(setting, Frame()).suggestions)
