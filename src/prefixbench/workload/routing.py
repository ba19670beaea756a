"""Planned routing: which cache serves each request, and the domains that follow from it.

A *cache* is one pool of blocks; a *domain* is a (cache, group) pair, the only place where a prefix
of the group can be found again (RFC 2.7, 3.3.19).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

import numpy as np

from prefixbench.config.routing import RoutingConfig, RoutingPolicy
from prefixbench.core.records import CacheScope
from prefixbench.simulator.routing import hashed_place
from prefixbench.workload.columns import IntArray, Workload
from prefixbench.workload.order import positions


@dataclass(frozen=True, kw_only=True)
class Routes:
    """Planned place of each request (rows in generation order) and the caches they make."""

    instance: IntArray
    dp_rank: IntArray
    cache: IntArray


def depends_on_order(config: RoutingConfig) -> bool:
    """Whether the planned place of a request depends on its place in the order."""
    by_order = (RoutingPolicy.ROUND_ROBIN, RoutingPolicy.STICKY)
    return config.rank_count > 1 and config.policy in by_order


def caches_depend_on_order(config: RoutingConfig) -> bool:
    """Whether even the cache that serves a request depends on its place in the order."""
    return config.cache_scope is not CacheScope.GLOBAL and depends_on_order(config)


def route(workload: Workload, config: RoutingConfig, order: IntArray) -> Routes:
    """Plan a place for every request and say which cache that is under the configured scope."""
    if config.rank_count == 1:
        only = np.zeros(workload.request_count, np.int64)
        return Routes(instance=only, dp_rank=only, cache=only)
    place = _place(workload, config, order)
    instance, dp_rank = place // config.dp_size, place % config.dp_size
    match config.cache_scope:
        case CacheScope.GLOBAL:
            cache = np.zeros_like(place)
        case CacheScope.INSTANCE_LOCAL:
            cache = instance
        case CacheScope.DP_LOCAL:
            cache = place
        case _:
            assert_never(config.cache_scope)
    return Routes(instance=instance, dp_rank=dp_rank, cache=cache)


def _place(workload: Workload, config: RoutingConfig, order: IntArray) -> IntArray:
    """The rank of each request among all ranks of all instances, instance by instance."""
    match config.policy:
        case RoutingPolicy.ROUND_ROBIN:
            return positions(order) % config.rank_count
        case RoutingPolicy.BOUND:
            by_group = _balanced(workload, config.rank_count)
        case RoutingPolicy.STICKY:
            by_group = _first_come(workload, config.rank_count, order)
        case RoutingPolicy.HASH:
            by_group = [hashed_place(name, config.rank_count) for name in workload.group_ids]
        case RoutingPolicy.EXPLICIT:
            by_group = [config.bindings[name] for name in workload.group_ids]
        case _:
            assert_never(config.policy)
    return np.array(by_group, np.int64)[workload.group]


def _balanced(workload: Workload, places: int) -> list[int]:
    """Each group on the place with the fewest input tokens so far, largest groups first."""
    load = [0] * places
    bound = [0] * len(workload.group_ids)
    tokens = workload.group_input_tokens.tolist()
    for group in sorted(range(len(tokens)), key=lambda group: (-tokens[group], group)):
        bound[group] = min(range(places), key=lambda place: (load[place], place))
        load[bound[group]] += tokens[group]
    return bound


def _first_come(workload: Workload, places: int, order: IntArray) -> list[int]:
    """Groups take the places in turn, as their first requests are sent."""
    present, first = np.unique(workload.group[order], return_index=True)
    bound = [0] * len(workload.group_ids)
    for turn, group in enumerate(present[np.argsort(first)].tolist()):
        bound[group] = turn % places
    return bound
