"""Errors as OpenAI error objects, and nothing of a prompt in any of them or in a log."""

from __future__ import annotations

import asyncio
import json
import logging
from io import BytesIO
from typing import Any

import pytest

from serving import Client, served

TEXT = "The lamp stood by the long road and the old man went home"


BAD_COMPLETIONS: list[tuple[dict[str, Any], int, str]] = [
    ({"prompt": ""}, 400, "prompt"),
    ({"prompt": []}, 400, "prompt"),
    ({"prompt": [[1, 2], []]}, 400, "prompt"),
    ({"prompt": ["a", [1]]}, 400, "prompt"),
    ({"prompt": [1, -1]}, 400, "prompt"),
    ({"prompt": [1, 2.5]}, 400, "prompt"),
    ({"prompt": [1, 10**9]}, 400, "prompt"),
    ({"prompt": {"text": "a"}}, 400, "prompt"),
    ({}, 400, "prompt"),
    ({"prompt": "a", "max_tokens": 0}, 400, "max_tokens"),
    ({"prompt": "a", "max_tokens": "many"}, 400, "max_tokens"),
    ({"prompt": [1] * 60, "max_tokens": 5}, 400, "max_tokens"),
    ({"prompt": [1] * 64, "max_tokens": 1}, 400, "prompt"),
    ({"prompt": "a", "n": 0}, 400, "n"),
    ({"prompt": "a", "stream": "yes"}, 400, "stream"),
    ({"prompt": "a", "stream_options": {"include_usage": True}}, 400, "stream_options"),
    ({"prompt": "a", "cache_salt": ""}, 400, "cache_salt"),
    ({"prompt": "a", "cache_salt": 7}, 400, "cache_salt"),
    ({"prompt": "a", "echo": True}, 400, "echo"),
    ({"prompt": "a", "model": "other"}, 404, "model"),
]
BAD_MESSAGES: list[Any] = [
    None,
    [],
    "hi",
    [{"content": "x"}],
    [{"role": "user", "content": 5}],
]


async def test_bad_completions_are_refused_and_count_nothing() -> None:
    async with served(max_model_len=64) as client:
        for body, status, param in BAD_COMPLETIONS:
            error = (await client.post("/v1/completions", body, status=status))["error"]
            assert (error["code"], error["param"]) == (status, param), body
            assert error["type"] == {400: "BadRequestError", 404: "NotFoundError"}[status]
        assert await client.metric("vllm:prefix_cache_queries_total") == 0
        assert await client.metric("vllm:num_requests_running") == 0


async def test_bad_messages_are_refused() -> None:
    async with served() as client:
        for messages in BAD_MESSAGES:
            body = {"messages": messages}
            error = (await client.post("/v1/chat/completions", body, status=400))["error"]
            assert error["param"] == "messages", messages


async def test_the_longest_request_fits_and_one_token_more_does_not() -> None:
    async with served(max_model_len=64) as client:
        assert (await client.complete([1] * 60, max_tokens=4))["usage"]["total_tokens"] == 64
        await client.post("/v1/completions", {"prompt": [1] * 60, "max_tokens": 5}, status=400)


async def test_a_prompt_that_the_engine_cannot_hold_takes_its_neighbours_back() -> None:
    """A radix cache needs a page beside a request, which the context length does not show."""
    options = {"profile": "sglang-0.5", "block_size": 1, "capacity_blocks": 64}
    async with served(**options, time_scale=0.1) as client:
        body = {"prompt": [[1, 2, 3], [1] * 60], "max_tokens": 4}
        error = (await client.post("/v1/completions", body, status=400))["error"]
        assert error["param"] == "prompt"
        assert await client.metric("vllm:num_requests_running") == 0
        assert await client.metric("vllm:num_requests_waiting") == 0
        assert (await client.complete([1] * 50, max_tokens=4))["usage"]["completion_tokens"] == 4


async def test_ids_outside_the_vocabulary_cannot_be_read() -> None:
    async with served() as client:
        error = (await client.post("/detokenize", {"tokens": [10**9]}, status=400))["error"]
        assert error["param"] == "tokens"


async def test_errors_before_any_route_have_the_same_form() -> None:
    async with served() as client:
        for path, data, status in (
            ("/v1/completions", b"{", 400),
            ("/v1/completions", b"[]", 400),
            ("/v1/nothing", b"{}", 404),
            ("/metrics", b"{}", 405),
        ):
            async with client.session.post(client.url + path, data=data) as answer:
                assert answer.status == status
                assert (await answer.json())["error"]["code"] == status


async def test_a_rank_that_does_not_exist_is_refused() -> None:
    async with served(dp_size=2) as client:
        for rank in ("2", "-1", "x"):
            headers = {"X-data-parallel-rank": rank}
            await client.post("/v1/completions", {"prompt": "a"}, status=400, headers=headers)


async def test_a_body_of_64_megabytes_is_read() -> None:
    async with served() as client:
        body = json.dumps({"prompt": TEXT, "max_tokens": 1, "user": "x" * 64_000_000}).encode()
        url = client.url + "/v1/completions"
        async with client.session.post(url, data=BytesIO(body)) as answer:
            assert answer.status == 200
            assert (await answer.json())["usage"]["completion_tokens"] == 1


async def test_no_text_of_a_prompt_is_logged_or_told(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    secret = "xylophone"
    async with served(max_model_len=64) as client:
        await client.complete(secret, cache_salt=secret)
        bodies: list[dict[str, Any]] = [
            {"prompt": secret * 100},
            {"prompt": "a", "model": secret},
            {"prompt": {"x": secret}},
            {"prompt": secret, "n": secret},
        ]
        for body in bodies:
            async with client.session.post(client.url + "/v1/completions", json=body) as answer:
                assert answer.status in (400, 404)
                assert secret not in await answer.text()
        async with client.session.post(client.url + "/v1/completions", data=secret) as answer:
            assert answer.status == 400
            assert secret not in await answer.text()
    assert secret not in caplog.text


async def test_an_unexpected_error_is_an_answer_and_an_event_without_its_text(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def explode(*_: Any, **__: Any) -> None:
        raise ValueError("xylophone")

    monkeypatch.setattr("prefixbench.server.generation.call_options", explode)
    async with served() as client:
        error = await client.post("/v1/completions", {"prompt": "a"}, status=500)
    assert error["error"]["type"] == "InternalServerError"
    assert "xylophone" not in error["error"]["message"]
    assert "request.failed kind=ValueError where=test_server_errors.py:" in caplog.text
    assert "xylophone" not in caplog.text


async def test_an_engine_that_breaks_answers_everyone_and_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with served(time_scale=1.0) as client:
        waiting = asyncio.create_task(_status(client, {"prompt": "a", "max_tokens": 500}))
        await client.wait_until("vllm:num_requests_running", 1)
        monkeypatch.setattr("prefixbench.simulator.engine.Engine.step", _break)
        assert await asyncio.wait_for(waiting, 10) == 500
        await client.get("/health", status=503)
        assert await _status(client, {"prompt": "a"}) == 500


def _break(_: Any) -> None:
    raise AssertionError("broken on purpose")


async def _status(client: Client, body: dict[str, Any]) -> int:
    async with client.session.post(client.url + "/v1/completions", json=body) as answer:
        await answer.read()
        return answer.status
