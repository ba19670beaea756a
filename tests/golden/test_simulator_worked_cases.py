"""Worked cases, measured on the engines or derived from their rules, as a table of small numbers.

Sources: vLLM's own scheduler (0.32 and 0.33, older versions where named), SGLang 0.5.23's own tree.
"""

from __future__ import annotations

import pytest

from prefixbench.simulator.engine import Engine
from simulated import drain, history, hits_of, one_by_one, request, text, together

VLLM = "vllm-0.33"


def twice(length: int, block_size: int, profile: str = VLLM) -> list[int]:
    prompt = text((1, length))
    return one_by_one(Engine(profile, block_size=block_size), [request(prompt), request(prompt)])


@pytest.mark.parametrize(
    ("length", "hit"), [(64, 48), (65, 64), (16, 0), (15, 0), (17, 16), (1, 0)]
)
def test_case_1_an_identical_prompt_hits_whole_blocks_but_its_last_token(length, hit):
    assert twice(length, 16) == [0, hit]


def test_case_1_counters_of_64_identical_tokens():
    engine = Engine(VLLM, block_size=16)
    one_by_one(engine, [request(text((1, 64))), request(text((1, 64)))])
    assert (engine.stats().queries, engine.stats().hits) == (128, 48)


def test_case_1_shared_tokens_before_new_ones():
    assert one_by_one(Engine(VLLM), [request(text((1, 16), 1)), request(text((1, 16), 1))]) == [
        0,
        16,
    ]
    assert one_by_one(
        Engine(VLLM, block_size=128), [request(text((1, 1003), 100)) for _ in range(2)]
    ) == [0, 896]
    assert twice(1024, 128) == [0, 896]


@pytest.mark.parametrize(
    ("length", "hit"), [(100, 96), (97, 96), (96, 64), (95, 64), (33, 32), (32, 0)]
)
def test_case_2_block_size_32(length, hit):
    assert twice(length, 32) == [0, hit]


def test_case_3_twins_of_one_step_hit_in_vllm():
    steps = together(Engine(VLLM), [request(text((1, 64)), name=name) for name in "ab"])
    assert steps[0].scheduled == {"a": 64, "b": 16}
    assert hits_of(steps) == [0, 48]


def test_case_3_twins_of_one_batch_do_not_hit_in_sglang_but_a_later_one_does():
    engine = Engine("sglang-0.5")
    assert hits_of(together(engine, [request(text((1, 64))) for _ in "ab"])) == [0, 0]
    assert one_by_one(engine, [request(text((1, 64)))]) == [63]


@pytest.mark.parametrize(("outputs", "third_step"), [(1, {"b": 16}), (2, {"a": 1, "b": 16})])
def test_case_4_a_twin_waits_for_the_budget(outputs, third_step):
    engine = Engine(VLLM, max_num_batched_tokens=32)
    steps = together(engine, [request(text((1, 64)), outputs, name=name) for name in "ab"])
    assert [step.scheduled for step in steps[:3]] == [{"a": 32}, {"a": 32}, third_step]
    assert hits_of(steps) == [0, 48]


def test_case_5_chunks_of_three_requests_in_one_budget():
    engine = Engine(VLLM, max_num_batched_tokens=128)
    steps = together(engine, [request(text((1, 96), 64), name=name) for name in "abc"])
    scheduled = [step.scheduled for step in steps]
    assert scheduled == [{"a": 128}, {"a": 32, "b": 64, "c": 32}, {"c": 32}]
    assert hits_of(steps) == [0, 96, 96]


def test_case_6_eight_at_once_equal_eight_one_by_one():
    prompts = [text((1, 1024), 64) for _ in range(8)]
    at_once = hits_of(together(Engine(VLLM), [request(prompt) for prompt in prompts]))
    assert sum(at_once) == 7168
    assert one_by_one(Engine(VLLM), [request(prompt) for prompt in prompts]) == at_once


@pytest.mark.parametrize(
    ("profile", "prompt", "outputs", "hit"),
    [
        (VLLM, 20, 12, 16),
        (VLLM, 20, 13, 32),
        (VLLM, 100, 29, 128),
        ("sglang-0.5", 20, 12, 31),
        ("sglang-0.5", 20, 13, 32),
        ("sglang-0.5", 100, 29, 128),
    ],
)
def test_case_7_the_last_generated_token_has_no_kv(profile, prompt, outputs, hit):
    first = request(text(prompt), outputs)
    follow_up = request([*history(first), *text(5)])
    assert one_by_one(Engine(profile), [first, follow_up]) == [0, hit]


def test_case_7_at_block_size_32():
    first = request(text(28), 42)
    follow_up = request([*history(first), *text(20)])
    assert one_by_one(Engine(VLLM, block_size=32), [first, follow_up]) == [0, 64]


