"""What a request could have found, told from the times at which others were in flight.

Blocks of a request become matchable somewhere between its sending and its first token; engines
differ in where (engine-semantics: at schedule time in vLLM, after the result in SGLang). So its
hits in an unlimited cache lie between two bounds that need no engine: what requests answered
before it was sent have left, and what requests sent before its own first token could have left.
A hit below the first bound was lost; one above the second was in the cache before the run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from prefixbench.core.blocks import align_down
from prefixbench.core.records import RequestPlan
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.scene import Scene
from prefixbench.simulator.watermark import CACHE_OF


@dataclass(frozen=True, slots=True)
class Bounds:
    """Least and most tokens a request can have found in an unlimited cache."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class _Flight:
    """A request on its way: in flight from `sent` until `answered`, leaving `depth` tokens."""

    request_id: str
    sent: int
    answered: int | None
    depth: int


def hit_bounds(scene: Scene, results: Mapping[str, ObservedRequest]) -> dict[str, Bounds]:
    """Bounds for every answered request of the scene that has times.

    A request without an answer may still have left its blocks, so it raises the upper bound.
    """
    timelines = _Timelines(scene)
    answered = []
    for plan in scene.as_seen():
        flight = _flight(plan, results[plan.request_id])
        if flight is not None:
            timelines.add(plan, flight)
            answered.append((plan, flight))
    for plan in scene.unanswered:
        result = results.get(plan.request_id)
        flight = _flight(plan, result) if result is not None else None
        if flight is not None:
            timelines.add(plan, flight)
    return {
        plan.request_id: timelines.bounds(plan, flight)
        for plan, flight in answered
        if flight.answered is not None
    }


class _Timelines:
    """Who was in flight when, in each cache (for the head), and below each node of its tree."""

    def __init__(self, scene: Scene) -> None:
        self._scene = scene
        self._cache_of = CACHE_OF[scene.scope]
        self._warm = scene.seen_warm
        self._heads, self._prefixes = _Timeline(), _Timeline()

    def add(self, plan: RequestPlan, flight: _Flight) -> None:
        cache = self._cache_of(plan)
        self._heads.add(cache, flight)
        if plan.history_request_id is None:
            for node, _ in _path(plan):
                self._prefixes.add((cache, node), flight)

    def bounds(self, plan: RequestPlan, flight: _Flight) -> Bounds:
        """A later turn is sent when the turn before it has ended: it finds its whole history."""
        if plan.history_request_id is not None:
            history = align_down(plan.planned_prefix_len, self._scene.granularity)
            return Bounds(history, history)
        return Bounds(
            self._hit(plan, flight, _Timeline.surely_left),
            self._hit(plan, flight, _Timeline.possibly_left),
        )

    def _hit(self, plan: RequestPlan, flight: _Flight, left_by: _LeftBy) -> int:
        cache = self._cache_of(plan)
        warm = self._warm.get(plan.prefix_group_id, 0)
        is_open = warm or left_by(self._heads, cache, flight) is not None
        depths = [warm, self._scene.seen_head_len if is_open else 0]
        for node, end in _path(plan):
            depths.append(min(left_by(self._prefixes, (cache, node), flight) or 0, end))
        return align_down(min(plan.planned_prefix_len, max(depths)), self._scene.granularity)


class _Timeline:
    """Flights by key; deepest prefix among those sent, or answered, before a moment."""

    def __init__(self) -> None:
        self._flights: defaultdict[Hashable, list[_Flight]] = defaultdict(list)
        self._answered: dict[Hashable, tuple[list[int], list[int]]] = {}
        self._sent: dict[Hashable, tuple[list[int], list[tuple[_Flight, int | None]]]] = {}

    def add(self, key: Hashable, flight: _Flight) -> None:
        self._flights[key].append(flight)

    def surely_left(self, key: Hashable, flight: _Flight) -> int | None:
        """The deepest prefix among requests answered before this one was sent."""
        if key not in self._answered:
            self._answered[key] = _running_deepest(self._flights[key])
        times, deepest = self._answered[key]
        position = bisect_right(times, flight.sent)
        return deepest[position - 1] if position else None

    def possibly_left(self, key: Hashable, flight: _Flight) -> int | None:
        """The deepest prefix among other requests sent before this one was answered."""
        assert flight.answered is not None
        if key not in self._sent:
            self._sent[key] = _running_two_deepest(self._flights[key])
        times, leaders = self._sent[key]
        position = bisect_left(times, flight.answered)
        if not position:
            return None
        deepest, second = leaders[position - 1]
        return second if deepest.request_id == flight.request_id else deepest.depth


_LeftBy = Callable[[_Timeline, Hashable, _Flight], int | None]


def _path(plan: RequestPlan) -> Iterator[tuple[str, int]]:
    """Nodes from the root to the group, each with the token at which it ends for this request."""
    yield from plan.nodes_above
    yield plan.prefix_group_id, plan.planned_prefix_len


def _running_deepest(flights: Iterable[_Flight]) -> tuple[list[int], list[int]]:
    times: list[int] = []
    depths: list[int] = []
    answers = sorted((f.answered, f.depth) for f in flights if f.answered is not None)
    for answered, depth in answers:
        times.append(answered)
        depths.append(max(depth, depths[-1] if depths else 0))
    return times, depths


def _running_two_deepest(
    flights: Iterable[_Flight],
) -> tuple[list[int], list[tuple[_Flight, int | None]]]:
    """Times of sending, and after each the deepest flight with the depth of the next one."""
    times: list[int] = []
    leaders: list[tuple[_Flight, int | None]] = []
    for flight in sorted(flights, key=lambda each: each.sent):
        times.append(flight.sent)
        if not leaders:
            leaders.append((flight, None))
            continue
        deepest, second = leaders[-1]
        if flight.depth > deepest.depth:
            leaders.append((flight, deepest.depth))
        else:
            leaders.append((deepest, max(flight.depth, second or 0)))
    return times, leaders


def _flight(plan: RequestPlan, result: ObservedRequest) -> _Flight | None:
    if result.sent_ns is None:
        return None
    return _Flight(plan.request_id, result.sent_ns, result.first_token_ns, plan.planned_prefix_len)
