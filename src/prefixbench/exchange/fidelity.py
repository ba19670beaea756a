"""How near a planned data set is to its trace: request by request, and by capacity."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from prefixbench.core.blocks import longest_hit
from prefixbench.core.records import RequestPlan
from prefixbench.simulator.trace import TraceRequest
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache
from prefixbench.simulator.trace_statistics import capacities_for_shares

#: Ids of a group's blocks, and of a request's own, are so far apart.
_SPAN = 1 << 32
_OWN_BLOCKS = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """Hit blocks out of all blocks in an LRU cache of a size, of the trace and of the plan."""

    capacity_blocks: int
    trace: float
    planned: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """What of a trace's reuse a plan repeats; shares are of requests and of hit tokens.

    `equal_requests` find as much as in the trace. `moved_hits` are found by other requests than in
    the trace, or not at all (None: the trace has no hits). Hits are an engine's: whole blocks, one
    token computed.
    """

    equal_requests: float
    moved_hits: float | None
    curve: tuple[CurvePoint, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def compare_with_plan(
    trace: Sequence[TraceRequest], plans: Iterable[RequestPlan], block_size: int
) -> Fidelity:
    """Both before the same cache; request k of the plan stands for request k of the trace."""
    planned = list(_as_trace(plans, block_size))
    real, made = TraceCache(IndexedTrace(trace)), TraceCache(IndexedTrace(planned))
    pairs = list(zip(_hits(trace, real, block_size), _hits(planned, made, block_size), strict=True))
    total = sum(wanted for wanted, _found in pairs)
    missing = sum(max(wanted - found, 0) for wanted, found in pairs)
    return Fidelity(
        equal_requests=sum(wanted == found for wanted, found in pairs) / len(pairs),
        moved_hits=missing / total if total else None,
        curve=tuple(_curve(real, made)),
    )


def _as_trace(plans: Iterable[RequestPlan], block_size: int) -> Iterator[TraceRequest]:
    """Blocks of a plan: a first part of the group's, then blocks of the request's own."""
    groups: dict[str, int] = {}
    for number, plan in enumerate(plans):
        shared = groups.setdefault(plan.prefix_group_id, len(groups)) * _SPAN
        own = _OWN_BLOCKS + number * _SPAN
        prefix_blocks = plan.planned_prefix_len // block_size
        others = -(-plan.input_len // block_size) - prefix_blocks
        yield TraceRequest(
            input_len=plan.input_len,
            blocks=(range(shared, shared + prefix_blocks), range(own, own + others)),
        )


def _hits(requests: Sequence[TraceRequest], cache: TraceCache, block_size: int) -> Iterator[int]:
    for request, blocks in zip(requests, cache.hit_blocks(), strict=True):
        yield min(blocks, longest_hit(request.input_len, block_size) // block_size)


def _curve(real: TraceCache, made: TraceCache) -> Iterator[CurvePoint]:
    """Where the trace's cache keeps a quarter, a half … and all of what can be found."""
    curves = real.lru_curve(), made.lru_curve()
    capacities = {row["blocks"] for row in capacities_for_shares(curves[0])}
    for capacity in sorted(capacities - {0}):
        ratios = [float(curve.tally(capacity).ratio or 0) for curve in curves]
        yield CurvePoint(capacity_blocks=capacity, trace=ratios[0], planned=ratios[1])
