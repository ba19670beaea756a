"""Requests that are known beforehand, and when each is sent: what can be played in one go."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.stats import EngineStats
from prefixbench.simulator.stepping import CacheContents

#: So many equal steps are taken at once where nobody can arrive.
MANY_STEPS = 1 << 30


@dataclass(frozen=True, slots=True)
class Script:
    """Requests in order of arrival; their ids differ.

    A request is sent before the first step at which all before it were sent, its time has come and
    few enough are on their way: an open loop states times, a closed loop numbers. `arrive_steps`
    counts steps from 0 (none given: all may come at once), `most_in_flight` says how many requests,
    itself included, may be unfinished when it is sent (none given: any number).
    """

    requests: Sequence[EngineRequest]
    arrive_steps: Sequence[int] = ()
    most_in_flight: Sequence[int] = ()

    def each_arrive_step(self) -> Sequence[int]:
        return self.arrive_steps or [0] * len(self.requests)

    def each_most_in_flight(self) -> Sequence[int]:
        return self.most_in_flight or [len(self.requests)] * len(self.requests)


class ReadablePlay:
    """A script played by an engine that nobody else uses, step by step."""

    def __init__(self, engine: Engine, script: Script) -> None:
        self._engine = engine
        self._script = script

    def steps(self) -> Iterator[StepOutcome]:
        """Equal steps in a row are one outcome; a step in which nobody can run counts too.

        Raises LengthError for a request that could never run, when it is sent.
        """
        engine, requests = self._engine, self._script.requests
        arrive_steps = self._script.each_arrive_step()
        most_in_flight = self._script.each_most_in_flight()
        count = len(requests)
        step = sent = finished = 0
        while sent < count or engine.has_work:
            wait = MANY_STEPS
            while sent < count and sent - finished < most_in_flight[sent]:
                if arrive_steps[sent] > step:
                    wait = arrive_steps[sent] - step
                    break
                engine.submit(requests[sent])
                sent += 1
            outcome = engine.step(wait)
            yield outcome
            step += outcome.times
            finished += len(outcome.finished)

    def stats(self) -> EngineStats:
        return self._engine.stats()

    def cache_contents(self) -> CacheContents:
        return self._engine.cache_contents()
