"""Keeps a phase apart from what the cache held before, and says from which state it started.

`auto` tries a salt, then a reset, then other content. A salt counts as accepted only if two probes
with one salt share their blocks and a third one with another salt does not: servers that ignore
unknown fields accept any body (llama.cpp does). A probe at which the server itself fails is sent
again; if it is never answered, `auto` goes on to the next method. On a server that has answered
nothing yet there is nothing to be kept apart from: one probe shows that it takes salted requests,
and leaves no hit in its counters.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import aiohttp

from prefixbench.config.execution import Isolation
from prefixbench.core.errors import EndpointError, ErrorContext, Stage
from prefixbench.run.addresses import Address
from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder, OpeningWord
from prefixbench.run.cache_metrics import collect_prefix_cache_metrics
from prefixbench.run.client import Client, Exchange
from prefixbench.run.metrics_reader import MetricsReader
from prefixbench.run.schedule import Phase

_AUTO_LADDER = (Isolation.SALT, Isolation.RESET, Isolation.CONTENT)

#: vLLM (development mode) and SGLang.
_RESET_ROUTES = ("/reset_prefix_cache", "/flush_cache")

_RESET_TIMEOUT_S = 10.0

#: How often a probe is sent at most.
_PROBE_ATTEMPTS = 3

_HINTS = {
    Isolation.SALT: "it does not heed cache_salt; choose isolation: auto, reset or content",
    Isolation.RESET: "start vLLM with VLLM_SERVER_DEV_MODE=1, or choose isolation: auto",
    Isolation.CONTENT: "the data set has no further opening word; choose isolation: auto",
    Isolation.RESTART: "it has answered requests since it started: restart it and run again, with "
    "one phase a run",
}


#: A word that may open every prompt, and its id where prompts are sent as ids.
OpeningChoice = tuple[str, int | None]


class CacheState(StrEnum):
    """What a phase found in the cache when it began."""

    COLD = "cold"
    SALTED = "salted"
    RESET = "reset"
    RESTARTED = "restarted"
    WARM = "warm"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolated:
    """How a phase was isolated: with which bodies it goes on, and what can be said of the cache.

    `verified`: whether the effect was seen; None where nothing was there to be seen.
    """

    method: Isolation
    cache_state: CacheState
    bodies: BodyBuilder
    verified: bool | None
    detail: str


class _ProbeFailedError(Exception):
    """A probe was not answered, whatever its salt."""


class Isolator:
    """Isolates the phases of one run. `opening_words[0]` is the one the data set uses."""

    def __init__(
        self,
        client: Client,
        metrics: MetricsReader,
        bodies: BodyBuilder,
        *,
        addresses: Sequence[Address],
        asked: Isolation,
        opening_words: Sequence[OpeningChoice],
        probe_words: int,
        is_chat: bool,
        probe_headers: Mapping[str, str],
    ) -> None:
        self._client = client
        self._metrics = metrics
        self._bodies = bodies
        self._addresses = addresses
        self._asked = asked
        self._opening = opening_words[0] if opening_words else None
        self._unused_words = list(opening_words[1:])
        self._probe_words = probe_words
        self._is_chat = is_chat
        self._probe_headers = probe_headers
        self._salt_verified: bool | None = None
        self._salt_tried = False

    async def isolate(self, phase: Phase) -> Isolated:
        """Take the first method that works; raise EndpointError if the one asked for does not."""
        if not phase.isolated or self._asked is Isolation.NONE:
            return await self._as_it_is("the cache is taken as it is")
        ladder = _AUTO_LADDER if self._asked is Isolation.AUTO else (self._asked,)
        for method in ladder:
            done = await self._try(method)
            if done is not None:
                return done
        if self._asked is not Isolation.AUTO:
            raise self._refused()
        return await self._as_it_is("neither salt, reset nor other content is possible here")

    async def _try(self, method: Isolation) -> Isolated | None:
        match method:
            case Isolation.SALT:
                return await self._salted()
            case Isolation.RESET:
                return await self._reset()
            case Isolation.CONTENT:
                return self._other_content()
            case Isolation.RESTART:
                return await self._restarted()
            case _:
                return None

    async def _salted(self) -> Isolated | None:
        if not self._salt_tried:
            is_fresh = await self._queries_so_far() == 0
            try:
                if is_fresh and await self._salt_is_taken():
                    why = "the server had answered nothing before"
                    return self._with_salt(CacheState.SALTED, why)
                self._salt_verified = False if is_fresh else await self._salt_separates()
            except _ProbeFailedError:
                self._salt_verified = False if self._asked is Isolation.AUTO else None
            self._salt_tried = True
        match self._salt_verified:
            case True:
                return self._with_salt(CacheState.SALTED, "another one hides its blocks")
            case False:
                return None
            case None:
                why = "nothing shows whether the server heeds it"
                return self._with_salt(CacheState.UNKNOWN, why)

    def _with_salt(self, state: CacheState, why: str) -> Isolated:
        return Isolated(
            method=Isolation.SALT,
            cache_state=state,
            bodies=self._bodies.isolated_by(salt=_fresh_salt()),
            verified=self._salt_verified,
            detail=f"one salt for the phase; {why}",
        )

    async def _salt_is_taken(self) -> bool:
        salted = self._bodies.isolated_by(salt=_fresh_salt())
        probe = await self._probe(salted, f"Probe {secrets.token_hex(16)}")
        if probe.status is Status.HTTP_ERROR:
            return False
        _check_answered(probe)
        return True

    async def _salt_separates(self) -> bool | None:
        """Whether another salt hides a cached prompt; False where salted requests are refused."""
        one, other = (self._bodies.isolated_by(salt=_fresh_salt()) for _ in range(2))
        text = f"Probe {secrets.token_hex(16)}" + self._probe_words * " cache"
        stored = await self._probe(one, text)
        if stored.status is Status.HTTP_ERROR:
            return False
        _check_answered(stored)
        count = self._counted_hits if stored.cached_tokens is None else self._reported_hits
        again, apart = await count(one, text), await count(other, text)
        return None if not again or apart is None else apart == 0

    async def _reported_hits(self, bodies: BodyBuilder, text: str) -> int | None:
        return _check_answered(await self._probe(bodies, text)).cached_tokens

    async def _counted_hits(self, bodies: BodyBuilder, text: str) -> int | None:
        before = await self._metrics.resting_snapshot()
        _check_answered(await self._probe(bodies, text))
        after = await self._metrics.resting_snapshot()
        tally = collect_prefix_cache_metrics(
            self._metrics.endpoints,
            before.snapshot,
            after.snapshot,
            adapter=self._metrics.adapter_name,
        ).tally
        return None if tally is None else tally.hits

    async def _probe(self, bodies: BodyBuilder, text: str) -> Exchange:
        """Send a probe, again where it failed by chance."""
        for _ in range(_PROBE_ATTEMPTS):
            exchange = await self._client.complete(
                self._addresses[0].requests_url,
                bodies.probe(text, is_chat=self._is_chat),
                headers=self._probe_headers,
            )
            if not _failed_by_chance(exchange):
                break
        return exchange

    async def _reset(self) -> Isolated | None:
        for address in self._addresses:
            if not await self._reset_one(address):
                return None
        return Isolated(
            method=Isolation.RESET,
            cache_state=CacheState.RESET,
            bodies=self._bodies,
            verified=None,
            detail="the server emptied its cache on request",
        )

    async def _reset_one(self, address: Address) -> bool:
        for route in _RESET_ROUTES:
            try:
                page = await self._client.post(address.root_url + route, timeout_s=_RESET_TIMEOUT_S)
            except (TimeoutError, OSError, aiohttp.ClientError):
                continue
            if 200 <= page.status < 300:
                return True
        return False

    def _other_content(self) -> Isolated | None:
        if self._opening is None or not self._unused_words:
            return None
        text, word_id = self._unused_words.pop(secrets.randbelow(len(self._unused_words)))
        opening = OpeningWord(self._opening[0], text, self._opening[1], word_id)
        return Isolated(
            method=Isolation.CONTENT,
            cache_state=CacheState.SALTED,
            bodies=self._bodies.isolated_by(opening=opening),
            verified=None,
            detail="another opening word of one token in every prompt",
        )

    async def _restarted(self) -> Isolated | None:
        queries = await self._queries_so_far()
        if queries:
            return None
        return Isolated(
            method=Isolation.RESTART,
            cache_state=CacheState.RESTARTED,
            bodies=self._bodies,
            verified=None if queries is None else True,
            detail="the server was restarted before the run",
        )

    async def _as_it_is(self, why: str) -> Isolated:
        queries = await self._queries_so_far()
        states = {None: CacheState.UNKNOWN, 0: CacheState.COLD}
        return Isolated(
            method=Isolation.NONE,
            cache_state=states.get(queries, CacheState.WARM),
            bodies=self._bodies,
            verified=None if queries is None else True,
            detail=why if queries is None else f"{why}; its counters stand at {queries} queries",
        )

    async def _queries_so_far(self) -> int | None:
        return self._metrics.queries_so_far(await self._metrics.snapshot())

    def _refused(self) -> EndpointError:
        return EndpointError(
            f"the server cannot be isolated by {self._asked}",
            context=ErrorContext(stage=Stage.RUN, field="execution.isolation"),
            hint=_HINTS.get(self._asked, "choose isolation: auto"),
        )


def _failed_by_chance(exchange: Exchange) -> bool:
    """Whether the server failed before it looked at the prompt; a broken-off answer is cached."""
    return exchange.status is Status.HTTP_ERROR and (exchange.http_status or 0) >= 500


def _check_answered(exchange: Exchange) -> Exchange:
    if exchange.status is not Status.OK:
        raise _ProbeFailedError
    return exchange


def _fresh_salt() -> str:
    return secrets.token_hex(8)
