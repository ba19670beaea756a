"""What the requests of a data set find cached, by their planned lengths in the order on disk.

Two walks: one request after the other in unlimited caches, which is all that texts can be held to,
and the run the data set was planned for, with its requests in flight and its limited caches.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from prefixbench.config.order import Leaders
from prefixbench.core.records import CacheScope, RequestOutcome, RequestPlan
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.simulator.watermark import CACHE_OF, walk_watermarks
from prefixbench.workload.capacity import LruCaches, Stored
from prefixbench.workload.columns import IntArray


def cache_scope(manifest: Mapping[str, Any]) -> CacheScope:
    """How far a cached prefix reaches, as the data set was planned."""
    return CacheScope(manifest["routing"]["cache_scope"])


def warm_up_places(manifest: DatasetManifest, plans: Sequence[RequestPlan]) -> list[int]:
    """Where the longest planned prefix of each (cache, group) stands; none for a cold start."""
    if not manifest.data["warmed"]:
        return []
    cache_of = CACHE_OF[cache_scope(manifest.data)]
    longest: dict[tuple[Any, ...], int] = {}
    for place, plan in enumerate(plans):
        domain = (cache_of(plan), plan.prefix_group_id)
        best = longest.setdefault(domain, place)
        if plans[best].planned_prefix_len < plan.planned_prefix_len:
            longest[domain] = place
    return list(longest.values())


def sequential_walk(
    manifest: DatasetManifest, plans: Sequence[RequestPlan]
) -> list[RequestOutcome]:
    """One request after the other in unlimited caches; the warm-up goes first."""
    warm_ups = [plans[place] for place in warm_up_places(manifest, plans)]
    walk = walk_watermarks(
        [*warm_ups, *plans],
        cache_scope(manifest.data),
        hit_granularity=manifest.hit_granularity,
        head_len=manifest.head_len,
    )
    return list(islice(walk, len(warm_ups), None))


def planned_walk(manifest: DatasetManifest, plans: Sequence[RequestPlan]) -> list[RequestOutcome]:
    """The run that was planned: `planning.concurrency` in flight, `planning.capacity_blocks`."""
    planning = manifest.config["planning"]
    if planning["concurrency"] == 1 and planning["capacity_blocks"] is None:
        return sequential_walk(manifest, plans)
    step = manifest.hit_granularity
    head = manifest.head_len // step
    prefixes = np.array([plan.planned_prefix_len // step for plan in plans], np.int64)
    before = _planned_caches(manifest, plans).depths(prefixes)
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
        for plan, prefix, depth in zip(plans, prefixes.tolist(), before.tolist(), strict=True)
    ]


def _planned_caches(manifest: DatasetManifest, plans: Sequence[RequestPlan]) -> LruCaches:
    planning = manifest.config["planning"]
    capacity, step = planning["capacity_blocks"], manifest.hit_granularity
    cache_of = CACHE_OF[cache_scope(manifest.data)]
    group = _numbered(plan.prefix_group_id for plan in plans)
    has_barrier = manifest.config["request_order"]["leaders"] == Leaders.BARRIER
    # Nothing of an answer's last token is stored.
    tokens = [plan.input_len + max(plan.output_len, 1) - 1 for plan in plans]
    return LruCaches(
        stored=Stored(
            group=group,
            cache=_numbered(map(cache_of, plans)),
            blocks=np.array(tokens, np.int64) // step,
        ),
        capacity_blocks=sys.maxsize if capacity is None else capacity * manifest.block_size // step,
        head_blocks=manifest.head_len // step,
        warmed=bool(manifest.data["warmed"]),
        lag=planning["concurrency"],
        waited_for=len(np.unique(group)) if has_barrier else 0,
    )


def _numbered(names: Any) -> IntArray:
    """Names as numbers, in the order in which they occur."""
    numbers: dict[Any, int] = {}
    return np.array([numbers.setdefault(name, len(numbers)) for name in names], np.int64)
