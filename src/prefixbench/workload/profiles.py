"""How prefixes grow over the run (`planning.profile`), and what gives way where wishes exclude.

`proportional`: every request about the same share, dithered. `monotone`: in each group no prefix
is shorter than an earlier one. `ramp`: the share grows along the run, so that the cumulative hit
ratio does. The total is exact in each; where a profile cannot have it, the profile gives way.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixbench.config.order import OrderWord
from prefixbench.config.planning import PlanProfile
from prefixbench.workload.columns import IntArray
from prefixbench.workload.order import by_size, positions
from prefixbench.workload.setting import Setting
from prefixbench.workload.shape import Growth, Shape, dither, group_offsets, undithered


@dataclass(frozen=True)
class Profiled:
    """The growth of a profile, rows in generation order, and what `gave_way` to get it."""

    profile: PlanProfile
    growth: Growth
    gave_way: str | None = None


def profiled(setting: Setting) -> Profiled:
    """The wanted profile, or the one that what excludes it leaves."""
    wanted = setting.config.planning.profile
    excluded = _excluded(setting, wanted)
    if excluded is not None or wanted is PlanProfile.PROPORTIONAL:
        return Profiled(PlanProfile.PROPORTIONAL, _proportional(setting), excluded)
    if wanted is PlanProfile.MONOTONE and _rises_by_order(setting):
        return Profiled(wanted, _proportional(setting))
    growth = _ramp(setting) if wanted is PlanProfile.RAMP else _monotone(setting)
    if setting.reachable and not _allows_target(setting, growth.shape.most):
        highest = float(setting.ratio(setting.counted_hits(growth.shape.most)))
        excluded = (
            f"profile: {wanted} allows {highest:.4f} at most on this order; the target was kept,"
            " prefixes are proportional"
        )
        return Profiled(PlanProfile.PROPORTIONAL, _proportional(setting), excluded)
    return Profiled(wanted, growth)


def _excluded(setting: Setting, wanted: PlanProfile) -> str | None:
    """Why a profile cannot be had at all; None where it can."""
    if wanted is PlanProfile.PROPORTIONAL:
        return None
    if not setting.config.prefix.nested_prefix:
        return f"nested_prefix: false gives a group one length; profile: {wanted} was left out"
    if setting.workload.session_count is not None:
        return f"turns of a session grow by themselves; profile: {wanted} was left out"
    if not setting.config.planning.block_residual_calibration:
        return f"the plain floor formula was asked for; profile: {wanted} was left out"
    monotone_already = wanted is PlanProfile.MONOTONE and _rises_by_order(setting)
    if setting.arrangement.needs_prefixes and not monotone_already:
        return f"the order follows the prefixes; it was kept, profile: {wanted} was left out"
    return None


def _rises_by_order(setting: Setting) -> bool:
    """Whether the order itself sends the prefixes of a group from the shortest to the longest."""
    words = setting.arrangement
    return words.within is OrderWord.PREFIX_LEN_ASC and not words.leaders_first


def _allows_target(setting: Setting, most: IntArray) -> bool:
    if setting.targets.by_group is None:
        return setting.counted_hits(most) >= setting.targets.total
    by_group = setting.counted_hits_by_group(most)
    return bool((by_group >= np.array(setting.targets.by_group)).all())


def _proportional(setting: Setting) -> Growth:
    workload, config = setting.workload, setting.config
    weight, walk, turn = workload.input_len, dither(workload, config.seed), None
    if setting.arrangement.needs_prefixes and setting.hits_depend_on_order:
        # The order was taken from prefixes that grow with the lengths, so they have to.
        walk, turn = undithered(workload), -positions(by_size(workload, setting.most_prefixes))
    if not config.planning.block_residual_calibration:
        walk = np.zeros_like(walk)
    if not config.prefix.nested_prefix:
        # All members take one length, so the shortest member stands for its group.
        weight = setting.least_of_group(weight)
        walk = walk[_first_of_group(setting)]
    shape = Shape(
        weight=weight,
        granularity=setting.geometry.granularity,
        dither=walk,
        least=setting.geometry.head_blocks,
        most=setting.most_prefixes,
    )
    words = {setting.arrangement.within, setting.arrangement.across}
    rising = turn is not None and OrderWord.PREFIX_LEN_ASC in words
    return Growth(shape=shape, turn=turn, rising=rising)


def _monotone(setting: Setting) -> Growth:
    """No prefix above what a later one of the group can have; nothing dithered inside a group."""
    order, workload = setting.order, setting.workload
    shape = Shape(
        weight=_least_from_here(workload.input_len, order, workload.group),
        granularity=setting.geometry.granularity,
        dither=group_offsets(workload, setting.config.seed)[workload.group],
        least=setting.geometry.head_blocks,
        most=_least_from_here(setting.most_prefixes, order, workload.group),
    )
    return Growth(shape=shape, turn=-positions(order), rising=True)


def _ramp(setting: Setting) -> Growth:
    """The share of a request grows with its place in the run."""
    workload = setting.workload
    place = (positions(setting.order) + 1) / workload.request_count
    shape = Shape(
        weight=workload.input_len * place,
        granularity=setting.geometry.granularity,
        dither=dither(workload, setting.config.seed),
        least=setting.geometry.head_blocks,
        most=setting.most_prefixes,
        ramped=True,
    )
    return Growth(shape=shape)


def _least_from_here(values: IntArray, order: IntArray, group: IntArray) -> IntArray:
    """For each row the least value among it and the later rows of its group."""
    backwards = order[::-1]
    rows = backwards[np.argsort(group[backwards], kind="stable")]
    span = int(values.max(initial=0)) + 1
    # Falling from group to group, so that a running minimum starts anew in each.
    stacked = values[rows] - group[rows].astype(np.int64) * span
    least = np.empty(len(values), values.dtype)
    least[rows] = np.minimum.accumulate(stacked) + group[rows].astype(np.int64) * span
    return least


def _first_of_group(setting: Setting) -> IntArray:
    """For each request the row of its group's first member."""
    workload = setting.workload
    first = np.zeros(len(workload.group_ids), np.int64)
    rows = np.flatnonzero(workload.rank == 0)
    first[workload.group[rows]] = rows
    return first[workload.group]