@pytest.mark.parametrize(
    ("profile", "prefixes", "hits"),
    [
        (VLLM, (32, 64, 96), [0, 32, 64]),
        (VLLM, (40, 72, 104), [0, 32, 64]),
        (VLLM, (96, 64, 32), [0, 64, 32]),
        ("sglang-0.5", (40, 72, 104), [0, 40, 72]),
    ],
)
def test_case_8_nested_prefixes(profile, prefixes, hits):
    prompts = [text((1, prefix), 20) for prefix in prefixes]
    assert one_by_one(Engine(profile), [request(prompt) for prompt in prompts]) == hits


@pytest.mark.parametrize(("between", "hit"), [(80, 48), (96, 32), (112, 16), (128, 0)])
def test_case_9_a_chain_loses_its_tail_first(between, hit):
    engine = Engine(VLLM, capacity_blocks=8)
    prompts = [text((1, 64)), text(between), text((1, 64))]
    assert one_by_one(engine, [request(prompt) for prompt in prompts])[-1] == hit


@pytest.mark.parametrize(("seeds", "hit"), [((1, 2, 1, 3, 2), 0), ((1, 2, 3, 2), 48)])
def test_case_10_a_hit_refreshes(seeds, hit):
    engine = Engine(VLLM, capacity_blocks=8)
    assert one_by_one(engine, [request(text((seed, 64))) for seed in seeds])[-1] == hit


@pytest.mark.parametrize(
    ("profile", "hits"),
    [
        ("vllm-0.33", [32, 32, 32, 16]),
        ("vllm-0.24", [32, 32, 32, 16]),
        ("vllm-0.23", [32, 32, 0, 0]),
        ("vllm-0.12", [32, 32, 0, 0]),
    ],
)
def test_case_11_where_a_block_without_key_is_put_back(profile, hits):
    engine = Engine(profile, capacity_blocks=8)
    seeds = (1, 2, 3, 4, 4, 3, 2, 1)
    assert one_by_one(engine, [request(text((seed, 40))) for seed in seeds])[4:] == hits


@pytest.mark.parametrize(("profile", "queries"), [("vllm-0.27", 180), ("vllm-0.26", 580)])
def test_case_12_a_failed_attempt_counts_up_to_0_26(profile, queries):
    engine = Engine(profile, capacity_blocks=8)
    together(engine, [request(text(100), 5), request(text(80))])
    assert engine.stats().queries == queries


@pytest.mark.parametrize(
    ("profile", "hidden"), [("vllm-0.32", (65, 32)), ("vllm-0.26", (1625, 1040))]
)
def test_case_13_a_preempted_request_is_counted_apart(profile, hidden):
    engine = Engine(profile, capacity_blocks=8)
    steps = together(engine, [request(text(60), 30, name=name) for name in "ab"])
    assert next(i for i, step in enumerate(steps, 1) if step.preempted) == 6
    assert next(i for i, step in enumerate(steps, 1) if step.resume_hits) == 31
    assert [step.resume_hits for step in steps if step.resume_hits] == [{"b": 32}]
    stats = engine.stats()
    assert (stats.queries, stats.hits) == (120, 0)
    assert (stats.preempted_queries, stats.preempted_hits) == hidden
    assert stats.prefix_cache.num_query_blocks == 2 * 3


@pytest.mark.parametrize("profile", [VLLM, "sglang-0.5"])
def test_case_14_salts_separate(profile):
    salted = [request(text((1, 65)), salt=salt) for salt in ("x", "y", "x", "")]
    assert one_by_one(Engine(profile), salted) == [0, 0, 64, 0]


def test_case_14_a_sequence_of_salts_at_block_size_32():
    salted = [request(text((1, 130)), salt=salt) for salt in ("a", "a", "b", "", "")]
    assert one_by_one(Engine(VLLM, block_size=32), salted) == [0, 128, 0, 0, 128]


def test_case_15_a_recomputed_last_block_is_a_duplicate():
    engine = Engine(VLLM, capacity_blocks=100)
    one_by_one(engine, [request(text((1, 64))) for _ in range(2)])
    contents = engine.cache_contents()
    assert (contents.cached_blocks, contents.cached_keys) == (5, 4)


def test_case_18_a_long_prefill_is_cut_unless_it_is_alone():
    def engine():
        return Engine(VLLM, max_num_batched_tokens=256, long_prefill_token_threshold=64)

    steps = together(engine(), [request(text(200), name="a"), request(text(100), name="b")])
    scheduled = [step.scheduled for step in steps]
    assert scheduled == [{"a": 64, "b": 64}, {"a": 64, "b": 36}, {"a": 72}]
    alone = together(engine(), [request(text(200), name="a")])
    assert [step.scheduled for step in alone] == [{"a": 200}]


