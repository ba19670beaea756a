"""Requests of a tree or of sessions as the blocks that they ask for, for caches of any size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import count
from typing import NamedTuple

from prefixbench.core.records import RequestPlan
from prefixbench.explain.scene import Scene
from prefixbench.simulator.trace import TraceRequest
from prefixbench.simulator.watermark import CACHE_OF, Cache

#: No path has more blocks.
_SPAN = 1 << 32


class CacheTrace(NamedTuple):
    """What one cache is asked for: warm-up, and then the requests that are measured."""

    warm_ups: list[TraceRequest]
    measured: list[TraceRequest]


def branching_requests(scene: Scene, block_size: int) -> list[CacheTrace]:
    """Each cache's requests with their blocks; one warm-up for every group that it serves.

    A first turn goes down the nodes of its group as far as planned; a later one has the first
    blocks of the turn before it. All other blocks are a request's own.
    """
    blocks = _Blocks(block_size)
    cache_of = CACHE_OF[scene.scope]
    warm_ups: defaultdict[Cache, dict[str, TraceRequest]] = defaultdict(dict)
    measured: defaultdict[Cache, list[TraceRequest]] = defaultdict(list)
    for plan in scene.requests:
        cache, group = cache_of(plan), plan.prefix_group_id
        if group in scene.warm and group not in warm_ups[cache]:
            warm_ups[cache][group] = blocks.warm_up(plan, scene.warm[group])
        measured[cache].append(blocks.request(plan))
    return [
        CacheTrace([*warm_ups[cache].values()], requests) for cache, requests in measured.items()
    ]


class _Blocks:
    """Numbers blocks: each node and each request has a span of ids, an id a place in a path."""

    def __init__(self, block_size: int) -> None:
        self._size = block_size
        self._spans = count(0, _SPAN)
        self._spans_of_nodes: defaultdict[str, int] = defaultdict(lambda: next(self._spans))
        self._stored: dict[str, tuple[range, ...]] = {}

    def request(self, plan: RequestPlan) -> TraceRequest:
        # Nothing of an answer's last token is stored.
        stored_len = plan.input_len + max(plan.output_len, 1) - 1
        shared = (
            self._history(plan)
            if plan.history_request_id
            else self._prefix(plan, plan.planned_prefix_len)
        )
        blocks = self._with_own(shared, -(-stored_len // self._size))
        self._stored[plan.request_id] = blocks
        return TraceRequest(input_len=plan.input_len, blocks=blocks)

    def warm_up(self, plan: RequestPlan, depth: int) -> TraceRequest:
        """The group's prefix to this depth in tokens, and a block with one token more."""
        blocks = self._with_own(self._prefix(plan, depth), depth // self._size + 1)
        return TraceRequest(input_len=depth + 1, blocks=blocks)

    def _with_own(self, shared: Iterator[range], stop: int) -> tuple[range, ...]:
        parts = tuple(shared)
        start = sum(map(len, parts))
        span = next(self._spans)
        return (*parts, range(span + start, span + max(start, stop)))

    def _history(self, plan: RequestPlan) -> Iterator[range]:
        left = plan.planned_prefix_len // self._size
        for part in self._stored.get(plan.history_request_id or "", ()):
            yield part[:left]
            left -= min(left, len(part))

    def _prefix(self, plan: RequestPlan, depth: int) -> Iterator[range]:
        start = 0
        for node, end in (*plan.nodes_above, (plan.prefix_group_id, depth)):
            span, stop = self._spans_of_nodes[node], min(end, depth) // self._size
            if start < stop:
                yield range(span + start, span + stop)
                start = stop
