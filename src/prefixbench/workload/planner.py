"""From a configuration to a plan.

Lengths, groups and caps never depend on the target. The order may depend on the prefixes
(prefix_len_* words, leaders first) and, under round robin, the caches depend on the order; such a
circle is walked until it closes, and what a plan that did not close hits is counted, not assumed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lag import Depths, LagModel
from prefixbench.workload.prefixes import group_budgets, plan_prefixes
from prefixbench.workload.routing import depends_on_order
from prefixbench.workload.setting import Frame, Setting, set_up

#: How often a circle of order, routing and prefixes is walked at most.
_MOST_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class Plan(Setting):
    """A setting with its prefixes, rows in generation order.

    `budgets` are the hit blocks wanted of each group, None under one common planning ratio.
    """

    prefix_blocks: IntArray
    budgets: Sequence[int] | None
    steps: int

    @cached_property
    def hit_blocks(self) -> int:
        """Hits of the headline run, in blocks."""
        return self.domains.hits(self.prefix_blocks)

    @cached_property
    def group_hit_blocks(self) -> IntArray:
        return self.domains.hits_by_group(
            self.prefix_blocks, self.domains.openers(self.order), len(self.workload.group_ids)
        )

    @cached_property
    def prefix_len(self) -> IntArray:
        """Planned prefixes in tokens, head included."""
        return self.geometry.prefix_tokens(self.prefix_blocks)

    @cached_property
    def divergence_len(self) -> IntArray:
        return self.geometry.divergence_tokens(self.workload.input_len, self.prefix_len)

    @cached_property
    def lag_model(self) -> LagModel:
        return LagModel(self.domains, self.order, self.prefix_blocks)

    @cached_property
    def depths(self) -> Depths:
        """What each request finds in sequential sending."""
        return self.lag_model.depths()


def plan_workload(
    config: PrefixCacheDatasetConfig, block_size: int, frame: Frame | None = None
) -> Plan:
    """Plan a configuration; an unreachable target gives the nearest plan, `reachable` False."""
    setting = set_up(config, block_size, frame)
    steps = 0
    for _ in range(_MOST_ROUNDS):
        planned = plan_prefixes(setting)
        steps += planned.steps
        assumed, setting = setting.order, setting.reordered(planned.prefix_blocks)
        if not _depends_on_order(setting) or np.array_equal(setting.order, assumed):
            break
    given = {field.name: getattr(setting, field.name) for field in fields(setting)}
    return Plan(
        **given,
        prefix_blocks=planned.prefix_blocks,
        budgets=group_budgets(setting),
        steps=steps,
    )


def _depends_on_order(setting: Setting) -> bool:
    """Whether hits depend on the order: by routing, or by which group opens a cache."""
    return depends_on_order(setting.config.routing) or setting.geometry.head_blocks > 0
