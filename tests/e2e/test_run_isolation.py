"""Isolation against servers of many habits: what is tried, what counts as done, what is said."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from canned_server import CannedServer, Request, canned_server
from prefixbench.config.execution import Isolation
from prefixbench.core.clock import RealClock
from prefixbench.core.errors import EndpointError
from prefixbench.run.addresses import resolve_address
from prefixbench.run.bodies import BodyBuilder
from prefixbench.run.client import Client
from prefixbench.run.isolation import CacheState, Isolated, Isolator
from prefixbench.run.metrics_reader import MetricsReader
from prefixbench.run.schedule import Phase

COLD = Phase(name="cold", round=1, isolated=True, warmed=False)


@dataclass
class Habits:
    """A server that caches whole prompts; how it treats salts, resets and counting.

    With `queries` at 0 it has answered nothing yet.
    """

    heeds_salt: bool = True
    refuses_salt: bool = False
    resets: bool = False
    tells_cached_tokens: bool = True
    counts: bool = True
    failing: frozenset[int] = frozenset()
    completions: int = 0
    seen: set[Any] = field(default_factory=set)
    queries: int = 40
    hits: int = 0

    async def answer(self, request: Request) -> None:
        match request.path:
            case "/v1/completions":
                await self._complete(request)
            case "/reset_prefix_cache" if self.resets:
                self.seen.clear()
                await request.whole(b"")
            case "/metrics" if self.counts:
                page = (
                    f"vllm:prefix_cache_queries_total {self.queries}\n"
                    f"vllm:prefix_cache_hits_total {self.hits}\n"
                )
                await request.whole(page.encode(), content_type="text/plain")
            case _:
                await request.whole(b'{"detail": "Not Found"}', status=404)

    async def _complete(self, request: Request) -> None:
        self.completions += 1
        if self.completions in self.failing:
            await request.whole(b'{"error": {"message": "busy"}}', status=500)
            return
        salt = request.body.get("cache_salt")
        if salt and self.refuses_salt:
            await request.whole(b'{"error": {"message": "unknown field"}}', status=400)
            return
        key = (request.body["prompt"], salt if self.heeds_salt else None)
        cached = 32 if key in self.seen else 0
        self.seen.add(key)
        self.queries += 40
        self.hits += cached
        usage: dict[str, Any] = {"prompt_tokens": 40, "completion_tokens": 1}
        if self.tells_cached_tokens:
            usage["prompt_tokens_details"] = {"cached_tokens": cached}
        await request.whole(orjson.dumps({"choices": [{"text": "x"}], "usage": usage}))


@asynccontextmanager
async def isolator(
    habits: Habits, asked: Isolation = Isolation.AUTO, words: tuple[str, ...] = ("The", "Af", "Al")
) -> AsyncIterator[tuple[Isolator, CannedServer]]:
    clock = RealClock()
    async with canned_server(habits.answer) as server, Client(clock, timeout_s=5) as client:
        metrics = MetricsReader(
            client, [server.url + "/metrics"], clock=clock, adapter=None, idle_timeout_s=1
        )
        made = Isolator(
            client,
            metrics,
            BodyBuilder(model="m"),
            addresses=[resolve_address(server.url, is_chat=False)],
            asked=asked,
            opening_words=[(word, None) for word in words],
            probe_words=32,
            is_chat=False,
            probe_headers={},
        )
        yield made, server


async def isolate(habits: Habits, asked: Isolation = Isolation.AUTO, **more: Any) -> Isolated:
    async with isolator(habits, asked, **more) as (made, _):
        return await made.isolate(COLD)


async def test_a_salt_that_separates_is_taken_and_fresh_for_every_phase() -> None:
    async with isolator(Habits()) as (made, server):
        first, second = await made.isolate(COLD), await made.isolate(COLD)
        probes = [request for request in server.requests if request.path == "/v1/completions"]
    assert (first.method, first.cache_state) == (Isolation.SALT, CacheState.SALTED)
    assert first.verified is True
    assert first.bodies.salt
    assert second.bodies.salt
    assert first.bodies.salt != second.bodies.salt
    assert len(probes) == 3  # looked at once a run


async def test_a_server_that_answered_nothing_is_asked_once_and_hits_nothing() -> None:
    habits = Habits(queries=0)
    async with isolator(habits) as (made, _):
        first = await made.isolate(COLD)
        assert (first.method, first.cache_state) == (Isolation.SALT, CacheState.SALTED)
        assert first.verified is None
        assert (habits.queries, habits.hits) == (40, 0)
        second = await made.isolate(COLD)  # now there is something to be kept apart from
    assert (second.cache_state, second.verified) == (CacheState.SALTED, True)


async def test_a_salt_that_a_fresh_server_ignores_is_found_out_in_the_next_phase() -> None:
    async with isolator(Habits(queries=0, heeds_salt=False, resets=True)) as (made, _):
        methods = [(await made.isolate(COLD)).method for _ in range(2)]
    assert methods == [Isolation.SALT, Isolation.RESET]


async def test_a_fresh_server_that_refuses_salt_is_reset() -> None:
    taken = await isolate(Habits(queries=0, refuses_salt=True, resets=True))
    assert taken.method is Isolation.RESET


async def test_probes_are_never_sent_with_the_salt_of_a_phase() -> None:
    async with isolator(Habits()) as (made, server):
        taken = await made.isolate(COLD)
        salts = {request.body["cache_salt"] for request in server.requests if request.body}
    assert len(salts) == 2
    assert taken.bodies.salt not in salts


@pytest.mark.parametrize("tells", [True, False], ids=["answers", "counters"])
@pytest.mark.parametrize("number", [1, 2, 3])
async def test_a_probe_at_which_the_server_fails_is_sent_again(number: int, tells: bool) -> None:
    taken = await isolate(Habits(failing=frozenset({number}), tells_cached_tokens=tells))
    assert (taken.cache_state, taken.verified) == (CacheState.SALTED, True)


@pytest.mark.parametrize("first", [1, 2, 3])
async def test_where_probes_are_never_answered_the_next_method_is_taken(first: int) -> None:
    failing = Habits(failing=frozenset(range(first, 99)), resets=True)
    assert (await isolate(failing)).cache_state is CacheState.RESET


async def test_a_salt_that_is_ignored_is_not_believed() -> None:
    taken = await isolate(Habits(heeds_salt=False, resets=True))
    assert (taken.method, taken.cache_state) == (Isolation.RESET, CacheState.RESET)
    assert taken.bodies.salt is None


async def test_a_salt_that_is_refused_leads_on() -> None:
    assert (await isolate(Habits(refuses_salt=True, resets=True))).method is Isolation.RESET


async def test_without_salt_and_reset_the_content_changes_for_every_phase() -> None:
    async with isolator(Habits(heeds_salt=False)) as (made, _):
        taken = [await made.isolate(COLD) for _ in range(2)]
    assert [one.method for one in taken] == [Isolation.CONTENT] * 2
    words = {one.bodies.opening.sent for one in taken if one.bodies.opening}
    assert words == {"Af", "Al"}


async def test_where_nothing_works_the_state_is_said_as_it_is() -> None:
    taken = await isolate(Habits(heeds_salt=False), words=())
    assert (taken.method, taken.cache_state) == (Isolation.NONE, CacheState.WARM)


async def test_counters_witness_where_answers_are_silent() -> None:
    assert (await isolate(Habits(tells_cached_tokens=False))).verified is True
    ignored = await isolate(Habits(tells_cached_tokens=False, heeds_salt=False, resets=True))
    assert ignored.method is Isolation.RESET


async def test_a_salt_without_a_witness_leaves_the_state_unknown() -> None:
    taken = await isolate(Habits(tells_cached_tokens=False, counts=False))
    assert (taken.method, taken.cache_state) == (Isolation.SALT, CacheState.UNKNOWN)
    assert taken.verified is None
    assert taken.bodies.salt


@pytest.mark.parametrize(
    ("asked", "habits"),
    [
        (Isolation.SALT, Habits(refuses_salt=True, resets=True)),
        (Isolation.RESET, Habits()),
        (Isolation.RESTART, Habits(queries=40)),
    ],
)
async def test_a_method_that_was_asked_for_is_never_replaced(
    asked: Isolation, habits: Habits
) -> None:
    with pytest.raises(EndpointError, match=f"isolated by {asked}"):
        await isolate(habits, asked)


async def test_content_is_refused_where_no_other_word_is_left() -> None:
    with pytest.raises(EndpointError, match="isolated by content"):
        await isolate(Habits(), Isolation.CONTENT, words=("The",))


@pytest.mark.parametrize(
    ("habits", "state"),
    [
        (Habits(queries=0), CacheState.COLD),
        (Habits(queries=40), CacheState.WARM),
        (Habits(counts=False), CacheState.UNKNOWN),
    ],
)
async def test_a_cache_taken_as_it_is(habits: Habits, state: CacheState) -> None:
    assert (await isolate(habits, Isolation.NONE)).cache_state is state
    async with isolator(habits) as (made, _):
        hot = Phase(name="hot", round=1, isolated=False, warmed=True)
        assert (await made.isolate(hot)).cache_state is state
