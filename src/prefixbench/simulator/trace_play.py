"""A trace played against simulated engines, scheduler steps and answers included.

A block's id stands for its tokens: blocks are equal where their ids and everything before them are.
What the blocks do not cover, and every answer, is the request's own, and so is the name of what a
request of no conversation belongs together with. Either a closed loop keeps so
many requests on their way, or, where steps take time, each is sent when the trace says.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from prefixbench.core.tally import HitTally
from prefixbench.simulator.cluster import Cluster
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.play import play_script
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival
from prefixbench.simulator.script import Script
from prefixbench.simulator.stats import EngineStats
from prefixbench.simulator.tokens import TokenRuns
from prefixbench.simulator.trace import TraceRequest

#: Every request has so many tokens of no block, more than any request is long.
_SPAN = 1 << 32


def play_trace(
    requests: Sequence[TraceRequest], block_size: int, cluster: Cluster, *, concurrency: int = 1
) -> list[int]:
    """Hit tokens of every request; the engines' own statistics say the rest.

    Raises LengthError for a request that fits into no cache.
    """
    rows = list(_arrivals(requests, block_size))
    hits = cluster.play(rows, concurrency)
    return [hits[row.request.request_id] for row in rows]


class TraceAlone(NamedTuple):
    """A trace played by one engine: its hit tokens, its counters, the path of its steps."""

    tally: HitTally
    stats: EngineStats
    path: PlayPath


def play_trace_alone(
    requests: Sequence[TraceRequest],
    engine: Engine,
    *,
    concurrency: int = 1,
    path: PlayPath = PlayPath.AUTO,
) -> TraceAlone:
    """As `play_trace` with one engine, in one go, on the path that is sooner."""
    sent = [arrival.request for arrival in _arrivals(requests, engine.options.block_size)]
    script = Script(sent, most_in_flight=[concurrency] * len(sent))
    play, taken = play_script(engine, script, path)
    hits = sum(sum(outcome.hits.values()) for outcome in play.steps())
    queries = sum(len(request.prompt) for request in sent)
    return TraceAlone(HitTally(hits, queries), play.stats(), taken)


def play_trace_in_time(requests: Sequence[TraceRequest], block_size: int, cluster: Cluster) -> None:
    """As `play_trace`, each request sent at its moment, counted from the first one's.

    The requests are in the order of their arrival, and all tell it.
    """
    moments_ms = [request.arrival_ms or 0.0 for request in requests]
    moments_ns = (round((moment - moments_ms[0]) * 1e6) for moment in moments_ms)
    cluster.play_in_time(zip(moments_ns, _arrivals(requests, block_size), strict=True))


def _arrivals(requests: Sequence[TraceRequest], block_size: int) -> Iterator[Arrival]:
    stops = (run.stop for request in requests for run in request.blocks)
    first_own = block_size * max(stops, default=0)  # ids may be hashes: no number is out of reach
    for number, request in enumerate(requests):
        own = first_own + number * _SPAN
        covered = TokenRuns(
            range(run.start * block_size, run.stop * block_size) for run in request.blocks
        )
        prompt = _first_tokens(covered.runs, request.input_len)
        missing = max(request.input_len - len(covered), 0)
        answer = own + missing
        name, conversation = f"r{number}", request.conversation
        yield Arrival(
            EngineRequest(
                name,
                TokenRuns([*prompt, range(own, answer)]),
                range(answer, answer + max(request.output_len or 1, 1)),
            ),
            affinity=name if conversation is None else str(conversation),
        )


def _first_tokens(runs: Sequence[range], count: int) -> Iterator[range]:
    for run in runs:
        yield run[:count]
        count = max(count - len(run), 0)
