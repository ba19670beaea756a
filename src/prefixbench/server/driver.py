"""Runs one rank's engine on a clock and hands its tokens to the calls that wait for them.

The engine is a discrete-event model: a step says at once what it does and how long that takes. The
driver waits that long on the clock before anyone sees the result, so clients meet the latencies
of the model. Requests that arrive while a step runs join the next one, as in a real engine.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from prefixbench.core.clock import Clock
from prefixbench.core.errors import LengthError
from prefixbench.core.log import event, raised_at
from prefixbench.server.api_error import ApiError
from prefixbench.server.counters import FinishedReason, RankCounters
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import RankLoad

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Token:
    """One token of one choice of a call."""

    choice: int
    token_id: int
    is_last: bool


#: What waiting calls read; None says that the engine stopped.
TokenQueue = asyncio.Queue[Token | None]


@dataclass(slots=True, kw_only=True, eq=False)
class Generation:
    """One sequence on its way through an engine; times are the driver's clock."""

    request: EngineRequest
    choice: int
    arrived_ns: int
    queue: TokenQueue
    cached_tokens: int | None = None
    loaded_tokens: int = 0
    produced: int = 0
    latest_token_ns: int = 0

    @property
    def prompt_len(self) -> int:
        return len(self.request.prompt)


class RankDriver:
    """Owns an engine: its task, its live sequences, its counters.

    `time_scale` engine seconds pass in one second of the clock; 0 means no waiting at all.
    """

    def __init__(
        self, engine: Engine, clock: Clock, *, time_scale: float, rank: int, started_s: float
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._time_scale = time_scale
        self.rank = rank
        self._live: dict[str, Generation] = {}
        self._waiting: set[str] = set()
        self._has_work = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self.counters = RankCounters(started_s)

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name=f"engine-{self.rank}")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    @property
    def is_alive(self) -> bool:
        return not self._stopped

    def load(self) -> RankLoad:
        return RankLoad(
            in_flight=len(self._live),
            running=len(self._live) - len(self._waiting),
            waiting=len(self._waiting),
            kv_usage=self._engine.kv_usage,
        )

    def submit(self, generation: Generation) -> None:
        if self._stopped:
            raise ApiError(500, "the engine has stopped")
        request_id = generation.request.request_id
        try:
            self._engine.submit(generation.request)
        except LengthError as error:
            raise ApiError(400, error.message, param="prompt") from error
        self._live[request_id] = generation
        self._waiting.add(request_id)
        self._has_work.set()

    def abort(self, generation: Generation) -> None:
        """Forget a sequence whose client has gone; what it computed stays cached."""
        request_id = generation.request.request_id
        if self._live.pop(request_id, None) is not None:
            self._waiting.discard(request_id)
            self._engine.abort(request_id)

    def reset_prefix_cache(self) -> bool:
        """Empty the cache; False, and nothing done, while blocks are in use."""
        return self._engine.reset_prefix_cache()

    def restart_counters(self, started_s: float) -> None:
        """Begin to count anew, as a restarted process does."""
        self.counters = RankCounters(started_s)

    async def _run(self) -> None:
        try:
            while True:
                await self._has_work.wait()
                self._has_work.clear()
                await self._drain()
        except Exception as error:
            self._stop(error)

    async def _drain(self) -> None:
        """Step until the engine is idle.

        Each step is due at the end of the one before it, whatever the waiting and the handlers
        took beyond that: the clock falls behind for a moment, never for good.
        """
        due_ns = self._clock.now_ns()
        while self._engine.has_work:
            outcome = self._step()
            if self._time_scale:
                due_ns += round(outcome.duration_ns / self._time_scale)
            await self._wait_until(due_ns)
            self._deliver(outcome)

    async def _wait_until(self, due_ns: int) -> None:
        """Wait, and let the handlers run once even if there is nothing to wait for."""
        remaining_ns = due_ns - self._clock.now_ns()
        if remaining_ns > 0:
            await self._clock.sleep_ns(remaining_ns)
        await asyncio.sleep(0)

    def _step(self) -> StepOutcome:
        """Let the engine do a step and count what was looked up and pushed back."""
        stats, counters = self._engine.stats(), self.counters
        before, below_before = stats.tokens, stats.below
        outcome = self._engine.step()
        counters.queries += stats.queries - before.queries
        counters.hits += stats.hits - before.hits
        counters.external_queries += stats.below.queries - below_before.queries
        counters.external_hits += stats.below.hits - below_before.hits
        counters.preemptions += len(outcome.preempted)
        for request_id, hit_len in outcome.hits.items():
            generation = self._live[request_id]
            generation.loaded_tokens = sum(outcome.tier_hits.get(request_id, {}).values())
            generation.cached_tokens = hit_len + generation.loaded_tokens
        self._waiting.difference_update(outcome.hits, outcome.resume_hits)
        self._waiting.update(outcome.preempted)
        return outcome

    def _deliver(self, outcome: StepOutcome) -> None:
        """Hand out the tokens of a step; a sequence aborted meanwhile gets none."""
        now_ns = self._clock.now_ns()
        finished = set(outcome.finished)
        for request_id in outcome.sampled:
            generation = self._live.get(request_id)
            if generation is not None:
                self._emit(generation, now_ns, is_last=request_id in finished)

    def _emit(self, generation: Generation, now_ns: int, *, is_last: bool) -> None:
        token_id = generation.request.output[generation.produced]
        self._count_token(generation, now_ns)
        generation.produced += 1
        if is_last:
            del self._live[generation.request.request_id]
            self.counters.finished[FinishedReason.LENGTH] += 1
            self.counters.whole_request_s.observe((now_ns - generation.arrived_ns) / 1e9)
        generation.queue.put_nowait(Token(generation.choice, token_id, is_last))

    def _count_token(self, generation: Generation, now_ns: int) -> None:
        counters = self.counters
        counters.generation_tokens += 1
        if generation.produced:
            counters.token_gap_s.observe((now_ns - generation.latest_token_ns) / 1e9)
        else:
            counters.first_token_s.observe((now_ns - generation.arrived_ns) / 1e9)
            counters.prompt_tokens += generation.prompt_len
            counters.cached_tokens += generation.cached_tokens or 0
            counters.loaded_tokens += generation.loaded_tokens
        generation.latest_token_ns = now_ns

    def _stop(self, error: Exception) -> None:
        """Tell everyone who waits that nothing more will come."""
        kind, where = type(error).__name__, raised_at(error)
        event(log, "engine.stopped", level=logging.ERROR, rank=self.rank, kind=kind, where=where)
        self._stopped = True
        for generation in self._live.values():
            generation.queue.put_nowait(None)
        self._live.clear()
        self._waiting.clear()
