"""`prefixbench simulate --trace`: a recorded workload in front of a cache of any size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from prefixbench.simulator.hit_definition import MEANINGS, HitDefinition
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.trace_cache import CacheRules, Policy

if TYPE_CHECKING:
    from prefixbench.core.tally import HitTally
    from prefixbench.exchange.load import LoadedTrace
    from prefixbench.simulator.cluster import Cluster
    from prefixbench.simulator.cost import CostModel
    from prefixbench.simulator.engine import Engine
    from prefixbench.simulator.stats import EngineStats
    from prefixbench.simulator.trace import TraceRequest


def cache_rules(*, policy: str | None, concurrency: int | None, ttl: float | None) -> CacheRules:
    """The rules that the options mean; what contradicts itself is wrong usage."""
    try:
        return CacheRules(
            policy=Policy(policy or Policy.LRU),
            lag=concurrency or 1,
            ttl_ms=None if ttl is None else ttl * 1000,
        )
    except ValueError as error:
        raise click.UsageError("--concurrency and --ttl go with --policy lru") from error


def trace_document(
    trace: LoadedTrace,
    rules: CacheRules,
    *,
    capacity_blocks: int | None,
    definition: HitDefinition,
    window: float,
    with_curve: bool,
) -> dict[str, Any]:
    """Everything that is printed, under the keys of --json; without blocks, lengths alone."""
    from prefixbench.simulator.trace_analysis import Measure, analyse, describe, notes_on
    from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache

    document: dict[str, Any] = {
        "trace": trace.name,
        "format": trace.format.value,
        "source_sha256": trace.sha256,
        "requests": len(trace.requests),
        "chosen": trace.chosen,
        "block_size": trace.block_size,
        "ids": trace.ids.value if trace.ids else None,
        "policy": rules.policy.value,
        "concurrency": rules.lag,
        "ttl_s": None if rules.ttl_ms is None else rules.ttl_ms / 1000,
        "capacity_blocks": capacity_blocks,
        "hit_definition": definition.value,
        "window": window,
        **describe(trace.requests),
    }
    if trace.block_size is None:
        return document | {"hit_ratio": None, "hit_ratios": [], "notes": list(trace.notes)}
    indexed = IndexedTrace(trace.requests)
    measure = Measure(
        block_size=trace.block_size, definition=definition, window=window, chosen=trace.chosen
    )
    return document | {
        **analyse(TraceCache(indexed, rules), measure, capacity_blocks, with_curve=with_curve),
        "comparable_with": _comparable_with(measure.block_size, definition, window, trace.chosen),
        "notes": [*trace.notes, *notes_on(indexed, trace.block_size, trace.ids)],
    }


def engine_row(
    trace: LoadedTrace,
    profile: str,
    *,
    capacity_blocks: int | None,
    concurrency: int | None,
    routing: str,
    dp_size: int,
    cost: CostModel | None = None,
    path: PlayPath = PlayPath.AUTO,
) -> dict[str, Any] | None:
    """What engines of a profile find, answers stored too, and with a cost how long it takes.

    None where a trace without blocks would be played for its hits alone. Requests without a token
    are left out, and a note says so.
    """
    from dataclasses import replace

    from prefixbench.cli.hit_rows import hit_rows, with_tiers
    from prefixbench.core.tally import as_rate, total
    from prefixbench.simulator.cost import CostModel
    from prefixbench.simulator.engine import Engine
    from prefixbench.simulator.routing import ROUTERS

    prompts = [request for request in trace.requests if request.input_len]
    if not prompts or (trace.block_size is None and cost is None):
        return None
    empty = len(trace.requests) - len(prompts)
    trace = replace(trace, requests=prompts)
    engines = [
        Engine(
            profile,
            capacity_blocks,
            block_size=trace.block_size,
            cost=cost or CostModel.ORDER_ONLY,
        )
        for _ in range(dp_size)
    ]
    timed = cost is not None
    played = _play(trace, engines, concurrency, routing, timed=timed, path=path)
    found, tiers = total(played.by_rank), _by_tier(played.stats)
    return {
        "profile": profile,
        "engine_path": played.path.value,
        "routing": routing if routing in ROUTERS else None,
        "queries": found.queries,
        "hits": found.hits,
        "hit_ratio": as_rate(found) if trace.block_size else None,
        "evicted_blocks": sum(one.prefix_cache.num_evictions for one in played.stats),
        "preemptions": sum(one.scheduler.num_preemptions for one in played.stats),
        "ranks": hit_rows("rank", enumerate(played.by_rank)),
        "tiers": hit_rows("name", tiers.items()),
        "combined_hit_ratio": as_rate(with_tiers(found, tiers.values())),
        "times": played.times,
        "notes": list(_notes_on_play(prompts, empty, in_time=timed and concurrency is None)),
    }


def _by_tier(stats: Sequence[EngineStats]) -> dict[str, HitTally]:
    """What the engines' tiers gave, tier by tier, out of what all above them missed."""
    from prefixbench.core.tally import total

    rows = zip(*(one.tiers for one in stats), strict=True)
    return {same[0].name: total(tier.tokens for tier in same) for same in rows}


