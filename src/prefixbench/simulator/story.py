"""A few requests played against one engine, with what each step did to the blocks."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest


class StoryEntry(NamedTuple):
    """A request, and the step it arrives before; None: when all earlier ones have ended."""

    request: EngineRequest
    arrive_step: int | None = None


class StoryStep(NamedTuple):
    """What happened in step `number` (from 0), and which blocks could no longer be found after it.

    A tree does not tell its blocks apart: `lost` is empty there.
    """

    number: int
    outcome: StepOutcome
    lost: frozenset[Key]


def play_story(engine: Engine, entries: Iterable[StoryEntry]) -> Iterator[StoryStep]:
    """Serve the requests in their order; steps in which nothing could run are passed over.

    Raises LengthError for a request that fits into no cache.
    """
    coming = deque(entries)
    step = 0
    while coming or engine.has_work:
        if not engine.has_work:
            step = max(step, coming[0].arrive_step or 0)
        while coming and _is_due(coming[0], step, engine):
            engine.submit(coming.popleft().request)
        arrival = coming[0].arrive_step if coming else None
        before = _findable(engine)
        outcome = engine.step(1 << 30 if arrival is None else max(arrival - step, 1))
        yield StoryStep(step, outcome, before - _findable(engine))
        step += outcome.times


def _is_due(entry: StoryEntry, step: int, engine: Engine) -> bool:
    return not engine.has_work if entry.arrive_step is None else entry.arrive_step <= step


def _findable(engine: Engine) -> frozenset[Key]:
    view = engine.pool_view()
    return frozenset() if view is None else view.findable
