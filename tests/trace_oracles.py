"""Naive caches for traces, block by block; they share no code with the simulator.

A node is a block told by everything before it: the tuple of ids from the root on.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

Node = tuple[int, ...]


def nodes_of(ids: Sequence[int]) -> list[Node]:
    return [tuple(ids[: end + 1]) for end in range(len(ids))]


def leading(path: Sequence[Node], cached: object) -> int:
    hits = 0
    for node in path:
        if node not in cached:  # type: ignore[operator]
            break
        hits += 1
    return hits


def lru(trace: list[list[int]], capacity: int, lag: int = 1) -> list[int]:
    """Whole look-up, then the path is stored with its head most recent, `lag` requests later."""
    paths = list(map(nodes_of, trace))
    cache: OrderedDict[Node, None] = OrderedDict()
    hits = []
    for number, path in enumerate(paths):
        if number >= lag:
            for node in reversed(paths[number - lag]):
                cache[node] = None
                cache.move_to_end(node)
            while len(cache) > capacity:
                cache.popitem(last=False)
        hits.append(leading(path, cache))
    return hits


def block_lru(trace: list[list[int]], capacity: int) -> list[int]:
    """One block after the other: found or not, it is now the most recent one."""
    cache: OrderedDict[Node, None] = OrderedDict()
    hits = []
    for path in map(nodes_of, trace):
        found = 0
        for node in path:
            found += node in cache
            cache[node] = None
            cache.move_to_end(node)
            if len(cache) > capacity:
                cache.popitem(last=False)
        hits.append(found)
    return hits


def fifo(trace: list[list[int]], capacity: int) -> list[int]:
    queue: list[Node] = []
    hits = []
    for path in map(nodes_of, trace):
        hits.append(leading(path, queue))
        for node in path:
            if node not in queue:
                queue.append(node)
                del queue[:-capacity]
    return hits


def optimal(trace: list[list[int]], capacity: int) -> list[int]:
    """Keeps the blocks that are needed soonest, nearer to the root first."""
    paths = list(map(nodes_of, trace))
    cache: set[Node] = set()
    hits = []
    for number, path in enumerate(paths):
        hits.append(leading(path, cache))
        later = paths[number + 1 :]

        def next_use(node: Node, later: list[list[Node]] = later) -> tuple[float, int]:
            uses = [place for place, other in enumerate(later) if node in other]
            return (uses[0] if uses else float("inf"), len(node))

        cache = set(sorted(cache | set(path), key=next_use)[:capacity])
    return hits


def unlimited_with_ttl(trace: list[list[int]], arrivals: list[float], ttl: float) -> list[int]:
    last_use: dict[Node, float] = {}
    hits = []
    for path, now in zip(map(nodes_of, trace), arrivals, strict=True):
        fresh = {node for node, used in last_use.items() if now - used <= ttl}
        hits.append(leading(path, fresh))
        last_use |= dict.fromkeys(path, now)
    return hits