@pytest.mark.parametrize(
    ("budget", "threshold", "hits"),
    [
        (256, 64, [0, 64, 128, 192]),
        (512, 128, [0, 128, 256, 384]),
        (2048, 0, [0, 640, 640, 640]),
        (256, 0, [0, 640, 640, 640]),
    ],
)
def test_a_follower_hits_what_was_scheduled_before_it(budget, threshold, hits):
    engine = Engine(VLLM, max_num_batched_tokens=budget, long_prefill_token_threshold=threshold)
    assert hits_of(together(engine, [request(text((1, 641))) for _ in range(4)])) == hits


def test_case_19_idle_blocks_count_as_free_and_stay_findable():
    engine = Engine(VLLM, capacity_blocks=8)
    engine.submit(request(text((1, 40)), 2))
    engine.step()
    assert engine.kv_usage == 0.375
    drain(engine)
    assert engine.kv_usage == 0.0
    assert one_by_one(engine, [request(text((1, 40)))]) == [32]


@pytest.mark.parametrize("interleaved", [True, False])
def test_case_20_grouped_and_interleaved_groups_hit_the_same(interleaved):
    order = sorted((i % 4 for i in range(16)), key=None if not interleaved else lambda _g: 0)
    engine = Engine(VLLM, capacity_blocks=16)
    one_by_one(engine, [request(text((group, 48), 20)) for group in order])
    assert (engine.stats().hits, engine.stats().queries) == (576, 1088)


@pytest.mark.parametrize(("prompts", "hit"), [(12, 128), (13, 48)])
def test_case_21_a_cycle_larger_than_the_pool_keeps_heads(prompts, hit):
    engine = Engine(VLLM, capacity_blocks=100)
    hits = one_by_one(
        engine, [request(text((seed, 129))) for _ in range(2) for seed in range(prompts)]
    )
    assert hits == [0] * prompts + [hit] * prompts


@pytest.mark.parametrize("page", [1, 16])
@pytest.mark.parametrize(("prompts", "hit"), [(12, 128), (13, 0)])
def test_case_21_whole_leaves_leave_nothing_of_the_cycle(page, prompts, hit):
    engine = Engine("sglang-0.5", capacity_blocks=1600 // page, block_size=page)
    hits = one_by_one(
        engine, [request(text((seed, 129))) for _ in range(2) for seed in range(prompts)]
    )
    assert hits == [0] * prompts + [hit] * prompts


@pytest.mark.parametrize(("again", "hits"), [("ABC", [29, 29, 19]), ("CBA", [30, 40, 29])])
def test_case_22_oldest_first_and_newest_first(again, hits):
    blocks = {"A": 40, "B": 40, "C": 30}
    prompts = [text((ord(name), blocks[name] * 16 + 1)) for name in "ABC" + again]
    engine = Engine(VLLM, capacity_blocks=100)
    found = one_by_one(engine, [request(prompt) for prompt in prompts])
    assert [hit // 16 for hit in found[3:]] == hits


def test_case_23_four_identical_prompts_in_one_step():
    engine = Engine(VLLM, capacity_blocks=100)
    hits = hits_of(together(engine, [request(text((1, 320))) for _ in range(4)]))
    assert hits == [0, 304, 304, 304]


def test_nano_vllm_states_a_block_rate_without_the_last_block():
    engine = Engine("nano-vllm", block_size=16)
    one_by_one(engine, [request(text((1, 64))) for _ in range(2)])
    stats = engine.stats()
    assert (stats.prefix_cache.num_hit_blocks, stats.prefix_cache.num_query_blocks) == (3, 6)
    assert (stats.hits, stats.queries) == (48, 128)
    assert stats.prefix_cache.saved_tokens == 48


def test_nano_vllm_twins_of_one_step_do_not_hit():
    engine = Engine("nano-vllm", block_size=16)
    assert hits_of(together(engine, [request(text((1, 64))) for _ in "ab"])) == [0, 0]


def test_nano_vllm_cuts_only_the_first_prompt_of_a_step_and_never_mixes_phases():
    engine = Engine("nano-vllm", max_num_batched_tokens=64, block_size=16)
    steps = together(engine, [request(text(100), 2, name="a"), request(text(40), 2, name="b")])
    scheduled = [step.scheduled for step in steps]
    assert scheduled == [{"a": 64}, {"a": 36}, {"b": 40}, {"a": 1, "b": 1}]


def test_mindie_counts_a_whole_prompt_but_not_twins_of_one_round():
    assert twice(128, 128, "mindie") == [0, 128]
    engine = Engine("mindie")
    assert hits_of(together(engine, [request(text((1, 128))) for _ in "ab"])) == [0, 0]
