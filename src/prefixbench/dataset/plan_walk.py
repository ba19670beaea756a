"""What the requests of a data set find cached, by their planned lengths in the order on disk.

Two walks: one request after the other in unlimited caches, which is all that texts can be held to,
and the run the data set was planned for, with its requests in flight and its limited caches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.config.order import Leaders
from prefixbench.core.records import CacheScope, RequestOutcome, RequestPlan
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.simulator.watermark import CACHE_OF, Watermarks
from prefixbench.workload.capacity import LruCaches, Stored
from prefixbench.workload.columns import IntArray


def cache_scope(manifest: Mapping[str, Any]) -> CacheScope:
    """How far a cached prefix reaches, as the data set was planned."""
    return CacheScope(manifest["routing"]["cache_scope"])


def warm_up_places(manifest: DatasetManifest, plans: Sequence[RequestPlan]) -> list[int]:
    """Where the longest planned prefix of each (cache, group) stands; none for a cold start."""
    if not manifest.data["warmed"]:
        return []
    return _longest_of_domains(plans, cache_scope(manifest.data))


def _longest_of_domains(plans: Sequence[RequestPlan], scope: CacheScope) -> list[int]:
    """Places of the first turns that go deepest into each (cache, group)."""
    cache_of = CACHE_OF[scope]
    longest: dict[tuple[Any, ...], int] = {}
    for place, plan in enumerate(plans):
        if plan.history_request_id is not None:
            continue
        domain = (cache_of(plan), plan.prefix_group_id)
        best = longest.setdefault(domain, place)
        if plans[best].planned_prefix_len < plan.planned_prefix_len:
            longest[domain] = place
    return list(longest.values())


def sequential_walk(
    manifest: DatasetManifest, plans: Sequence[RequestPlan]
) -> list[RequestOutcome]:
    """One request after the other in unlimited caches; the warm-up goes first."""
    return limited_walk(
        plans,
        Conditions(in_flight=1, capacity_blocks=None, block_size=manifest.block_size),
        cache_scope(manifest.data),
        hit_granularity=manifest.hit_granularity,
        head_len=manifest.head_len,
        warmed=bool(manifest.data["warmed"]),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """What a plan allows for: requests `in_flight` at most, and caches of `capacity_blocks`.

    A capacity of None is no limit; a block has `block_size` tokens. `has_barrier`: the first
    request of each group is waited for.
    """

    in_flight: int
    capacity_blocks: int | None
    block_size: int
    has_barrier: bool = False

    def leaders_waited_for(self, plans: Sequence[RequestPlan]) -> int:
        """Requests at the front that have finished before any other one is sent."""
        return len({plan.prefix_group_id for plan in plans}) if self.has_barrier else 0

    @classmethod
    def of(cls, manifest: DatasetManifest) -> Conditions | None:
        """The conditions of a data set; None for one request at a time without a limit."""
        planning = manifest.config["planning"]
        if planning["concurrency"] == 1 and planning["capacity_blocks"] is None:
            return None
        return cls(
            in_flight=planning["concurrency"],
            capacity_blocks=planning["capacity_blocks"],
            block_size=manifest.block_size,
            has_barrier=manifest.config["request_order"]["leaders"] == Leaders.BARRIER,
        )


def planned_walk(manifest: DatasetManifest, plans: Sequence[RequestPlan]) -> list[RequestOutcome]:
    """The run that was planned: `planning.concurrency` in flight, `planning.capacity_blocks`."""
    conditions = Conditions.of(manifest)
    if conditions is None:
        return sequential_walk(manifest, plans)
    return limited_walk(
        plans,
        conditions,
        cache_scope(manifest.data),
        hit_granularity=manifest.hit_granularity,
        head_len=manifest.head_len,
        warmed=bool(manifest.data["warmed"]),
    )


def limited_walk(
    plans: Sequence[RequestPlan],
    conditions: Conditions,
    scope: CacheScope,
    *,
    hit_granularity: int,
    head_len: int,
    warmed: bool,
) -> list[RequestOutcome]:
    """What each request finds under `conditions`; lengths, granularity and head in tokens."""
    capacity_blocks = conditions.capacity_blocks
    if capacity_blocks is None:
        marks = Watermarks(scope, hit_granularity=hit_granularity, head_len=head_len)
        for place in _longest_of_domains(plans, scope) if warmed else ():
            marks.store(plans[place])
        waited_for = conditions.leaders_waited_for(plans)
        return list(marks.walk(plans, lag=conditions.in_flight, waited_for=waited_for))
    step = hit_granularity
    head = head_len // step
    prefixes = np.array([plan.planned_prefix_len // step for plan in plans], np.int64)
    caches = _caches(
        plans,
        conditions,
        scope,
        capacity_blocks=capacity_blocks,
        step=step,
        head_blocks=head,
        warmed=warmed,
    )
    return [
        RequestOutcome(
            request_id=plan.request_id,
            prefix_group_id=plan.prefix_group_id,
            input_len=plan.input_len,
            cached_watermark_before=depth * step,
            expected_hit_len=min(prefix, depth) * step,
            cached_watermark_after=max(prefix, depth) * step,
            expected_head_hit_len=min(prefix, depth, head) * step,
        )
        for plan, prefix, depth in zip(
            plans, prefixes.tolist(), caches.depths(prefixes).tolist(), strict=True
        )
    ]


def _caches(
    plans: Sequence[RequestPlan],
    conditions: Conditions,
    scope: CacheScope,
    *,
    capacity_blocks: int,
    step: int,
    head_blocks: int,
    warmed: bool,
) -> LruCaches:
    """Caches of `capacity_blocks` cache blocks each; the head is in steps of hits."""
    group = _numbered(plan.prefix_group_id for plan in plans)
    namespaces = {plan.namespace for plan in plans}
    if 1 < len(namespaces) == len({plan.prefix_group_id for plan in plans}):
        head_blocks = 0  # A head of one's own is a part of one's prefix.
    # Nothing of an answer's last token is stored.
    tokens = [plan.input_len + max(plan.output_len, 1) - 1 for plan in plans]
    return LruCaches(
        stored=Stored(
            group=group,
            cache=_numbered(map(CACHE_OF[scope], plans)),
            blocks=np.array(tokens, np.int64) // step,
        ),
        capacity_blocks=capacity_blocks * conditions.block_size // step,
        head_blocks=head_blocks,
        warmed=warmed,
        lag=conditions.in_flight,
        waited_for=conditions.leaders_waited_for(plans),
    )


def _numbered(names: Any) -> IntArray:
    """Names as numbers, in the order in which they occur."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
