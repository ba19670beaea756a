"""A trace in front of one cache, as a document: hit ratios under every definition, and why.

The contract's `simulate --trace` prints it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.core.tally import HitTally, Unit
from prefixbench.simulator.hit_definition import (
    ALL_REQUESTS,
    DefinedHitRatio,
    HitDefinition,
    hit_ratio,
)
from prefixbench.simulator.trace import BlockIds, TraceRequest
from prefixbench.simulator.trace_cache import CacheRules, IndexedTrace, Policy, TraceCache
from prefixbench.simulator.trace_statistics import (
    Popularity,
    arrivals,
    capacities_for_shares,
    distribution,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """Which of the hit ratios is meant, and of which requests.

    `block_size` in tokens; `chosen` says in words which requests of its source the trace has.
    """

    block_size: int
    definition: HitDefinition = HitDefinition.TOKENS_ENGINE
    window: float = 1.0
    chosen: str = ALL_REQUESTS

    def defined(
        self, definition: HitDefinition, requests: Sequence[TraceRequest], hits: Sequence[int]
    ) -> DefinedHitRatio:
        return hit_ratio(
            definition, requests, hits, self.block_size, window=self.window, chosen=self.chosen
        )

    def ratio(self, requests: Sequence[TraceRequest], hits: Sequence[int]) -> float | None:
        return self.defined(self.definition, requests, hits).ratio


def _as_json(found: DefinedHitRatio) -> dict[str, Any]:
    tally = found.tally
    return {
        "definition": found.definition.value,
        "window": found.window,
        "block_size": found.block_size,
        "requests": found.requests,
        "hits": tally.hits if tally else None,
        "queries": tally.queries if tally else None,
        "unit": tally.unit.value if tally else None,
        "hit_ratio": found.ratio,
    }


def describe(requests: Sequence[TraceRequest]) -> dict[str, Any]:
    """Lengths and arrivals: what can be said of any trace."""
    outputs = [request.output_len for request in requests if request.output_len is not None]
    return {
        "input_length": distribution(request.input_len for request in requests),
        "output_length": distribution(outputs),
        "arrivals": arrivals(requests),
    }


def analyse(
    cache: TraceCache, measure: Measure, capacity_blocks: int | None, *, with_curve: bool = False
) -> dict[str, Any]:
    """Hit ratios at a capacity (None: without limit), reuse, popularity, and if asked a curve."""
    trace = cache.trace
    hits = cache.hit_blocks(capacity_blocks)
    lru = TraceCache(trace).lru_curve()
    return {
        "hit_ratio": measure.ratio(trace.requests, hits),
        "unlimited_hit_ratio": measure.ratio(trace.requests, cache.hit_blocks()),
        "hit_ratios": [
            _as_json(measure.defined(definition, trace.requests, hits))
            for definition in HitDefinition
        ],
        "blocks": {
            "accesses": trace.accesses,
            "unique": len(trace.tree),
            "hits": sum(hits),
            "lossless_capacity": lru.corners[-1],
        },
        "reuse": capacities_for_shares(lru),
        "popularity": Popularity.of(trace.paths).to_json(),
        "conversations": _conversations(trace.requests, hits),
        "curve": list(_curve(cache, measure, lru.corners[-1])) if with_curve else None,
    }


def _curve(cache: TraceCache, measure: Measure, lossless: int) -> Iterator[dict[str, Any]]:
    """The cache's hit ratio by its size, beside the best that any policy could have."""
    requests = cache.trace.requests
    optimal = TraceCache(cache.trace, CacheRules(policy=Policy.OPTIMAL))
    for capacity in powers_up_to(lossless):
        best = optimal.hit_blocks(capacity) if cache.rules.is_sequential else None
        yield {
            "capacity_blocks": capacity,
            "capacity_tokens": capacity * measure.block_size,
            "hit_ratio": measure.ratio(requests, cache.hit_blocks(capacity)),
            "optimal_hit_ratio": None if best is None else measure.ratio(requests, best),
        }


def powers_up_to(most: int) -> Iterator[int]:
    """1, 2, 4, … and the number itself at the end; nothing up to 0.

    >>> list(powers_up_to(5))
    [1, 2, 4, 5]
    """
    yield from (1 << exponent for exponent in range((most - 1).bit_length() if most else 0))
    if most:
        yield most


def _conversations(requests: Sequence[TraceRequest], hits: Sequence[int]) -> dict[str, Any] | None:
    """The block hit ratios of conversations, each taken alone; None where there are none."""
    tallies: defaultdict[int, HitTally] = defaultdict(lambda: HitTally(0, 0, Unit.BLOCK))
    for request, found in zip(requests, hits, strict=True):
        if request.conversation is not None:
            tallies[request.conversation] += HitTally(found, request.block_count, Unit.BLOCK)
    ratios = [tally.hits / tally.queries for tally in tallies.values() if tally.queries]
    return distribution(ratios) if ratios else None


def notes_on(trace: IndexedTrace, block_size: int, ids: BlockIds | None) -> Iterator[str]:
    """What a reader of the figures should know about the trace."""
    repeated = trace.tree.repeated_ids() if ids is BlockIds.PREFIX else 0
    if repeated:
        yield (
            f"{repeated:,} of the ids stand behind different parents, so they name contents,"
            " not prefixes; they are told apart by their path"
        )
    too_many = sum(
        request.block_count > -(-request.input_len // block_size) for request in trace.requests
    )
    if too_many:
        yield (
            f"{too_many:,} requests have more blocks than their input fills at"
            f" {block_size} tokens a block"
        )
