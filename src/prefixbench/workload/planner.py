"""From a configuration to a plan.

Lengths, groups and caps never depend on the target. The order may depend on the prefixes
(prefix_len_* words, leaders first), and hits on the order; then prefixes are planned that grow
with the lengths, so that the order is known beforehand. Where that is not possible the circle is
walked until it closes, and what a plan that did not close hits is counted, not assumed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.planning import PlanProfile
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.log import event
from prefixbench.core.wording import plural
from prefixbench.workload.capacity import HitsByCapacity, is_slow_to_plan
from prefixbench.workload.columns import IntArray
from prefixbench.workload.exactness import OPEN_CIRCLE, coarse_steps
from prefixbench.workload.given import Heads
from prefixbench.workload.lag import REPORTED_LAGS, Depths, LagModel, depths_of
from prefixbench.workload.prefixes import group_budgets, plan_prefixes
from prefixbench.workload.profiles import Profiled, profiled
from prefixbench.workload.setting import Frame, Setting, set_up

log = logging.getLogger(__name__)

#: How often a circle of order and prefixes is walked at most.
_MOST_ROUNDS = 8


@dataclass(frozen=True, kw_only=True)
class Plan(Setting):
    """A setting with its prefixes, rows in generation order.

    `budgets` are the hit blocks wanted of each group, None under one common planning ratio;
    `gave_way` says which wish was left out because another excludes it, `coarse_steps` why a
    target in range may be missed by a few blocks.
    """

    prefix_blocks: IntArray
    budgets: Sequence[int] | None
    steps: int
    profile: PlanProfile
    gave_way: tuple[str, ...] = ()
    coarse_steps: str | None = None

    @property
    def order_prefixes(self) -> IntArray:
        return self.prefix_blocks

    @cached_property
    def counted_blocks(self) -> int:
        """What the target counts, in blocks."""
        return self.counted_hits(self.prefix_blocks)

    @property
    def residual_blocks(self) -> int:
        """Blocks that the target counts beyond the wanted ones."""
        return self.counted_blocks - self.targets.total

    @property
    def residual_blocks_by_group(self) -> list[int | None]:
        """As `residual_blocks`, for each group; None where groups have no wanted hits."""
        if self.budgets is None:
            return [None] * len(self.workload.group_ids)
        counted = self.counted_hits_by_group(self.prefix_blocks).tolist()
        return [have - wanted for have, wanted in zip(counted, self.budgets, strict=True)]

    @cached_property
    def hit_blocks(self) -> int:
        """Hits of the headline run at the planned concurrency, in blocks."""
        return self.run_hits(self.prefix_blocks)

    @cached_property
    def sequential_hit_blocks(self) -> int:
        """Hits when requests are sent one after the other, in blocks."""
        return self.domains.hits(self.prefix_blocks) + self.history_hits

    @cached_property
    def group_hit_blocks(self) -> IntArray:
        """Hits of each group in the headline run, in blocks."""
        return self.run_hits_by_group(self.prefix_blocks)

    @cached_property
    def hits_at_reported_lags(self) -> dict[int, int]:
        """Hits of an unlimited cache at the concurrencies that every report states, in blocks."""
        return {lag: self.lag_model.hits(lag) for lag in REPORTED_LAGS}

    @cached_property
    def hits_by_capacity(self) -> HitsByCapacity:
        """What LRU caches of any size would find, one request after the other."""
        lru = self.caches_of(capacity_blocks=0)
        return HitsByCapacity(
            curves=lru.curves(self.prefix_blocks[self.order]),
            head_blocks=lru.head_blocks,
            head_finders=self.workload.request_count - self.domains.cold_heads,
        )

    @cached_property
    def prefix_len(self) -> IntArray:
        """Planned prefixes in tokens, head included; of a later turn all of its stored history."""
        prefix_len = self.geometry.prefix_tokens(self.prefix_blocks)
        workload = self.workload
        if workload.history_len is not None:
            later = slice(workload.first_turn_count, None)
            prefix_len[later] = workload.history_len[later]
        return prefix_len

    @cached_property
    def divergence_len(self) -> IntArray:
        return self.geometry.divergence_tokens(self.workload.input_len, self.prefix_len)

    @cached_property
    def lag_model(self) -> LagModel:
        return LagModel(self.domains, self.order, self.prefix_blocks, self.waited_for)

    @cached_property
    def depths(self) -> Depths:
        """What each request finds in the headline run."""
        if self.lru is None:
            return self.lag_model.depths(self.config.planning.concurrency)
        before = np.empty(self.workload.request_count, np.int64)
        before[self.order] = self.lru.depths(self.prefix_blocks[self.order])
        return depths_of(self.prefix_blocks, before)


def plan_workload(
    config: PrefixCacheDatasetConfig, block_size: int, frame: Frame | None = None
) -> Plan:
    """Plan a configuration; an unreachable target gives the nearest plan, `reachable` False."""
    setting = set_up(config, block_size, frame)
    _refuse_mixed_heads(setting)
    _warn_of_small_caches(setting)
    requests = setting.workload.request_count
    if setting.lru is not None and is_slow_to_plan(requests):
        event(
            log,
            "plan.simulating_caches_slowly",
            level=logging.WARNING,
            requests=requests,
            hint="pip install 'prefixbench[fast]' finds the same plan several times as fast",
        )
    return plan_setting(setting)


def _refuse_mixed_heads(setting: Setting) -> None:
    """A limited cache is walked with one head for all groups, or with one for each."""
    if setting.lru is not None and setting.heads is Heads.MIXED:
        raise ConfigError(
            "a limited cache cannot be planned for groups of which some share a model and salt,"
            f" and so the {plural(setting.geometry.head_len, 'token')} of the head, and others not",
            context=ErrorContext(
                stage=Stage.PLAN,
                dataset_id=setting.config.dataset_id,
                field="planning.capacity_blocks",
            ),
            hint="give all groups one model and salt, or each its own; or no capacity_blocks",
        )


def _warn_of_small_caches(setting: Setting) -> None:
    """A server never runs a request for which its cache has no room."""
    capacity, needed = setting.config.planning.capacity_blocks, setting.largest_request_blocks
    if capacity is not None and capacity < needed:
        event(
            log,
            "plan.requests_do_not_fit",
            level=logging.WARNING,
            capacity_blocks=capacity,
            largest_request_blocks=needed,
            hint=f"a server refuses the longest requests; plan for {needed:,} blocks or more",
        )


def plan_setting(setting: Setting) -> Plan:
    """As `plan_workload`, for requests that are there already."""
    steps = 0
    for _ in range(_MOST_ROUNDS):
        shaped = profiled(setting)
        budgets = group_budgets(setting, shaped.growth)
        planned = plan_prefixes(setting, shaped.growth, budgets)
        steps += planned.steps
        given = {field.name: getattr(setting, field.name) for field in fields(setting)}
        plan = Plan(
            **given,
            prefix_blocks=planned.prefix_blocks,
            budgets=budgets,
            steps=steps,
            profile=shaped.profile,
            gave_way=tuple(_left_out(setting, shaped)),
            coarse_steps=coarse_steps(setting, shaped.growth),
        )
        if not _circular(setting) or np.array_equal(setting.order, plan.order):
            return plan
        setting = replace(setting, assumed=planned.prefix_blocks)
    return replace(plan, coarse_steps=OPEN_CIRCLE)


def _circular(setting: Setting) -> bool:
    return setting.arrangement.needs_prefixes and setting.hits_depend_on_order


def _left_out(setting: Setting, shaped: Profiled) -> Iterator[str]:
    yield from _too_popular(setting)
    if setting.budget_policy is not setting.config.planning.budget_policy:
        yield (
            "groups do not hit independently in this cache or order, which was kept;"
            f" budget_policy: {setting.config.planning.budget_policy} was left out"
        )
    if shaped.gave_way is not None:
        yield shaped.gave_way


def _too_popular(setting: Setting) -> Iterator[str]:
    distance, sizes = setting.arrangement.reuse_distance, setting.workload.group_sizes
    if distance is None:
        return
    count = setting.workload.request_count
    popular = int((sizes * distance > count + distance).sum())
    if popular:
        yield (
            f"{plural(popular, 'group')} {'has' if popular == 1 else 'have'} too many of the"
            f" {plural(count, 'request')} to stand {distance} apart; popularity was kept, so their"
            " requests come more often"
        )
