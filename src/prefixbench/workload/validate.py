"""What is reported on a plan: verdict, reachability, robustness (RFC 3.3.17)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

from prefixbench.core.records import ValidationStatus
from prefixbench.workload.conditions import (
    capacity_keys,
    cumulative_hit_ratio,
    reuse_distance,
    robustness,
)
from prefixbench.workload.losses import level_blocks, unreachable_reasons
from prefixbench.workload.planner import Plan
from prefixbench.workload.suggestions import Advice
from prefixbench.workload.verdict import status_of_plan, verdict_on_group, verdict_on_run


def validation_report(plan: Plan, advice: Advice | None = None) -> dict[str, Any]:
    """All keys of the validation report but `verification`, which needs the texts."""
    verdict = verdict_on_run(plan)
    per_group = list(_group_rows(plan))
    return {
        "dataset_id": plan.config.dataset_id,
        **verdict.deviation_keys(),
        "deviation_pp": float(verdict.deviation_pp),
        "max_reachable_hit_ratio": float(plan.ratio(plan.range.most)),
        "min_reachable_hit_ratio": float(plan.ratio(plan.range.least)),
        "validation_status": status_of_plan(plan, verdict),
        "pass_tolerance": plan.config.validation.pass_tolerance,
        "warning_tolerance": plan.config.validation.warning_tolerance,
        "budget_policy": budget_policy(plan),
        "input_tokens": verdict.input_tokens,
        "expected_hit_tokens": verdict.expected_hit_tokens,
        "per_group": per_group,
        **_reachability(plan, advice),
        "residual_blocks": plan.residual_blocks,
        "coarse_steps": plan.coarse_steps,
        "planned_profile": plan.profile.value,
        "wishes_left_out": list(plan.gave_way),
        "cumulative_hit_ratio": cumulative_hit_ratio(plan),
        "reuse_distance": reuse_distance(plan),
        "tree": tree_levels(plan),
        "sessions": session_keys(plan),
        **robustness(plan),
        **capacity_keys(plan),
        "head_len": plan.geometry.head_len,
        "tail_len": plan.geometry.tail_len,
    }


def budget_policy(plan: Plan) -> str:
    """How the target was split between groups: their own targets, or the policy."""
    if plan.targets.by_group is not None:
        return "per_group_targets"
    return plan.budget_policy.value


def _group_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    """A row a group; only a group with a target of its own can fail."""
    cold = cold_loss_tokens(plan)
    judged = plan.targets.group_ratios is not None
    missed = plan.residual_blocks_by_group
    for group, name in enumerate(plan.workload.group_ids):
        verdict = verdict_on_group(plan, group)
        if verdict is None:
            continue
        most = plan.group_ratio(group, int(plan.group_range.most[group]))
        yield {
            "id": name,
            **verdict.deviation_keys(),
            "max_reachable_hit_ratio": float(most or 0),
            "cold_start_loss": cold[group],
            "residual_blocks": missed[group],
            "validation_status": verdict.validation_status if judged else ValidationStatus.PASS,
        }


def cold_loss_tokens(plan: Plan) -> list[int]:
    """Tokens each group computes once in every cache it uses, beyond the shared head."""
    lost = [0] * len(plan.workload.group_ids)
    blocks = plan.domains.cold_losses(plan.prefix_blocks)
    for group, loss in zip(plan.domains.group.tolist(), blocks.tolist(), strict=True):
        lost[group] += loss * plan.geometry.granularity
    return lost


def _reachability(plan: Plan, advice: Advice | None) -> dict[str, Any]:
    """Why a target is unreachable and what would help; all empty where it is not, or not asked."""
    tokens = plan.workload.input_tokens
    reasons = unreachable_reasons(plan) if advice and not plan.reachable else []
    return {
        "reachable": plan.reachable,
        "unreachable_reasons": [loss.to_json(tokens) for loss in reasons],
        "suggestions": [s.to_json() for s in advice.suggestions] if advice else [],
        "partial_changes": [s.to_json() for s in advice.partial] if advice else [],
        "highest_suggested_hit_ratio": float(advice.highest_ratio) if advice else None,
        "no_change_suffices": advice.statement if advice else None,
    }


def tree_levels(plan: Plan) -> list[dict[str, Any]] | None:
    """Each level of the tree: its nodes, where it ends, and the tokens computed once for it."""
    if plan.tree is None:
        return None
    granularity = plan.geometry.granularity
    blocks = level_blocks(plan, plan.prefix_blocks)
    return [
        {
            "name": name,
            "nodes": len(level.first_runs),
            "ends_at": None if end is None else plan.geometry.head_len + end,
            "cold_start_loss": computed * granularity,
            "cost_pp": float(100 * plan.ratio(computed)),
        }
        for name, end, level, computed in zip(
            plan.tree.names,
            plan.tree.ends_in_tokens,
            plan.domains.levels,
            blocks,
            strict=True,
        )
    ]


def session_keys(plan: Plan) -> dict[str, Any] | None:
    """Sessions, and what their later turns find of their histories whatever is planned."""
    sessions = plan.workload.session_count
    if sessions is None:
        return None
    return {
        "count": sessions,
        "later_turns": plan.workload.request_count - sessions,
        "history_hit_tokens": plan.history_hits * plan.geometry.granularity,
        "history_hit_ratio": float(plan.ratio(plan.history_hits)),
    }


def count_accidental_hits(plan: Plan, report: Mapping[str, Any], tokens: int) -> dict[str, Any]:
    """The report with `tokens` more hits in the designed ratio and its verdict."""
    planned = verdict_on_run(plan)
    hit_tokens = planned.expected_hit_tokens + tokens
    verdict = replace(
        planned,
        designed_hit_ratio=Fraction(hit_tokens, planned.input_tokens),
        expected_hit_tokens=hit_tokens,
    )
    return {
        **report,
        **verdict.deviation_keys(),
        "deviation_pp": float(verdict.deviation_pp),
        "validation_status": status_of_plan(plan, verdict),
        "expected_hit_tokens": verdict.expected_hit_tokens,
    }
