"""Planned requests through an engine: what would this server, used like this, have cached?

The tokens are made up: requests share exactly what the plan says they share, a head that all have
and the first part of their group's master prefix; everything after it is their own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from prefixbench.core.records import RequestPlan
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.tokens import TokenRuns

# Each shared or own text is a run of its own; the place of a token in it is its place in the
# prompt. No prompt with its output is as long as the distance between two runs.
_STRIDE = 1 << 32
_OWN_BASE = 1 << 60


def engine_requests(plans: Iterable[RequestPlan], *, head_len: int = 0) -> Iterator[EngineRequest]:
    """Requests with the lengths and the sharing of the plans, in their order."""
    masters: dict[str, int] = {}
    for number, plan in enumerate(plans):
        master = masters.setdefault(plan.prefix_group_id, (len(masters) + 1) * _STRIDE)
        own = _OWN_BASE + number * _STRIDE
        shared_len, input_len = plan.planned_prefix_len, plan.input_len
        prompt = TokenRuns(
            (
                range(min(head_len, shared_len)),
                range(master + head_len, master + shared_len),
                range(own + shared_len, own + input_len),
            )
        )
        output = range(own + input_len, own + input_len + plan.output_len)
        yield EngineRequest(plan.request_id, prompt, output)


def closed_loop_hits(
    engine: Engine, requests: Iterable[EngineRequest], concurrency: int = 1
) -> dict[str, int]:
    """Tokens that each request finds cached when `concurrency` clients send one after the other.

    A client sends its next request when its last one has finished. The requests stream: only those
    in flight are held.
    """
    hits: dict[str, int] = {}
    in_flight = 0
    for request in requests:
        while in_flight >= concurrency:
            in_flight -= _step(engine, hits)
        engine.submit(request)
        in_flight += 1
    while engine.has_work:
        _step(engine, hits)
    return hits


def _step(engine: Engine, hits: dict[str, int]) -> int:
    """One step, or many equal ones; returns how many requests finished."""
    outcome = engine.step(limit=1 << 30)
    hits.update(outcome.hits)
    return len(outcome.finished)
