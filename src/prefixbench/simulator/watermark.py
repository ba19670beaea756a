"""The closed form of an unlimited cache that is asked one request after the other (RFC 3.3.4).

True when nothing is evicted, a request sees everything sent before it, and the first token after
each planned prefix is not shared. Then one integer per prefix group and cache, the watermark, is
all there is to know: `H = min(p, C)`, afterwards `C = max(C, p)` (planning.md, section 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from fractions import Fraction

from prefixbench.core.blocks import align_down
from prefixbench.core.records import CacheScope, RequestOutcome, RequestPlan
from prefixbench.core.tally import HitTally, total

Cache = tuple[int, ...]

#: Which cache serves a request, for each reach of a cache.
CACHE_OF: dict[CacheScope, Callable[[RequestPlan], Cache]] = {
    CacheScope.GLOBAL: lambda _request: (),
    CacheScope.INSTANCE_LOCAL: lambda request: (request.planned_instance_id,),
    CacheScope.DP_LOCAL: lambda request: (request.planned_instance_id, request.planned_dp_id),
}


@dataclass(frozen=True, slots=True)
class PrefixCacheSimulationResult:
    """What each request finds cached, in order; iterates the outcomes.

    >>> len(PrefixCacheSimulationResult(()))
    0
    """

    outcomes: tuple[RequestOutcome, ...]

    def __iter__(self) -> Iterator[RequestOutcome]:
        return iter(self.outcomes)

    def __len__(self) -> int:
        return len(self.outcomes)

    @property
    def tally(self) -> HitTally:
        """Tokens found cached out of all input tokens."""
        return total(HitTally(row.expected_hit_len, row.input_len) for row in self.outcomes)

    @property
    def hits(self) -> int:
        """Tokens found cached."""
        return self.tally.hits

    @property
    def queries(self) -> int:
        """Input tokens."""
        return self.tally.queries

    @property
    def ratio(self) -> Fraction | None:
        """Hits out of queries, exact; None without requests."""
        return self.tally.ratio


def simulate_prefix_cache_watermarks(
    requests: Iterable[RequestPlan],
    cache_scope: CacheScope | str,
    *,
    hit_granularity: int = 1,
    head_len: int = 0,
    warm: Mapping[str, int] | None = None,
) -> PrefixCacheSimulationResult:
    """Walk the requests in order; say what each one finds cached, in tokens.

    Prefixes count in whole steps of `hit_granularity`. The first `head_len` tokens are equal in
    every request and belong to its prefix: a cache holds their full blocks from its first request
    on. `warm` gives the depth in tokens to which warm-up stored a group in every cache that serves
    it; a warmed cache holds the head too.
    """
    walk = walk_watermarks(
        requests, cache_scope, hit_granularity=hit_granularity, head_len=head_len, warm=warm
    )
    return PrefixCacheSimulationResult(tuple(walk))


def walk_watermarks(
    requests: Iterable[RequestPlan],
    cache_scope: CacheScope | str,
    *,
    hit_granularity: int = 1,
    head_len: int = 0,
    warm: Mapping[str, int] | None = None,
) -> Iterator[RequestOutcome]:
    """As `simulate_prefix_cache_watermarks`, streaming: holds one integer per group and cache."""
    marks = Watermarks(cache_scope, hit_granularity=hit_granularity, head_len=head_len, warm=warm)
    return marks.walk(requests)


class Watermarks:
    """Cached depths of groups, and of the nodes of a tree above them, in each cache.

    A request that reaches into a node finds it as deep as any request below the node went. A later
    turn of a session finds the history that its plan says, for it is sent after its predecessor.
    """

    def __init__(
        self,
        cache_scope: CacheScope | str,
        *,
        hit_granularity: int = 1,
        head_len: int = 0,
        warm: Mapping[str, int] | None = None,
    ) -> None:
        self._place_of = CACHE_OF[CacheScope(cache_scope)]
        self._step = hit_granularity
        self._head = align_down(head_len, hit_granularity)
        self._warm = {
            group: align_down(depth, hit_granularity) for group, depth in (warm or {}).items()
        }
        self._depths: dict[tuple[Cache, str], int] = {}
        self._opened: set[Cache] = set()

    def _cache_of(self, request: RequestPlan) -> Cache:
        """The cache as this request sees it: nothing of another model or salt."""
        return (*self._place_of(request), request.namespace)

    def store(self, request: RequestPlan) -> None:
        """The request's planned prefix is cached from now on."""
        cache = self._cache_of(request)
        self._opened.add(cache)
        if request.history_request_id is not None:
            return
        prefix = align_down(request.planned_prefix_len, self._step)
        for node in (*(name for name, _ in request.nodes_above), request.prefix_group_id):
            self._depths[cache, node] = max(self._depths.get((cache, node), 0), prefix)

    def depth(self, request: RequestPlan) -> int:
        """Tokens of the request's path that are cached."""
        if request.history_request_id is not None:
            return align_down(request.planned_prefix_len, self._step)
        cache, group = self._cache_of(request), request.prefix_group_id
        head = self._head if self._warm or cache in self._opened else 0
        depth = max(self._depths.get((cache, group), 0), self._warm.get(group, 0), head)
        for name, end in request.nodes_above:
            found = min(self._depths.get((cache, name), 0), align_down(end, self._step))
            depth = max(depth, found)
        return depth

    def walk(
        self, requests: Iterable[RequestPlan], *, lag: int = 1, waited_for: int = 0
    ) -> Iterator[RequestOutcome]:
        """What each request finds that sees those at places up to its own less `lag`.

        Behind the first `waited_for` requests all of them are seen.
        """
        unseen: deque[tuple[int, RequestPlan]] = deque()
        for place, request in enumerate(requests):
            seen = max(place - lag, waited_for - 1 if place >= waited_for else place - lag)
            while unseen and unseen[0][0] <= seen:
                self.store(unseen.popleft()[1])
            unseen.append((place, request))
            yield self._outcome(request)

    def _outcome(self, request: RequestPlan) -> RequestOutcome:
        before = self.depth(request)
        prefix = align_down(request.planned_prefix_len, self._step)
        return RequestOutcome(
            request_id=request.request_id,
            prefix_group_id=request.prefix_group_id,
            input_len=request.input_len,
            cached_watermark_before=before,
            expected_hit_len=min(prefix, before),
            cached_watermark_after=max(prefix, before),
            expected_head_hit_len=min(prefix, before, self._head),
        )
