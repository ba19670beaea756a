"""Whether a cache is large enough for the hits that are planned."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from prefixbench.core.records import RequestPlan
from prefixbench.explain.branches import branching_requests
from prefixbench.explain.scene import Scene
from prefixbench.explain.wording import count, pick
from prefixbench.simulator.stack_distance import ChainRequest, lru_hits
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache
from prefixbench.simulator.watermark import CACHE_OF


def hits_lost_to_eviction(
    scene: Scene, *, block_size: int, capacity_blocks: int | None, in_flight: int
) -> int:
    """Planned hits, in blocks, that LRU caches of this capacity evict before they happen.

    Exact for one request at a time. With more in flight the room of all others, each as large as
    the largest, is taken off the capacity, so that 0 means 0. A capacity of None is no limit.
    """
    if capacity_blocks is None or not scene.requests:
        return 0
    largest = max(_blocks(plan, block_size) for plan in scene.requests)
    room = max(capacity_blocks - (in_flight - 1) * largest, 0)
    if any(plan.nodes_above or plan.history_request_id for plan in scene.requests):
        return _lost_in_branches(scene, block_size, room)
    return sum(
        sum(lru_hits(chain, _all_blocks(chain))) - sum(lru_hits(chain, room))
        for chain in _chains(scene, block_size)
    )


def _lost_in_branches(scene: Scene, block_size: int, room: int) -> int:
    """The same where prefixes branch, or turns go on from each other."""
    lost = 0
    for warm_ups, measured in branching_requests(scene, block_size):
        cache = TraceCache(IndexedTrace([*warm_ups, *measured]))
        kept, most = (cache.hit_blocks(blocks)[len(warm_ups) :] for blocks in (room, None))
        lost += sum(most) - sum(kept)
    return lost


def _chains(scene: Scene, block_size: int) -> list[list[ChainRequest]]:
    """Each cache's requests, after one warm-up for every group that it serves."""
    cache_of = CACHE_OF[scene.scope]
    numbers: dict[str, int] = {}
    warm_ups: defaultdict[tuple[int, ...], dict[int, ChainRequest]] = defaultdict(dict)
    chains: defaultdict[tuple[int, ...], list[ChainRequest]] = defaultdict(list)
    for plan in scene.requests:
        cache, group = cache_of(plan), plan.prefix_group_id
        number = numbers.setdefault(group, len(numbers))
        if group in scene.warm:
            warmed = ChainRequest(number, scene.warm[group] // block_size, 1)
            warm_ups[cache].setdefault(number, warmed)
        shared = plan.planned_prefix_len // block_size
        chains[cache].append(ChainRequest(number, shared, _blocks(plan, block_size) - shared))
    return [[*warm_ups[cache].values(), *chain] for cache, chain in chains.items()]


def _blocks(plan: RequestPlan, block_size: int) -> int:
    """Blocks that hold the prompt and its answer; nothing of the last output token is stored."""
    return -(-(plan.input_len + max(plan.output_len, 1) - 1) // block_size)


def _all_blocks(chain: Sequence[ChainRequest]) -> int:
    return sum(request.blocks for request in chain)


def usable_blocks(server: Mapping[str, Any]) -> int | None:
    """Blocks that requests can hold; vLLM keeps one of `num_gpu_blocks` for itself."""
    blocks = server.get("num_blocks")
    return None if blocks is None else int(blocks) - 1


def eviction_evidence(
    lost_blocks: int, server: Mapping[str, Any], instances: Sequence[Mapping[str, Any]]
) -> str | None:
    """What shows that blocks had to go before they were hit; None if nothing does."""
    found = []
    if lost_blocks:
        found.append(
            f"LRU in {count(usable_blocks(server))} blocks loses {count(lost_blocks)} blocks of "
            "planned hits"
        )
    evictions = [row["evictions"] for row in instances if pick(row, "evictions", "count")]
    if evictions:
        evicted = sum(eviction["count"] for eviction in evictions)
        found.append(f"{count(evicted)} {evictions[0]['unit']}s evicted")
    if preempted := preemptions(instances):
        found.append(f"{count(preempted)} preemptions")
    return ", ".join(found) or None


def preemptions(instances: Sequence[Mapping[str, Any]]) -> int:
    """Requests pushed back for lack of blocks, over all instances that say so."""
    return sum(row.get("preemptions") or 0 for row in instances)
