"""Planned hits that a small cache loses, against an LRU list of blocks."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixbench.core.records import CacheScope, RequestPlan
from prefixbench.explain.capacity import hits_lost_to_eviction
from prefixbench.explain.scene import Scene, deepest_prefixes

BLOCK = 4


class LruCache:
    """Blocks in the order of their last touch; the tail of a request goes before its head."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: OrderedDict[Hashable, None] = OrderedDict()

    def serve(self, blocks: list[Hashable], prefix_blocks: int) -> int:
        hits = 0
        while hits < prefix_blocks and blocks[hits] in self._blocks:
            hits += 1
        for block in reversed(blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) > self._capacity:
            self._blocks.popitem(last=False)
        return hits


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    requests = []
    for number in range(draw(st.integers(1, 30))):
        prefix = draw(st.integers(0, 6))
        own = draw(st.integers(1, 5))
        requests.append(
            RequestPlan(
                request_id=str(number),
                prefix_group_id=draw(st.sampled_from("abc")),
                input_len=(prefix + own) * BLOCK,
                output_len=draw(st.integers(1, 9)),
                planned_prefix_len=prefix * BLOCK,
            )
        )
    return Scene(requests=tuple(requests), scope=CacheScope.GLOBAL, granularity=BLOCK, head_len=0)


def blocks_of(plan: RequestPlan) -> list[Hashable]:
    shared = plan.planned_prefix_len // BLOCK
    count = -(-(plan.input_len + plan.output_len - 1) // BLOCK)
    return [
        (plan.prefix_group_id, place) if place < shared else (plan.request_id, place)
        for place in range(count)
    ]


@st.composite
def talks(draw: st.DrawFn) -> tuple[Scene, dict[str, list[Hashable]]]:
    """Sessions of three groups, two of them below one node, and the blocks of each request."""
    above = {"x/a": (("x", 2 * BLOCK),), "x/b": (("x", 2 * BLOCK),), "c": ()}
    requests: dict[str, RequestPlan] = {}
    blocks: dict[str, list[Hashable]] = {}
    for number in range(draw(st.integers(1, 20))):
        name, before = str(number), draw(st.sampled_from(["", *requests]))
        group = requests[before].prefix_group_id if before else draw(st.sampled_from(list(above)))
        own, output_len = draw(st.integers(1, 9)), draw(st.integers(1, 9))
        if before in {plan.history_request_id for plan in requests.values()}:
            continue  # a turn has one turn behind it
        if before:
            history = requests[before].input_len + draw(
                st.integers(0, requests[before].output_len - 1)
            )
            path = blocks[before][: history // BLOCK]
        else:
            history = draw(st.integers(0, 6)) * BLOCK
            nodes = {place: node for node, end in above[group] for place in range(end // BLOCK)}
            path = [(nodes.get(place, group), place) for place in range(history // BLOCK)]
        requests[name] = RequestPlan(
            request_id=name,
            prefix_group_id=group,
            input_len=history + own,
            output_len=output_len,
            planned_prefix_len=history,
            nodes_above=above[group],
            history_request_id=before or None,
        )
        count = -(-(history + own + output_len - 1) // BLOCK)
        blocks[name] = [*path, *((name, place) for place in range(len(path), count))]
    plans = tuple(requests.values())
    return Scene(requests=plans, scope=CacheScope.GLOBAL, granularity=BLOCK, head_len=0), blocks


@settings(max_examples=200, deadline=None)
@given(talks(), st.integers(0, 120), st.booleans())
def test_lost_hits_of_sessions_in_a_tree_are_those_that_an_lru_cache_misses(
    talk: tuple[Scene, dict[str, list[Hashable]]], capacity: int, warmed: bool
) -> None:
    scene, blocks = talk
    cache = LruCache(capacity)
    if warmed:
        scene = replace(scene, warm=deepest_prefixes(scene.requests))
    for group, depth in scene.warm.items():
        path = [
            ("x" if group != "c" and place < 2 else group, place) for place in range(depth // BLOCK)
        ]
        cache.serve([*path, ("filler", group)], 0)
    served = [
        cache.serve(blocks[plan.request_id], plan.planned_prefix_len // BLOCK) * BLOCK
        for plan in scene.requests
    ]
    lost = hits_lost_to_eviction(scene, block_size=BLOCK, capacity_blocks=capacity, in_flight=1)
    assert scene.tally().hits - lost * BLOCK == sum(served)


@settings(max_examples=150, deadline=None)
@given(scenes(), st.integers(0, 120), st.booleans())
def test_lost_hits_are_those_that_an_lru_cache_misses(
    scene: Scene, capacity: int, warmed: bool
) -> None:
    if warmed:
        scene = replace(scene, warm=deepest_prefixes(scene.requests))
    cache = LruCache(capacity)
    for number, group in enumerate(dict.fromkeys(p.prefix_group_id for p in scene.requests)):
        depth = scene.warm.get(group, 0) // BLOCK
        if warmed:
            cache.serve([*((group, place) for place in range(depth)), ("filler", number)], 0)
    served = [
        cache.serve(blocks_of(plan), plan.planned_prefix_len // BLOCK) * BLOCK
        for plan in scene.requests
    ]
    lost = hits_lost_to_eviction(scene, block_size=BLOCK, capacity_blocks=capacity, in_flight=1)
    assert scene.tally().hits - lost * BLOCK == sum(served)


@given(scenes(), st.integers(0, 120), st.integers(1, 6))
def test_more_requests_in_flight_never_promise_more(
    scene: Scene, capacity: int, in_flight: int
) -> None:
    lost = [
        hits_lost_to_eviction(scene, block_size=BLOCK, capacity_blocks=capacity, in_flight=number)
        for number in (1, in_flight)
    ]
    assert lost[0] <= lost[1]


def test_requests_in_flight_take_room_from_the_cache() -> None:
    plans = tuple(
        RequestPlan(
            request_id=str(number),
            prefix_group_id="ab"[number % 2],
            input_len=16,
            output_len=1,
            planned_prefix_len=8,
        )
        for number in range(6)
    )
    scene = Scene(requests=plans, scope=CacheScope.GLOBAL, granularity=BLOCK, head_len=0)
    lost = [
        hits_lost_to_eviction(scene, block_size=BLOCK, capacity_blocks=8, in_flight=number)
        for number in (1, 2)
    ]
    assert lost == [0, 8]


def test_a_cache_without_a_known_size_loses_nothing() -> None:
    plan = RequestPlan(request_id="0", prefix_group_id="a", input_len=8, planned_prefix_len=4)
    scene = Scene(requests=(plan, plan), scope=CacheScope.GLOBAL, granularity=BLOCK, head_len=0)
    assert hits_lost_to_eviction(scene, block_size=4, capacity_blocks=None, in_flight=1) == 0
    assert hits_lost_to_eviction(scene, block_size=4, capacity_blocks=0, in_flight=1) == 1
