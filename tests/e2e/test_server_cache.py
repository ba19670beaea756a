"""The cache rules of vLLM as a client sees them: hits, counters, ranks, eviction, reset.

The numbers are the worked cases of engine-semantics section 9 and section 4 of metrics-adapters,
measured on vLLM 0.32 and 0.33.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from oracles import BlockCache
from serving import served, token_prompt


@pytest.mark.parametrize(("length", "hit"), [(15, 0), (16, 0), (64, 48), (65, 64), (100, 96)])
async def test_an_identical_prompt_hits_all_full_blocks_but_its_last_token(
    length: int, hit: int
) -> None:
    async with served() as client:
        prompt = token_prompt(length)
        assert [await client.cached(prompt), await client.cached(prompt)] == [0, hit]


async def test_text_and_its_token_ids_are_one_prompt() -> None:
    text = "The" + " lamp and the long road" * 20
    async with served() as client:
        ids = (await client.post("/tokenize", {"prompt": text}))["tokens"]
        assert await client.cached(text) == 0
        assert await client.cached(ids) == (len(ids) - 1) // 16 * 16 > 0


async def test_salts_separate_caches_and_no_salt_is_its_own() -> None:
    async with served() as client:
        prompt = token_prompt(65)
        salts = ["x", "y", "x", None, "y", None]
        hits = [await client.cached(prompt, cache_salt=salt) for salt in salts]
        assert hits == [0, 0, 64, 0, 64, 64]


async def test_an_adapter_has_its_own_cache() -> None:
    async with served(model="base", lora_models=("tuned",)) as client:
        prompt = token_prompt(65)
        models = ["base", "tuned", "tuned", "base"]
        assert [await client.cached(prompt, model=model) for model in models] == [0, 0, 64, 64]


async def test_counters_move_by_what_the_answers_say() -> None:
    async with served() as client:
        shared = token_prompt(96)
        lengths, hits = [], []
        for start in (1000, 2000, 3000, 1000):
            prompt = shared + token_prompt(start // 50, start)
            lengths.append(len(prompt))
            hits.append(await client.cached(prompt, max_tokens=3))
        assert sum(hits) > 0
        assert await client.metric("vllm:prefix_cache_hits_total") == sum(hits)
        assert await client.metric("vllm:prefix_cache_queries_total") == sum(lengths)
        assert await client.metric("vllm:prompt_tokens_total") == sum(lengths)
        assert await client.metric("vllm:prompt_tokens_cached_total") == sum(hits)
        assert await client.metric("vllm:prompt_tokens_by_source_total") == sum(lengths)
        assert await client.metric("vllm:generation_tokens_total") == 4 * 3
        assert await client.metric("vllm:request_success_total", finished_reason="length") == 4
        assert await client.metric("vllm:request_success_total") == 4
        assert await client.metric("vllm:time_to_first_token_seconds_count") == 4
        assert await client.metric("vllm:inter_token_latency_seconds_count") == 4 * 2
        assert await client.metric("vllm:external_prefix_cache_queries_total") == 0


async def test_a_tier_below_the_device_is_counted_apart_and_told_to_the_client() -> None:
    """Queries of the external cache are what the device had not, and no token is found twice."""
    async with served(profile="lmcache", capacity_blocks=64) as client:
        prompt, other = token_prompt(600), token_prompt(1000, 5000)
        # On the device 16 tokens are left of the first prompt; two chunks of 256 are below.
        assert [await client.cached(each) for each in (prompt, other, prompt)] == [0, 0, 512]
        assert await client.metric("vllm:prefix_cache_hits_total") == 16
        assert await client.metric("vllm:external_prefix_cache_hits_total") == 512 - 16
        assert await client.metric("vllm:external_prefix_cache_queries_total") == 2200 - 16
        assert await client.metric("vllm:prompt_tokens_cached_total") == 512
        by_source = "vllm:prompt_tokens_by_source_total"
        assert await client.metric(by_source) == 2200
        assert await client.metric(by_source, source="local_cache_hit") == 16
        assert await client.metric(by_source, source="external_kv_transfer") == 496


async def test_each_of_n_choices_looks_up_the_whole_prompt() -> None:
    async with served() as client:
        answer = await client.complete(token_prompt(641), n=4)
        assert len(answer["choices"]) == 4
        assert answer["usage"]["prompt_tokens"] == 641
        assert await client.metric("vllm:prefix_cache_queries_total") == 2564
        assert await client.metric("vllm:prompt_tokens_total") == 2564
        assert await client.metric("vllm:prefix_cache_hits_total") == 3 * 640


async def test_a_list_of_equal_prompts_counts_each_one() -> None:
    async with served() as client:
        answer = await client.complete([token_prompt(65)] * 8)
        assert [choice["index"] for choice in answer["choices"]] == list(range(8))
        assert answer["usage"]["prompt_tokens"] == 8 * 65
        assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 7 * 64}
        assert await client.metric("vllm:prefix_cache_queries_total") == 8 * 65
        assert await client.metric("vllm:prefix_cache_hits_total") == 7 * 64


async def test_a_reset_empties_the_cache_and_leaves_the_counters() -> None:
    async with served() as client:
        prompt = token_prompt(65)
        hits = [await client.cached(prompt), await client.cached(prompt)]
        before = await client.metric("vllm:prefix_cache_queries_total")
        await client.post("/reset_prefix_cache", None)
        assert [*hits, await client.cached(prompt)] == [0, 64, 0]
        assert await client.metric("vllm:prefix_cache_queries_total") == before + 65


async def test_a_reset_is_refused_and_does_nothing_while_a_request_runs_on_any_rank() -> None:
    async with served(time_scale=1.0, dp_size=2) as client:
        prompt = token_prompt(65)
        assert await client.cached(prompt, rank=0) == 0
        running = asyncio.create_task(client.complete(prompt, rank=1, max_tokens=1000))
        await client.wait_until("vllm:num_requests_running", 1)
        error = await client.post("/reset_prefix_cache", None, status=409)
        assert error["error"]["code"] == 409
        assert await client.cached(prompt, rank=0) == 64
        running.cancel()


@pytest.mark.parametrize(("other_len", "left"), [(80, 48), (96, 32), (112, 16), (128, 0)])
async def test_a_full_pool_loses_the_tail_of_the_oldest_chain_first(
    other_len: int, left: int
) -> None:
    async with served(capacity_blocks=8) as client:
        first, other = token_prompt(64), token_prompt(other_len - 1, 5000)
        hits = [await client.cached(prompt) for prompt in (first, other, first)]
        assert hits == [0, 0, left]


async def test_a_prompt_that_was_read_again_outlives_its_neighbour() -> None:
    async with served(capacity_blocks=8) as client:
        a, b, c = (token_prompt(64, start) for start in (0, 5000, 10_000))
        with_second_a = [await client.cached(prompt) for prompt in (a, b, a, c, b)]
        await client.post("/reset_prefix_cache", None)
        without = [await client.cached(prompt) for prompt in (a, b, c, b)]
        assert (with_second_a[-1], without[-1]) == (0, 48)


async def test_generated_tokens_are_cached_up_to_the_last_but_one() -> None:
    async with served() as client:
        ids = token_prompt(20)
        for outputs, hit in ((12, 16), (13, 32)):
            answer = await client.complete(ids, max_tokens=outputs, cache_salt=str(outputs))
            text = answer["choices"][0]["text"]
            said = (await client.post("/tokenize", {"prompt": "The" + text}))["tokens"][1:]
            assert len(said) == outputs
            follow_up = [*ids, *said, *token_prompt(20, 9000)]
            assert await client.cached(follow_up, cache_salt=str(outputs)) == hit


async def test_each_rank_has_its_own_cache() -> None:
    async with served(dp_size=2) as client:
        prompt = token_prompt(321)
        hits = [await client.cached(prompt, rank=rank) for rank in (0, 0, 1, 1, 0)]
        assert hits == [0, 320, 0, 320, 320]
        for rank, requests in (("0", 3), ("1", 2)):
            queries = await client.metric("vllm:prefix_cache_queries_total", engine=rank)
            found = await client.metric("vllm:prefix_cache_hits_total", engine=rank)
            assert (queries, found) == (requests * 321, (requests - 1) * 320)


async def test_an_answer_names_the_rank_that_gave_it() -> None:
    async with served(dp_size=2) as client:
        for stream in (False, True):
            body = {"prompt": token_prompt(40), "max_tokens": 1, "stream": stream}
            url, header = client.url + "/v1/completions", "X-data-parallel-rank"
            async with client.session.post(url, json=body, headers={header: "1"}) as answer:
                assert answer.headers[header] == "1"
            async with client.session.post(url, json={**body, "n": 2}) as answer:
                assert header not in answer.headers  # each choice is balanced by itself


async def test_balancing_spreads_a_sequential_client_and_pays_a_cold_start_on_each_rank() -> None:
    async with served(dp_size=2) as client:
        hits = [await client.cached(token_prompt(321)) for _ in range(8)]
        assert hits.count(0) == 2
        assert await client.metric("vllm:prefix_cache_queries_total", engine="0") == 4 * 321


async def test_usage_shows_held_blocks_only() -> None:
    async with served(capacity_blocks=8, time_scale=0.01) as client:
        running = asyncio.create_task(client.complete(token_prompt(40), max_tokens=80))
        await client.wait_until("vllm:kv_cache_usage_perc", 0.375)
        assert await client.metric("vllm:num_requests_running") == 1
        running.cancel()
        await client.wait_until("vllm:num_requests_running", 0)
        assert await client.metric("vllm:kv_cache_usage_perc") == 0
        assert await client.cached(token_prompt(40)) == 32


async def test_a_client_that_leaves_takes_its_request_along_and_leaves_its_blocks() -> None:
    async with served(time_scale=1.0) as client:
        prompt = token_prompt(321)
        body = {"prompt": prompt, "max_tokens": 1000, "stream": True}
        async with client.session.post(client.url + "/v1/completions", json=body) as answer:
            await answer.content.readuntil(b"\n\n")
            assert await client.metric("vllm:num_requests_running") == 1
            answer.close()
        await client.wait_until("vllm:num_requests_running", 0)
        assert await client.metric("vllm:request_success_total") == 0
        assert await client.metric("vllm:e2e_request_latency_seconds_count") == 0
        assert await client.metric("vllm:prefix_cache_queries_total") == 321
        assert await client.cached(prompt) == 320


async def test_labels_state_the_cache() -> None:
    async with served(capacity_blocks=99, dp_size=2) as client:
        rows = [
            dict(labels)
            for (name, labels), value in (await client.samples()).items()
            if name == "vllm:cache_config_info" and value == 1
        ]
        assert [row.pop("engine") for row in rows] == ["0", "1"]
        for row in rows:
            assert row["block_size"] == row["cache_hit_alignment_tokens"] == "16"
            assert row["num_gpu_blocks"] == "100"
            assert row["enable_prefix_caching"] == "True"
            assert row["prefix_caching_hash_algo"] == "sha256"


async def test_hits_are_those_of_an_unlimited_block_cache_for_each_salt() -> None:
    draw = random.Random(7)
    oracles = {salt: BlockCache(16) for salt in ("x", "y", None)}
    trunks = [token_prompt(200, start) for start in (0, 1000)]
    found, expected = [], []
    async with served() as client:
        for number in range(80):
            shared = draw.choice(trunks)[: draw.randrange(200)]
            prompt = shared + token_prompt(draw.randrange(1, 60), 2000 + 100 * number)
            salt = draw.choice(list(oracles))
            found.append(await client.cached(prompt, cache_salt=salt))
            expected.append(oracles[salt].serve(prompt))
    assert found == expected
    assert len(set(found)) > 5
