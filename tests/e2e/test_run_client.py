"""The client against a server that answers byte for byte what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import orjson
import pytest

from canned_server import (
    DONE,
    Answer,
    CannedServer,
    Request,
    canned_server,
    text_event,
    usage_event,
)
from prefixbench.core.clock import RealClock
from prefixbench.run.answer import Status
from prefixbench.run.client import Client, Exchange
from prefixbench.run.exposition import ScrapeProblem

PROMPT = "Once upon a time there was a prompt that nobody was allowed to repeat anywhere."
BODY = orjson.dumps({"prompt": PROMPT, "max_tokens": 2})


@asynccontextmanager
async def talking_to(
    answer: Answer, *, timeout_s: float = 5, **options: Any
) -> AsyncIterator[tuple[Client, CannedServer]]:
    async with (
        canned_server(answer) as server,
        Client(RealClock(), timeout_s=timeout_s, **options) as client,
    ):
        yield client, server


async def exchange(answer: Answer, *, timeout_s: float = 5, **options: Any) -> Exchange:
    async with talking_to(answer, timeout_s=timeout_s, **options) as (client, server):
        return await client.complete(server.url + "/v1/completions", BODY)


async def test_a_stream_is_measured_piece_by_piece() -> None:
    async def answer(request: Request) -> None:
        await request.stream(
            text_event("a"),
            text_event("b", finish="length"),
            usage_event(20, 2, 16),
            DONE,
            pause_s=0.03,
        )

    got = await exchange(answer)
    assert got.status is Status.OK
    assert got.error is None
    assert (got.prompt_tokens, got.cached_tokens, got.output_tokens) == (20, 16, 2)
    assert got.first_token_ns is not None
    assert got.sent_ns < got.first_token_ns < got.finished_ns
    assert len(got.gaps_ns) == 1
    assert got.gaps_ns[0] >= 20_000_000


async def test_events_cut_in_the_middle_are_put_together() -> None:
    stream = text_event("a") + text_event("b", finish="length") + usage_event(20, 2) + DONE

    async def answer(request: Request) -> None:
        await request.stream(*(stream[n : n + 7] for n in range(0, len(stream), 7)))

    got = await exchange(answer)
    assert (got.status, got.output_tokens, len(got.gaps_ns)) == (Status.OK, 2, 1)


async def test_an_answer_of_one_piece_has_a_time_to_first_token() -> None:
    async def answer(request: Request) -> None:
        await request.stream(text_event("all", finish="length") + usage_event(20, 1) + DONE)

    assert (await exchange(answer)).first_token_ns is not None


async def test_an_answer_that_is_not_streamed_has_none() -> None:
    async def answer(request: Request) -> None:
        await request.whole(b'{"choices": [{"text": "x"}], "usage": {"prompt_tokens": 20}}')

    got = await exchange(answer)
    assert (got.status, got.first_token_ns, got.prompt_tokens) == (Status.OK, None, 20)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (400, {"error": {"message": f"cannot read {PROMPT!r}", "code": 400}}),
        (422, {"detail": [{"input": PROMPT}]}),
        (500, {"message": PROMPT * 500}),
    ],
)
async def test_an_error_status_is_kept_and_the_prompt_is_not(status: int, body: Any) -> None:
    async def answer(request: Request) -> None:
        await request.whole(orjson.dumps(body), status=status)

    got = await exchange(answer)
    assert (got.status, got.http_status) == (Status.HTTP_ERROR, status)
    assert got.error
    assert len(got.error) <= 200
    assert "upon a time" not in got.error


async def test_an_error_inside_a_stream_is_an_http_error() -> None:
    async def answer(request: Request) -> None:
        error = b'data: {"error": {"message": "engine died", "code": 503}}\n\n'
        await request.stream(text_event("a"), error, DONE)

    got = await exchange(answer)
    assert (got.status, got.http_status, got.error) == (Status.HTTP_ERROR, 503, "engine died")
    assert got.first_token_ns is not None


async def test_a_server_that_hangs_is_a_timeout() -> None:
    async def answer(request: Request) -> None:
        await request.stream(text_event("a"), pause_s=3)

    got = await exchange(answer, timeout_s=0.2)
    assert got.status is Status.TIMEOUT
    assert got.first_token_ns is not None
    assert got.finished_ns - got.sent_ns >= 200_000_000


async def test_a_server_that_hangs_up_before_and_inside_an_answer() -> None:
    async def at_once(request: Request) -> None:
        request.hang_up()

    async def half_way(request: Request) -> None:
        await request.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await request.piece(text_event("a"))
        request.hang_up()

    async def cleanly_but_early(request: Request) -> None:
        await request.stream(text_event("a"))

    for answer in (at_once, half_way, cleanly_but_early):
        assert (await exchange(answer)).status is Status.DISCONNECTED


async def test_nobody_there_is_disconnected_and_shows_no_address() -> None:
    async with canned_server(lambda request: request.end()) as server:
        url = server.url
    async with Client(RealClock(), timeout_s=5) as client:
        got = await client.complete(url, BODY)
    assert got.status is Status.DISCONNECTED
    assert "127.0.0.1" not in (got.error or "")


@pytest.mark.parametrize("content", [b"data: {broken\n\n", b"data: 7\n\n"])
async def test_other_content_is_malformed(content: bytes) -> None:
    async def answer(request: Request) -> None:
        await request.stream(text_event("a"), content, DONE)

    assert (await exchange(answer)).status is Status.MALFORMED


async def test_a_page_instead_of_a_stream_is_malformed() -> None:
    async def answer(request: Request) -> None:
        await request.whole(b"<html>sign in</html>", content_type="text/html")

    assert (await exchange(answer)).status is Status.MALFORMED


async def test_something_that_is_not_http_is_malformed() -> None:
    async def answer(request: Request) -> None:
        await request.send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n")
        request.hang_up()

    assert (await exchange(answer)).status is Status.MALFORMED


async def test_connections_are_kept() -> None:
    async def answer(request: Request) -> None:
        await request.stream(text_event("a", finish="length"), DONE)

    async with talking_to(answer) as (client, server):
        for _ in range(5):
            await client.complete(server.url, BODY)
        assert len(server.requests) == 5
        assert server.connections == 1


async def test_headers_go_out_and_their_values_never_come_back_in_an_error() -> None:
    async def answer(request: Request) -> None:
        await request.whole(request.headers["authorization"].encode(), status=401)

    async with talking_to(answer, headers={"Authorization": "Bearer sk-12345"}) as (client, server):
        got = await client.complete(server.url, BODY, headers={"X-data-parallel-rank": "3"})
    assert server.requests[0].headers["x-data-parallel-rank"] == "3"
    assert "sk-12345" not in (got.error or "")


async def test_a_metrics_page_elsewhere_never_sees_the_key() -> None:
    async def answer(request: Request) -> None:
        await request.whole(b"a 1\n", content_type="text/plain")

    async with canned_server(answer) as own, canned_server(answer) as other:
        key = {"Authorization": "Bearer sk-12345"}
        async with Client(RealClock(), timeout_s=5, headers=key, origins=[own.url]) as client:
            for server in (own, other):
                await client.scrape(server.url + "/metrics")
    assert own.requests[0].headers["authorization"] == "Bearer sk-12345"
    assert "authorization" not in other.requests[0].headers


async def _moved(request: Request, status: int, place: str) -> None:
    head = f"HTTP/1.1 {status} Moved\r\nLocation: {place}\r\nContent-Length: 0\r\n\r\n"
    await request.send(head.encode())


@pytest.mark.parametrize("status", [302, 307, 308])
async def test_prompts_and_keys_follow_no_redirect(status: int) -> None:
    async def elsewhere(request: Request) -> None:
        await request.whole(b"a 1\n", content_type="text/plain")

    async with canned_server(elsewhere) as other:

        async def answer(request: Request) -> None:
            await _moved(request, status, other.url + request.path)

        key = {"X-Api-Key": "sk-12345"}
        async with canned_server(answer) as own:
            origins = [own.url, other.url]
            async with Client(RealClock(), timeout_s=5, headers=key, origins=origins) as client:
                got = await client.complete(own.url + "/v1/completions", BODY)
                page = await client.get(own.url + "/v1/models")
    assert (got.status, got.http_status) == (Status.HTTP_ERROR, status)
    assert page.status == status
    assert other.requests == []


async def test_a_page_that_moved_on_its_own_server_is_found() -> None:
    async def answer(request: Request) -> None:
        if request.path == "/metrics":
            await _moved(request, 307, "/metrics/")
        elif request.path == "/metrics/":
            await request.whole(b"a 1\n", content_type="text/plain")
        else:
            await _moved(request, 302, request.path)  # for ever

    async with talking_to(answer) as (client, server):
        assert (await client.metrics_text(server.url + "/metrics")) == "a 1\n"
        assert (await client.get(server.url + "/loop")).status == 302


async def test_our_own_words_are_not_taken_for_the_prompt() -> None:
    async def answer(request: Request) -> None:
        await request.whole(b"[]")

    async with talking_to(answer) as (client, server):
        body = orjson.dumps({"prompt": "Nothing of the expected form here"})
        got = await client.complete(server.url, body)
    assert got.error == "the answer is not of the expected form"


async def test_a_body_of_many_megabytes_arrives_whole() -> None:
    text = "long " * 600_000

    async def answer(request: Request) -> None:
        assert request.body["prompt"] == text
        await request.stream(text_event("a", finish="length"), DONE)

    async with talking_to(answer) as (client, server):
        got = await client.complete(server.url, orjson.dumps({"prompt": text}))
    assert got.status is Status.OK


async def test_a_proxy_is_not_used_for_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")

    async def answer(request: Request) -> None:
        await request.stream(text_event("a", finish="length"), DONE)

    assert (await exchange(answer, proxy="http://127.0.0.1:9")).status is Status.OK


async def test_hanging_up_ends_what_is_in_flight() -> None:
    async def answer(request: Request) -> None:
        await request.stream(text_event("a"), pause_s=30)

    async with talking_to(answer) as (client, server):
        flight = asyncio.create_task(client.complete(server.url, BODY))
        await asyncio.sleep(0.1)
        client.hang_up()
        assert (await asyncio.wait_for(flight, 2)).status is Status.DISCONNECTED
        assert (await client.complete(server.url, BODY)).status is Status.DISCONNECTED


@pytest.mark.parametrize(
    ("status", "body", "problem"),
    [
        (400, b"bad", ScrapeProblem.BAD_REQUEST),
        (404, b"no", ScrapeProblem.NOT_FOUND),
        (503, b"no", ScrapeProblem.HTTP_ERROR),
        (200, b"", ScrapeProblem.EMPTY),
        (200, b"<html></html>", ScrapeProblem.HTML),
        (200, b"a 1\nb{", ScrapeProblem.TRUNCATED),
    ],
)
async def test_a_metrics_page_that_is_none(
    status: int, body: bytes, problem: ScrapeProblem
) -> None:
    async def answer(request: Request) -> None:
        await request.whole(body, status=status, content_type="text/plain")

    async with talking_to(answer) as (client, server):
        scrape = await client.scrape(server.url + "/metrics")
    assert scrape.page is None
    assert scrape.error is not None
    assert scrape.error.problem is problem


async def test_a_metrics_address_where_nobody_listens() -> None:
    async with Client(RealClock(), timeout_s=5) as client:
        scrape = await client.scrape("http://127.0.0.1:9/metrics")
    assert scrape.error is not None
    assert scrape.error.problem is ScrapeProblem.UNREACHABLE
    assert "127.0.0.1" not in scrape.error.render()
