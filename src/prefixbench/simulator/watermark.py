"""The closed form of an unlimited cache that is asked one request after the other (RFC 3.3.4).

True when nothing is evicted, a request sees everything sent before it, and the first token after
each planned prefix is not shared. Then one integer per prefix group and cache, the watermark, is
all there is to know: `H = min(p, C)`, afterwards `C = max(C, p)` (planning.md, section 1).
"""

from __future__ import annotations

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
    cache_of = CACHE_OF[CacheScope(cache_scope)]
    warm_depths = {
        group: align_down(depth, hit_granularity) for group, depth in (warm or {}).items()
    }
    shared_head = align_down(head_len, hit_granularity)
    watermarks: dict[tuple[Cache, str], int] = {}
    caches_seen: set[Cache] = set()
    for request in requests:
        cache = cache_of(request)
        domain = (cache, request.prefix_group_id)
        head = shared_head if warm_depths or cache in caches_seen else 0
        before = max(watermarks.get(domain, warm_depths.get(request.prefix_group_id, 0)), head)
        prefix = align_down(request.planned_prefix_len, hit_granularity)
        watermarks[domain] = max(before, prefix)
        caches_seen.add(cache)
        yield RequestOutcome(
            request_id=request.request_id,
            prefix_group_id=request.prefix_group_id,
            input_len=request.input_len,
            cached_watermark_before=before,
            expected_hit_len=min(prefix, before),
            cached_watermark_after=watermarks[domain],
            expected_head_hit_len=min(prefix, before, shared_head),
        )
