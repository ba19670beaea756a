"""Prefix lengths of a setting: global or per group, nested or not, calibrated or plain."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from prefixbench.config.planning import BudgetPolicy
from prefixbench.workload.budgets import proportional_budgets
from prefixbench.workload.columns import IntArray
from prefixbench.workload.plan import (
    HitCount,
    PlannedPrefixes,
    Shape,
    dither,
    plan_exactly,
    plan_nearest,
)
from prefixbench.workload.setting import Setting


def plan_prefixes(setting: Setting) -> PlannedPrefixes:
    """Prefixes that meet the target, or come as near as the range or the chosen rule allows."""
    shape = _shape(setting)
    budgets = group_budgets(setting)
    if budgets is None:
        targets = setting.targets
        return _plan_rows(
            setting, shape, setting.counted_hits, wanted=targets.total, share=targets.ratio
        )
    return _plan_group_by_group(setting, shape, budgets)


def group_budgets(setting: Setting) -> Sequence[int] | None:
    """Hit blocks wanted of each group; None where one planning ratio serves all requests."""
    if setting.targets.by_group is not None:
        return setting.targets.by_group
    if setting.config.planning.budget_policy is BudgetPolicy.GLOBAL_RATIO:
        return None
    return proportional_budgets(
        weights=setting.workload.group_input_tokens.tolist(),
        least=setting.range.group_least.tolist(),
        most=setting.range.group_most.tolist(),
        total=setting.targets.total,
    )


def _plan_group_by_group(setting: Setting, shape: Shape, budgets: Sequence[int]) -> PlannedPrefixes:
    prefixes = setting.least_prefixes.copy()
    steps = 0
    for group, wanted in enumerate(budgets):
        rows = np.flatnonzero(setting.workload.group == group)
        if len(rows):
            planned = _plan_rows(
                setting,
                shape.of_rows(rows),
                _hits_of_group(setting, group, rows),
                wanted=wanted,
                share=_share_of_group(setting, group, wanted),
            )
            prefixes[rows] = planned.prefix_blocks
            steps += planned.steps
    return PlannedPrefixes(prefix_blocks=prefixes, steps=steps)


def _share_of_group(setting: Setting, group: int, wanted: int) -> Fraction:
    ratios = setting.targets.group_ratios
    if ratios is not None:
        return ratios[group]
    return setting.group_ratio(group, wanted) or Fraction(0)


def _shape(setting: Setting) -> Shape:
    config, workload = setting.config, setting.workload
    input_len = workload.input_len
    walk = dither(workload, config.seed)
    if not config.planning.block_residual_calibration:
        walk = np.zeros_like(walk)
    if not config.prefix.nested_prefix:
        # All members take one length, so the shortest member stands for its group.
        input_len = setting.least_of_group(input_len)
        walk = walk[_first_of_group(setting)]
    return Shape(
        input_len=input_len,
        granularity=setting.geometry.granularity,
        dither=walk,
        least=setting.geometry.head_blocks,
        most=setting.most_prefixes,
    )


def _plan_rows(
    setting: Setting, shape: Shape, hits: HitCount, *, wanted: int, share: Fraction
) -> PlannedPrefixes:
    """Choose the search: exact, or without calibration the nearest plan or the plain formula."""
    calibrated = setting.config.planning.block_residual_calibration
    nested = setting.config.prefix.nested_prefix
    if nested and calibrated:
        return plan_exactly(shape, hits, wanted)
    if nested and setting.counts_prefixes:
        return PlannedPrefixes(prefix_blocks=shape.floored(share), steps=1)
    return plan_nearest(shape, hits, wanted)


def _hits_of_group(setting: Setting, group: int, rows: IntArray) -> HitCount:
    """Hits of one group's rows alone: domains of different groups share nothing but the head."""
    domains = setting.domains
    if domains.warmed or setting.counts_prefixes:
        return lambda prefixes: int(prefixes.sum())
    by_domain = np.argsort(domains.index[rows], kind="stable")
    starts = np.flatnonzero(np.diff(domains.index[rows][by_domain], prepend=-1))
    head = domains.head_blocks
    opened = int((domains.openers(setting.order) == group).sum())

    def hits(prefixes: IntArray) -> int:
        largest = np.maximum.reduceat(prefixes[by_domain], starts)
        return int(prefixes.sum()) - int((largest - head).sum()) - head * opened

    return hits


def _first_of_group(setting: Setting) -> IntArray:
    """For each request the row of its group's first member."""
    workload = setting.workload
    first = np.zeros(len(workload.group_ids), np.int64)
    rows = np.flatnonzero(workload.rank == 0)
    first[workload.group[rows]] = rows
    return first[workload.group]
