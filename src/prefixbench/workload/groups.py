"""Which prefix group each request belongs to (RFC 3.3.2).

Counts follow the weights by largest remainder, so they are exact shares, not draws; *which*
requests form a group is a seeded shuffle of the generation order, independent of their lengths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product
from math import prod

import numpy as np

from prefixbench.config.prefix import PopularityConfig, PrefixGroupConfig
from prefixbench.core.records import PrefixGroupPlan, RequestPlan
from prefixbench.core.seeds import mixed, stream
from prefixbench.workload.columns import IntArray


def group_weights(config: PrefixGroupConfig) -> tuple[float, ...]:
    """Traffic weights as the user gave them; 1 for every group without one.

    A weight of a popularity is rounded to twelve digits, so that it is the same on every machine.
    """
    if config.popularity is not None:
        return _popularities(config.popularity, len(config.group_ids))
    if config.tree:
        shares = [_popularities(level.popularity, level.count) for level in config.tree]
        return tuple(_rounded(prod(path)) for path in product(*shares))
    if config.groups:
        return tuple(
            float(group.request_weight if group.request_weight is not None else 1)
            for group in config.groups
        )
    return (1.0,) * len(config.group_ids)


def _popularities(config: PopularityConfig | None, count: int) -> tuple[float, ...]:
    """The weight of each rank; all equal unless given."""
    exponent = 0.0 if config is None else config.exponent
    return tuple(_rounded(rank**-exponent) for rank in range(1, count + 1))


def _rounded(weight: float) -> float:
    return float(f"{weight:.12g}")


def assign_groups(config: PrefixGroupConfig, request_count: int, seed: int) -> IntArray:
    """The group number of each request, in generation order."""
    names = config.group_ids
    if config.assignment:
        number = {name: index for index, name in enumerate(names)}
        return np.array([number[name] for name in config.assignment], np.int64)
    counts = _group_counts(config, request_count)
    in_blocks = np.repeat(np.arange(len(names)), counts)
    if len(names) == 1:
        return in_blocks
    key = stream("group", seed=seed)
    places = np.argsort(mixed(key, np.arange(request_count, dtype=np.uint64)), kind="stable")
    assigned = np.empty(request_count, np.int64)
    assigned[places] = in_blocks
    return assigned


def _group_counts(config: PrefixGroupConfig, request_count: int) -> list[int]:
    fixed = [group.request_count for group in config.groups] or [None] * len(config.group_ids)
    free = request_count - sum(count for count in fixed if count is not None)
    weights = [
        Fraction(0) if count is not None else Fraction(repr(weight))
        for count, weight in zip(fixed, group_weights(config), strict=True)
    ]
    shares = quotas(weights, free) if any(weights) else [0] * len(weights)
    return [share if count is None else count for count, share in zip(fixed, shares, strict=True)]


def quotas(weights: Sequence[int | Fraction], total: int) -> list[int]:
    """Whole shares of `total` in proportion to the weights, by largest remainder.

    >>> quotas([5, 3, 2], 7)
    [4, 2, 1]
    """
    whole = sum(weights)
    exact = [Fraction(weight) * total / whole for weight in weights]
    shares = [int(share) for share in exact]
    by_remainder = sorted(range(len(shares)), key=lambda i: (shares[i] - exact[i], i))
    for index in by_remainder[: total - sum(shares)]:
        shares[index] += 1
    return shares


def allocate_prefix_groups(
    requests: list[RequestPlan], config: PrefixGroupConfig, seed: int = 0
) -> dict[str, PrefixGroupPlan]:
    """Give every request its group (the RFC's interface, 3.5.2)."""
    names = config.group_ids
    numbers = assign_groups(config, len(requests), seed).tolist()
    members: dict[str, list[RequestPlan]] = {name: [] for name in names}
    for request, number in zip(requests, numbers, strict=True):
        members[names[number]].append(replace(request, prefix_group_id=names[number]))
    return {
        name: PrefixGroupPlan(
            group_id=name,
            request_count=len(members[name]),
            requests=tuple(members[name]),
            request_weight=weight,
            input_tokens=sum(request.input_len for request in members[name]),
        )
        for name, weight in zip(names, group_weights(config), strict=True)
    }
