"""One client request as the sequences it needs, spread over the ranks and gathered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count

from prefixbench.server.answers import Usage
from prefixbench.server.api_error import ApiError
from prefixbench.server.driver import Generation, RankDriver, Token, TokenQueue
from prefixbench.server.speaker import Speaker
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival, LeastLoaded


@dataclass(slots=True, kw_only=True)
class Call:
    """The sequences of one request, n for each prompt, in the order of their choices."""

    call_id: str
    n: int
    queue: TokenQueue = field(default_factory=asyncio.Queue)
    sequences: list[tuple[RankDriver, Generation]] = field(default_factory=list)

    async def tokens(self) -> AsyncIterator[Token]:
        """Tokens of all choices as they come out."""
        unfinished = len(self.sequences)
        while unfinished:
            token = await self.queue.get()
            if token is None:
                raise ApiError(500, "the engine has stopped")
            unfinished -= token.is_last
            yield token

    def prompt_of(self, choice: int) -> Sequence[int]:
        """The token ids that a choice goes on from."""
        return self.sequences[choice][1].request.prompt

    def usage(self) -> Usage:
        """Each prompt counts once, with what its first choice found cached."""
        generations = [generation for _, generation in self.sequences]
        first_choices = generations[:: self.n]
        return Usage(
            prompt_tokens=sum(generation.prompt_len for generation in first_choices),
            completion_tokens=sum(generation.produced for generation in generations),
            cached_tokens=sum(generation.cached_tokens or 0 for generation in first_choices),
        )

    def rank(self) -> int | None:
        """The rank that serves all sequences; None where several do."""
        ranks = {driver.rank for driver, _ in self.sequences}
        return ranks.pop() if len(ranks) == 1 else None

    def abort(self) -> None:
        """Take what is unfinished out of the engines; nothing happens to a finished call."""
        for driver, generation in self.sequences:
            driver.abort(generation)


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What a call is to generate: n choices of `max_tokens` tokens for each prompt.

    `extra_key` separates caches besides the tokens; `pinned_rank` None leaves the rank open.
    """

    prompts: Sequence[Sequence[int]]
    n: int
    max_tokens: int
    extra_key: tuple[Hashable, ...]
    pinned_rank: int | None
    arrived_ns: int

    @property
    def choices(self) -> range:
        return range(len(self.prompts) * self.n)


class Ranks:
    """The data-parallel ranks: one engine and one cache each."""

    def __init__(self, drivers: Sequence[RankDriver], speaker: Speaker) -> None:
        self._drivers = tuple(drivers)
        self._speaker = speaker
        self._router = LeastLoaded()
        self._numbers = count()

    def start(self, job: Job) -> Call:
        """Submit every sequence of a call at once, or none.

        As in vLLM, n choices are n sequences that each look up the whole prompt, and each one is
        balanced by itself unless the client pins a rank.
        """
        call = Call(call_id=f"{next(self._numbers):012x}", n=job.n)
        try:
            for choice in job.choices:
                generation = self._generation(call, job, choice)
                driver = self._pick(generation.request, job.pinned_rank)
                driver.submit(generation)
                call.sequences.append((driver, generation))
        except ApiError:
            call.abort()
            raise
        return call

    def _generation(self, call: Call, job: Job, choice: int) -> Generation:
        prompt_number, choice_of_prompt = divmod(choice, job.n)
        prompt = job.prompts[prompt_number]
        request = EngineRequest(
            request_id=f"{call.call_id}-{choice}",
            prompt=prompt,
            output=self._speaker.generate(prompt, choice_of_prompt, job.max_tokens),
            extra_key=job.extra_key,
        )
        return Generation(
            request=request, choice=choice, arrived_ns=job.arrived_ns, queue=call.queue
        )

    def _pick(self, request: EngineRequest, pinned_rank: int | None) -> RankDriver:
        if pinned_rank is not None:
            return self._drivers[pinned_rank]
        loads = [driver.load() for driver in self._drivers]
        return self._drivers[self._router.pick(Arrival(request), loads)]
