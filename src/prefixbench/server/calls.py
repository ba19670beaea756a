"""One client request as the sequences it needs, spread over the ranks and gathered again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Hashable, Sequence
from dataclasses import dataclass, field
from itertools import count

from prefixbench.server.answers import Usage
from prefixbench.server.api_error import ApiError
from prefixbench.server.balance import Balancer
from prefixbench.server.driver import Generation, RankDriver, Token, TokenQueue
from prefixbench.server.speaker import Speaker
from prefixbench.simulator.request import EngineRequest


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

    def usage(self) -> Usage:
        """Each prompt counts once, with what its first choice found cached."""
        generations = [generation for _, generation in self.sequences]
        first_choices = generations[:: self.n]
        return Usage(
            prompt_tokens=sum(generation.prompt_len for generation in first_choices),
            completion_tokens=sum(generation.produced for generation in generations),
            cached_tokens=sum(generation.cached_tokens or 0 for generation in first_choices),
        )

    def abort(self) -> None:
        """Take what is unfinished out of the engines; nothing happens to a finished call."""
        for driver, generation in self.sequences:
            driver.abort(generation)


class Ranks:
    """The data-parallel ranks: one engine and one cache each."""

    def __init__(self, drivers: Sequence[RankDriver], speaker: Speaker) -> None:
        self.drivers = tuple(drivers)
        self._speaker = speaker
        self._balancer = Balancer()
        self._numbers = count()

    def start_call(
        self,
        prompts: Sequence[Sequence[int]],
        *,
        n: int,
        max_tokens: int,
        extra_key: tuple[Hashable, ...],
        pinned_rank: int | None,
        arrived_ns: int,
    ) -> Call:
        """Submit every sequence of a request at once.

        As in vLLM, n choices are n sequences that each look up the whole prompt, and each one is
        balanced by itself unless the client pins a rank.
        """
        call = Call(call_id=f"{next(self._numbers):012x}", n=n)
        for choice in range(len(prompts) * n):
            prompt = prompts[choice // n]
            request = EngineRequest(
                request_id=f"{call.call_id}-{choice}",
                prompt=prompt,
                output=self._speaker.generate(prompt, choice % n, max_tokens),
                extra_key=extra_key,
            )
            generation = Generation(
                request=request, choice=choice, arrived_ns=arrived_ns, queue=call.queue
            )
            driver = self.drivers[self._pick(pinned_rank)]
            driver.submit(generation)
            call.sequences.append((driver, generation))
        return call

    def _pick(self, pinned_rank: int | None) -> int:
        if pinned_rank is not None:
            return pinned_rank
        return self._balancer.pick([driver.load() for driver in self.drivers])
