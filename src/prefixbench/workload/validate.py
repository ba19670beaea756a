"""The verdict on a plan: deviation, status, robustness (RFC 3.3.17).

Statuses compare exact fractions, both tolerances inclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Any

from prefixbench.config.target import exact
from prefixbench.core.records import ValidationStatus
from prefixbench.workload.lag import REPORTED_LAGS
from prefixbench.workload.losses import losses
from prefixbench.workload.planner import Plan
from prefixbench.workload.suggestions import Advice

_SEVERITY = list(ValidationStatus)


def status_of(
    deviation: Fraction, pass_tolerance: Fraction, warning_tolerance: Fraction
) -> ValidationStatus:
    """PASS, PASS_WITH_WARNING or FAIL for a signed deviation.

    >>> status_of(Fraction(-1, 100), Fraction(1, 100), Fraction(2, 100)).value
    'PASS'
    """
    if abs(deviation) <= pass_tolerance:
        return ValidationStatus.PASS
    if abs(deviation) <= warning_tolerance:
        return ValidationStatus.PASS_WITH_WARNING
    return ValidationStatus.FAIL


def worst(statuses: list[ValidationStatus]) -> ValidationStatus:
    return max(statuses, key=_SEVERITY.index)


def deviation_keys(designed: Fraction, target: Fraction) -> dict[str, float]:
    """A designed ratio beside its target, as every report spells it."""
    deviation = designed - target
    return {
        "target_hit_ratio": float(target),
        "designed_hit_ratio": float(designed),
        "signed_deviation": float(deviation),
        "absolute_deviation": float(abs(deviation)),
    }


def validation_report(plan: Plan, advice: Advice | None = None) -> dict[str, Any]:
    """All keys of the validation report but `verification`, which needs the texts."""
    designed = plan.ratio(plan.hit_blocks)
    per_group = list(_group_rows(plan))
    statuses = [_status(plan, designed - plan.targets.ratio)]
    if plan.targets.by_group is not None:
        statuses += [ValidationStatus(row["validation_status"]) for row in per_group]
    if not plan.reachable:
        statuses.append(ValidationStatus.FAIL)
    return {
        "dataset_id": plan.config.dataset_id,
        **deviation_keys(designed, plan.targets.ratio),
        "deviation_pp": float(100 * (designed - plan.targets.ratio)),
        "max_reachable_hit_ratio": float(plan.ratio(plan.range.most)),
        "min_reachable_hit_ratio": float(plan.ratio(plan.range.least)),
        "validation_status": worst(statuses),
        "pass_tolerance": plan.config.validation.pass_tolerance,
        "warning_tolerance": plan.config.validation.warning_tolerance,
        "budget_policy": budget_policy(plan),
        "input_tokens": plan.workload.input_tokens,
        "expected_hit_tokens": plan.hit_blocks * plan.geometry.granularity,
        "per_group": per_group,
        **_reachability(plan, advice),
        **robustness(plan),
        "head_len": plan.geometry.head_len,
        "tail_len": plan.geometry.tail_len,
    }


def budget_policy(plan: Plan) -> str:
    """How the target was split between groups: their own targets, or the configured policy."""
    if plan.targets.by_group is not None:
        return "per_group_targets"
    return plan.config.planning.budget_policy.value


def _status(plan: Plan, deviation: Fraction) -> ValidationStatus:
    tolerances = plan.config.validation
    return status_of(
        deviation, exact(tolerances.pass_tolerance), exact(tolerances.warning_tolerance)
    )


def _group_rows(plan: Plan) -> Iterator[dict[str, Any]]:
    cold = cold_loss_tokens(plan)
    for group, name in enumerate(plan.workload.group_ids):
        row: dict[str, Any] = {"id": name}
        designed = plan.group_ratio(group, int(plan.group_hit_blocks[group]))
        if designed is None:
            yield row | {"requests": 0, "validation_status": ValidationStatus.PASS}
            continue
        target = _group_target(plan, group)
        most = plan.group_ratio(group, int(plan.range.group_most[group]))
        own = plan.targets.group_ratios is not None
        deviation = designed - target
        row |= deviation_keys(designed, target)
        row |= {
            "max_reachable_hit_ratio": float(most or 0),
            "cold_start_loss": cold[group],
            "validation_status": _status(plan, deviation) if own else ValidationStatus.PASS,
        }
        yield row


def _group_target(plan: Plan, group: int) -> Fraction:
    ratios = plan.targets.group_ratios
    return plan.targets.ratio if ratios is None else ratios[group]


def cold_loss_tokens(plan: Plan) -> list[int]:
    """Tokens each group computes once in every cache it uses, beyond the shared head."""
    lost = [0] * len(plan.workload.group_ids)
    blocks = plan.domains.cold_losses(plan.prefix_blocks)
    for group, loss in zip(plan.domains.group.tolist(), blocks.tolist(), strict=True):
        lost[group] += loss * plan.geometry.granularity
    return lost


def _reachability(plan: Plan, advice: Advice | None) -> dict[str, Any]:
    if plan.reachable:
        return {"reachable": True, "unreachable_reasons": [], "suggestions": []}
    tokens = plan.workload.input_tokens
    explained = advice is not None
    return {
        "reachable": False,
        "unreachable_reasons": [loss.to_json(tokens) for loss in losses(plan)] if explained else [],
        "suggestions": [s.to_json() for s in advice.suggestions] if advice else [],
        "highest_suggested_hit_ratio": float(advice.highest_ratio) if advice else None,
    }


def robustness(plan: Plan) -> dict[str, Any]:
    """What concurrency does to the plan on its own order (lag model)."""
    model, granularity = plan.lag_model, plan.geometry.granularity
    one_point = plan.workload.input_tokens // (100 * granularity)
    return {
        "robust_to_concurrency": model.largest_lag_keeping(plan.hit_blocks),
        "robust_to_concurrency_1pp": model.largest_lag_keeping(plan.hit_blocks - one_point),
        "designed_hit_ratio_at_concurrency": {
            str(lag): float(plan.ratio(model.hits(lag))) for lag in REPORTED_LAGS
        },
    }
