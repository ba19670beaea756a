"""Every fault does what its row says, so that tests of runner and report can rely on it."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import ClientError, ServerDisconnectedError
from prometheus_client.parser import text_string_to_metric_families

from serving import Client, served, token_prompt

PROMPT = token_prompt(65)


async def _statuses(client: Client, count: int) -> list[int]:
    statuses = []
    for _ in range(count):
        body = {"prompt": PROMPT, "max_tokens": 1}
        async with client.session.post(client.url + "/v1/completions", json=body) as answer:
            statuses.append(answer.status)
    return statuses


async def test_http_error_without_a_value_strikes_every_request() -> None:
    async with served(faults=("http_error",)) as client:
        assert await _statuses(client, 3) == [500, 500, 500]
        assert await client.metric("vllm:prefix_cache_queries_total") == 0


async def test_http_error_with_a_count_strikes_the_first_requests() -> None:
    async with served(faults=("http_error=2",)) as client:
        assert await _statuses(client, 4) == [500, 500, 200, 200]


async def test_http_error_with_a_share_strikes_the_same_requests_each_time() -> None:
    rows = []
    for _ in range(2):
        async with served(faults=("http_error=0.25",)) as client:
            rows.append(await _statuses(client, 100))
    assert rows[0] == rows[1]
    assert 15 <= rows[0].count(500) <= 35


async def test_timeout_never_answers_and_lets_the_server_stop() -> None:
    async with served(faults=("timeout=1",)) as client:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await client.complete(PROMPT)
        assert await client.cached(PROMPT) == 0


@pytest.mark.parametrize("stream", [False, True])
async def test_disconnect_cuts_the_answer_and_counts_the_queries(stream: bool) -> None:
    async with served(faults=("disconnect=1",)) as client:
        with pytest.raises((ClientError, ServerDisconnectedError)):
            await client.complete(PROMPT, max_tokens=9, stream=stream)
        await client.wait_until("vllm:num_requests_running", 0)
        assert await client.metric("vllm:prefix_cache_queries_total") == 65
        assert await client.metric("vllm:request_success_total") == 0
        assert await client.cached(PROMPT) == 64


@pytest.mark.parametrize(("fault", "status"), [("metrics_400", 400), ("metrics_404", 404)])
async def test_metrics_with_an_error_status(fault: str, status: int) -> None:
    async with served(faults=(fault,)) as client:
        await client.get("/metrics", status=status)
        assert await client.cached(PROMPT) == 0


async def test_metrics_as_html() -> None:
    async with served(faults=("metrics_html",)) as client:
        assert (await client.get("/metrics")).startswith("<!doctype html>")


async def test_metrics_empty() -> None:
    async with served(faults=("metrics_empty",)) as client:
        assert await client.get("/metrics") == ""


async def test_metrics_truncated_cannot_be_parsed() -> None:
    async with served(faults=("metrics_truncated",)) as client:
        page = await client.get("/metrics")
        assert page.startswith("# HELP")
        with pytest.raises(ValueError):  # noqa: PT011 - the parser has no better word
            list(text_string_to_metric_families(page))


async def test_counter_reset_begins_anew_after_n_requests() -> None:
    async with served(faults=("counter_reset=2",)) as client:
        start = await client.metric("process_start_time_seconds")
        created = await client.metric("vllm:prefix_cache_queries_created")
        seen = []
        for _ in range(3):
            await client.complete(PROMPT)
            seen.append(await client.metric("vllm:prefix_cache_queries_total"))
        assert seen == [65, 0, 65]
        assert await client.metric("process_start_time_seconds") > start
        assert await client.metric("vllm:prefix_cache_queries_created") > created
        assert await client.cached(PROMPT) == 64


async def test_block_size_label_states_another_size() -> None:
    async with served(faults=("block_size_label=128",)) as client:
        assert await client.metric("vllm:cache_config_info", block_size="128") == 1
        hits = [await client.cached(PROMPT), await client.cached(PROMPT)]
        assert hits == [0, 64]


async def test_no_cached_tokens_leaves_the_detail_out() -> None:
    async with served(faults=("no_cached_tokens",)) as client:
        usage = (await client.complete(PROMPT))["usage"]
        assert usage["prompt_tokens"] == 65
        assert usage["prompt_tokens_details"] is None


async def test_extra_prompt_token_makes_every_prompt_longer() -> None:
    async with served(faults=("extra_prompt_token",)) as client:
        assert (await client.complete(PROMPT))["usage"]["prompt_tokens"] == 66
        assert await client.metric("vllm:prompt_tokens_total") == 66


async def test_short_answer_ends_the_first_answers_at_half_their_length() -> None:
    async with served(faults=("short_answer=1",)) as client:
        answers = [await client.complete(PROMPT, max_tokens=7) for _ in range(2)]
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [3, 7]