def _notes_on_play(
    requests: Sequence[TraceRequest], left_out: int, *, in_time: bool
) -> Iterator[str]:
    """What was not played as the trace has it; `in_time`: its moments were asked for."""
    from prefixbench.core.wording import plural
    from prefixbench.simulator.trace_statistics import common_times

    if left_out:
        yield (
            f"{plural(left_out, 'request')} without a prompt token left out by the engine:"
            " servers refuse them"
        )
    if in_time and common_times(requests) is None:
        yield (
            "the trace has no times in order, so the engine got one request after the other"
            " (--concurrency N: N at a time)"
        )


class _Played(NamedTuple):
    """What each rank found and counted, what requests took if that was asked, and the path."""

    by_rank: Sequence[HitTally]
    stats: Sequence[EngineStats]
    times: dict[str, Any] | None
    path: PlayPath


def _play(
    trace: LoadedTrace,
    engines: Sequence[Engine],
    concurrency: int | None,
    routing: str,
    *,
    timed: bool,
    path: PlayPath,
) -> _Played:
    """One engine plays the trace in one go, several step by step, behind their router."""
    from prefixbench.simulator.cluster import Cluster
    from prefixbench.simulator.play import refuse_compiled
    from prefixbench.simulator.routing import ROUTERS, RoundRobin
    from prefixbench.simulator.trace_play import play_trace_alone

    if len(engines) == 1 and not timed:
        tally, stats, taken = play_trace_alone(
            trace.requests, engines[0], concurrency=concurrency or 1, path=path
        )
        return _Played([tally], [stats], None, taken)
    refuse_compiled(path, "steps that take time" if timed else "several engines")
    cluster = Cluster(engines, ROUTERS.get(routing, RoundRobin)())
    times = _play_together(trace, cluster, concurrency, timed=timed)
    by_rank = [cluster.tally_at(rank) for rank in range(len(engines))]
    return _Played(by_rank, [engine.stats() for engine in engines], times, PlayPath.PURE)


def _play_together(
    trace: LoadedTrace, cluster: Cluster, concurrency: int | None, *, timed: bool
) -> dict[str, Any] | None:
    """Play the trace; what its requests took, if that is asked for."""
    from prefixbench.cli.played_times import times_document
    from prefixbench.simulator.stopwatch import Stopwatch
    from prefixbench.simulator.trace_play import play_trace, play_trace_in_time
    from prefixbench.simulator.trace_statistics import common_times

    block_size = cluster.engines[0].options.block_size
    if not timed:
        play_trace(trace.requests, block_size, cluster, concurrency=concurrency or 1)
        return None
    cluster.watch = watch = Stopwatch()
    if concurrency is None and common_times(trace.requests) is not None:
        play_trace_in_time(trace.requests, block_size, cluster)
    else:
        play_trace(trace.requests, block_size, cluster, concurrency=concurrency or 1)
    return times_document(watch.moments.values())


def _comparable_with(block_size: int, definition: HitDefinition, window: float, chosen: str) -> str:
    measured = "" if window == 1 else f", the last {window:.0%} of them"
    return (
        f"figures of {chosen}{measured}, in blocks of {block_size} tokens, that mean:"
        f" {MEANINGS[definition]}"
    )
