"""Prefix lengths of a setting: global or per group, nested or not, calibrated or plain."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from prefixbench.workload.budgets import proportional_budgets
from prefixbench.workload.counting import Counting
from prefixbench.workload.plan import PlannedPrefixes, plan_nearest
from prefixbench.workload.setting import Setting
from prefixbench.workload.shape import Growth


def plan_prefixes(
    setting: Setting, growth: Growth, budgets: Sequence[int] | None
) -> PlannedPrefixes:
    """Prefixes that meet the target, or come as near as the range or the chosen rule allows.

    Rows of `growth` and of the plan are in generation order; `budgets` as `group_budgets` gives.
    """
    growth = growth.of_rows(setting.counting.rows)
    if budgets is None:
        wanted, share = setting.targets.total - setting.history_hits, setting.targets.ratio
        planned = _search(setting, growth, setting.counting, wanted=wanted, share=share)
    else:
        planned = _group_by_group(setting, growth, budgets)
    prefixes = setting.least_prefixes.astype(np.int64)
    prefixes[setting.counting.rows] = planned.prefix_blocks
    return PlannedPrefixes(prefix_blocks=prefixes, steps=planned.steps)


def group_budgets(setting: Setting, growth: Growth) -> Sequence[int] | None:
    """Hit blocks wanted of each group; None where one planning ratio serves all requests."""
    if setting.targets.by_group is not None:
        return setting.targets.by_group
    if not setting.splits_by_group:
        return None
    most = setting.group_range.most
    if growth.shape.most is not setting.most_prefixes:
        most = setting.counted_hits_by_group(growth.shape.most)
    return proportional_budgets(
        weights=setting.workload.group_input_tokens.tolist(),
        least=setting.group_range.least.tolist(),
        most=most.tolist(),
        total=setting.targets.total,
    )


def _group_by_group(setting: Setting, growth: Growth, budgets: Sequence[int]) -> PlannedPrefixes:
    prefixes = np.empty(len(growth.shape.most), np.int64)
    steps = 0
    for group, rows, counting in setting.counting_by_group():
        wanted = budgets[group] - int(setting.history_hits_by_group[group])
        planned = _search(
            setting,
            growth.of_rows(rows),
            counting,
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


def _search(
    setting: Setting, growth: Growth, counting: Counting, *, wanted: int, share: Fraction
) -> PlannedPrefixes:
    """Choose the search: exact, or without calibration the nearest plan or the plain formula."""
    calibrated = setting.config.planning.block_residual_calibration
    nested = setting.config.prefix.nested_prefix
    if nested and calibrated:
        return counting.plan(growth, wanted)
    if nested and setting.counts_prefixes:
        return PlannedPrefixes(prefix_blocks=growth.shape.floored(share), steps=1)
    return plan_nearest(growth.shape, counting.hits, wanted)
