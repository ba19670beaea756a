"""Which engine serves a request: DP ranks inside a server, instances behind a router.

A *place* is one engine with its cache, numbered from 0. The rules are those of planned routing (in
turn, sticky, hashed, bound), of vLLM's internal balancing (read in 0.33) and of the cache-aware
routers in front of several instances (vllm-router 0.1.17, sglang-router 0.3.2: documented
thresholds, read in sglang's `cache_aware` policy). SGLang spreads over its DP ranks in turn unless
told otherwise (0.5.23, read).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from prefixbench.core.seeds import below, stream
from prefixbench.simulator.radix import RadixTree, token_array
from prefixbench.simulator.request import EngineRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What a router sees of a place; `kv_usage` is 0..1."""

    in_flight: int
    running: int
    waiting: int
    kv_usage: float

    @property
    def score(self) -> float:
        """Requests on the rank, and a penalty for a queue before a pool more than half full."""
        requests = max(self.in_flight, self.waiting + self.running)
        return requests + 6 * self.waiting * max(0.0, self.kv_usage - 0.5)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request on its way to a place.

    `affinity` names what belongs together, a prefix group or a session. `pinned` is the place that
    the client asks for (vLLM's header `X-data-parallel-rank`); no router is asked then.
    """

    request: EngineRequest
    affinity: str = ""
    pinned: int | None = None


class Router(Protocol):
    """Picks places; what it remembers is all it knows of the caches."""

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:
        """A place among those whose loads are given, in their order."""
        ...


class RoundRobin:
    """Places in turn, request by request."""

    def __init__(self) -> None:
        self._turn = 0

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:  # noqa: ARG002
        place = self._turn % len(loads)
        self._turn += 1
        return place


class Sticky:
    """Where the first request of the same affinity went; new ones take the places in turn."""

    def __init__(self) -> None:
        self._place_of: dict[str, int] = {}

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:
        return self._place_of.setdefault(arrival.affinity, len(self._place_of) % len(loads))


def hashed_place(affinity: str, places: int) -> int:
    """The place of a name, the same in every process."""
    return below(places, stream("routing", group=affinity))


class Hashed:
    """By a hash of the affinity."""

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:
        return hashed_place(arrival.affinity, len(loads))


@dataclass(frozen=True, slots=True)
class Bound:
    """Each affinity has its place, dealt out before."""

    place_of: Mapping[str, int]

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:  # noqa: ARG002
        return self.place_of[arrival.affinity]


class LeastLoaded:
    """vLLM's internal balancing: the lowest score; what is cached plays no part.

    The scan for it starts one place later after each pick, so an idle server spreads a sequential
    client's requests evenly.

    >>> idle = RankLoad(in_flight=0, running=0, waiting=0, kv_usage=0.0)
    >>> arrival, router = Arrival(EngineRequest("r", [1], [2])), LeastLoaded()
    >>> [router.pick(arrival, [idle, idle, idle]) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._start = 0

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:  # noqa: ARG002
        count = len(loads)
        scan = [(self._start + offset) % count for offset in range(count)]
        self._start = (self._start + 1) % count
        return min(scan, key=lambda place: loads[place].score)


@dataclass(slots=True, kw_only=True)
class CacheAware:
    """What the routers in front of instances do: follow the longest match, unless loads differ.

    The router keeps a tree of what it sent to each place. While loads are balanced, a request goes
    where more than `match_threshold` of it is known, to the longest match; otherwise to the place
    with the smallest tree. Once loads differ by more than `balance_difference` requests and by
    more than the factor `balance_ratio`, it goes to the one with the fewest requests in flight.

    The routers count characters of the text, and trim their trees every minute or two to 2^25 or
    2^26 of them; here, where there is no text, tokens are counted, four characters each, and trees
    are trimmed at once. Among equals the first place is taken.
    """

    match_threshold: float = 0.3
    balance_difference: int = 64
    balance_ratio: float = 1.5
    tree_limit_len: int = 2**24
    _trees: list[RadixTree] = field(default_factory=list)

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:
        self._trees += [RadixTree(page_size=1) for _ in loads[len(self._trees) :]]
        tokens = token_array(arrival.request.prompt)
        in_flight = [load.in_flight for load in loads]
        most, least = max(in_flight), min(in_flight)
        if most - least > self.balance_difference and most > self.balance_ratio * least:
            place = in_flight.index(least)
        else:
            matched = [tree.shared_len(tokens) for tree in self._trees]
            sizes = [tree.evictable_len for tree in self._trees]
            is_known = max(matched) > self.match_threshold * len(tokens)
            place = matched.index(max(matched)) if is_known else sizes.index(min(sizes))
        tree = self._trees[place]
        tree.insert(tokens)
        tree.evict(tree.evictable_len - self.tree_limit_len)
        return place


class TwoLevels:
    """Instances behind a router, each of which spreads over its DP ranks by a rule of its own.

    Place = instance * DP ranks + rank.
    """

    def __init__(self, front: Router, inside: Sequence[Router]) -> None:
        self._front = front
        self._inside = tuple(inside)

    def pick(self, arrival: Arrival, loads: Sequence[RankLoad]) -> int:
        size = len(loads) // len(self._inside)
        ranks = [loads[start : start + size] for start in range(0, len(loads), size)]
        instance = self._front.pick(arrival, [_together(each) for each in ranks])
        return instance * size + self._inside[instance].pick(arrival, ranks[instance])


def _together(loads: Sequence[RankLoad]) -> RankLoad:
    return RankLoad(
        in_flight=sum(load.in_flight for load in loads),
        running=sum(load.running for load in loads),
        waiting=sum(load.waiting for load in loads),
        kv_usage=sum(load.kv_usage for load in loads) / len(loads),
    )


#: Routers by the names that users give them.
ROUTERS: Mapping[str, type[Router]] = {
    "round_robin": RoundRobin,
    "sticky": Sticky,
    "hash": Hashed,
    "least_loaded": LeastLoaded,
    "cache_aware": CacheAware,
}
