"""A phase as the closed form sees it, with observed facts put in place of planned ones.

A scene answers one question: what would an unlimited cache with sequential visibility have hit, if
requests came in *this* order, to *these* caches, counted in *these* steps? Attribution replaces one
planned fact by the observed one at a time and reads off the difference. A plan that allows for
several requests in flight, or for a limited cache, has a scene with such conditions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from prefixbench.core.records import CacheScope, RequestOutcome, RequestPlan
from prefixbench.core.tally import HitTally
from prefixbench.explain.phases import Phase
from prefixbench.simulator.watermark import simulate_prefix_cache_watermarks

if TYPE_CHECKING:  # plans with conditions are walked in arrays; few plans have any
    from prefixbench.dataset.plan_walk import Conditions


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """Requests in the order in which they reach the caches, and how these treat them.

    `extra_head_len` are tokens the server saw in front of every request beyond the plan; `served`
    says that later turns of sessions go on from the server's own answers;
    `unanswered` are requests of which no token came: whether they were looked up or stored is not
    known.
    """

    requests: tuple[RequestPlan, ...]
    scope: CacheScope
    granularity: int
    head_len: int
    extra_head_len: int = 0
    warm: Mapping[str, int] = field(default_factory=dict)
    unanswered: tuple[RequestPlan, ...] = ()
    conditions: Conditions | None = None
    served: bool = False

    def outcomes(self) -> tuple[RequestOutcome, ...]:
        """What each request finds, in the scene's order."""
        if self.conditions is not None:
            return self._outcomes_under(self.conditions)
        return simulate_prefix_cache_watermarks(
            self.as_seen(),
            self.scope,
            hit_granularity=self.granularity,
            head_len=self.seen_head_len,
            warm=self.seen_warm,
        ).outcomes

    def _outcomes_under(self, conditions: Conditions) -> tuple[RequestOutcome, ...]:
        from prefixbench.dataset.plan_walk import limited_walk

        walk = limited_walk(
            self.as_seen(),
            conditions,
            self.scope,
            hit_granularity=self.granularity,
            head_len=self.seen_head_len,
            warmed=bool(self.warm),
        )
        return tuple(walk)

    def under(self, conditions: Conditions | None) -> Scene:
        """The same scene under other conditions; None for the theory: one at a time, no limit."""
        return replace(self, conditions=conditions)

    def tally(self) -> HitTally:
        """Hits and input tokens of all requests."""
        outcomes = self.outcomes()
        return HitTally(
            sum(row.expected_hit_len for row in outcomes), sum(row.input_len for row in outcomes)
        )

    @property
    def seen_head_len(self) -> int:
        return max(self.head_len + self.extra_head_len, 0)

    @property
    def seen_warm(self) -> dict[str, int]:
        return {group: depth + self.extra_head_len for group, depth in self.warm.items()}

    def as_seen(self) -> tuple[RequestPlan, ...]:
        """The requests with the lengths the server saw."""
        if not self.extra_head_len:
            return self.requests
        return tuple(
            replace(
                plan,
                input_len=plan.input_len + self.extra_head_len,
                planned_prefix_len=max(plan.planned_prefix_len + self.extra_head_len, 0),
                nodes_above=tuple(
                    (node, max(end + self.extra_head_len, 0)) for node, end in plan.nodes_above
                ),
            )
            for plan in self.requests
        )


def planned_scene(
    plans: tuple[RequestPlan, ...],
    phase: Phase,
    *,
    scope: CacheScope,
    granularity: int,
    head_len: int,
    conditions: Conditions | None = None,
    served: bool = False,
) -> Scene:
    """The phase as it was planned: every request, planned order and routing, cold or warmed."""
    return Scene(
        requests=plans,
        scope=scope,
        granularity=granularity,
        head_len=head_len,
        warm=deepest_prefixes(plans) if phase.warmed else {},
        conditions=conditions,
        served=served,
    )


def deepest_prefixes(plans: tuple[RequestPlan, ...]) -> dict[str, int]:
    """The longest planned prefix of each group, in tokens: what its warm-up stores.

    That of a later turn is its session's own history, which no warm-up sends.
    """
    deepest: dict[str, int] = {}
    for plan in plans:
        if plan.history_request_id is not None:
            continue
        known = deepest.get(plan.prefix_group_id, 0)
        deepest[plan.prefix_group_id] = max(known, plan.planned_prefix_len)
    return deepest
