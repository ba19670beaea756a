"""Worked cases of speculative decoding and of models with several KV groups.

Sources: vLLM's own scheduler (0.28, 0.32, 0.33) and SGLang 0.5.23's own tree, executed. Whole
recordings of the same rules are in `data/`.
"""

from __future__ import annotations

import pytest

from prefixbench.core.errors import ConfigError, LengthError
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.profile import get_profile
from prefixbench.simulator.rules import KVGroup, next_row
from simulated import history, hits_of, one_by_one, request, text, together

HYBRID = "vllm-0.33+window1024"
DENSE_HYBRID = "vllm-0.28+window1024"


def of_groups(*groups: KVGroup, profile: str = "vllm-0.33", **options) -> Engine:
    return Engine(next_row(get_profile(profile), {}, groups=groups), **options)


def twice(length: int, profile: str, **options) -> int:
    engine = Engine(profile, **options)
    return one_by_one(engine, [request(text((1, length))) for _ in "ab"])[1]


# Speculative decoding.


@pytest.mark.parametrize(
    ("profile", "length", "hit"),
    [
        ("vllm-0.32+eagle", 65, 48),
        ("vllm-0.32+eagle", 64, 32),
        ("vllm-0.32+eagle", 32, 0),
        ("vllm-0.33+eagle", 65, 64),
        ("vllm-0.33+eagle", 64, 48),
        ("vllm-ascend-0.23+eagle", 1024, 768),
        ("sglang-0.5+eagle", 65, 63),
        ("sglang-0.5+eagle", 2, 0),
    ],
)
def test_an_identical_prompt_under_drafting(profile: str, length: int, hit: int) -> None:
    assert twice(length, profile) == hit


@pytest.mark.parametrize(
    ("profile", "hit"),
    [("vllm-0.32+eagle", 32), ("vllm-0.33+eagle", 32), ("sglang-0.5+eagle", 47)],
)
def test_a_shared_prefix_of_48_under_drafting(profile: str, hit: int) -> None:
    requests = [request(text((1, 48), 30)) for _ in "ab"]
    assert one_by_one(Engine(profile), requests) == [0, hit]


@pytest.mark.parametrize(("page", "hit"), [(16, 48), (1, 63)])
def test_pairs_of_tokens_fill_pages(page: int, hit: int) -> None:
    assert twice(65, "sglang-0.5+eagle", block_size=page) == hit


def test_a_block_waits_for_the_token_after_it() -> None:
    """A prompt of four whole blocks names the last one when its first output is known."""
    engine = Engine("vllm-0.33+eagle", capacity_blocks=100)
    first = request(text((1, 64)), 2)
    engine.submit(first)
    engine.step()
    assert engine.cache_contents().cached_keys == 4
    follow_up = request([*first.prompt, *first.output, 7])
    assert hits_of(together(engine, [follow_up])) == [64]
    assert one_by_one(engine, [request([*first.prompt, 8, 9])]) == [48]


@pytest.mark.parametrize(("drafts", "blocks"), [(1, 2), (2, 3)])
def test_draft_tokens_have_slots_of_their_own(drafts: int, blocks: int) -> None:
    """31 tokens and one draft fill two blocks of 16; two drafts take a third."""
    engine = Engine(f"vllm-0.32+eagle{drafts}", capacity_blocks=10)
    engine.submit(request(text(31), 2))
    assert engine.step().free_blocks == 10 - blocks


# Windows.


def test_a_prefix_is_seen_twice_before_it_hits() -> None:
    requests = [request(text((1, 2048), 512)) for _ in range(4)]
    assert one_by_one(Engine(HYBRID), requests) == [0, 0, 2048, 2048]


def test_until_0_28_every_block_that_can_end_a_hit_was_kept() -> None:
    requests = [request(text((1, 2048), 512)) for _ in range(4)]
    assert one_by_one(Engine(DENSE_HYBRID), requests) == [0, 2048, 2048, 2048]


@pytest.mark.parametrize(("warm_up", "hits"), [(2048, [2032, 2048, 2048]), (2049, [2048] * 3)])
def test_a_warm_up_of_one_more_token_keeps_the_whole_prefix(warm_up: int, hits: list[int]) -> None:
    prefix = text((1, 2048)) if warm_up == 2048 else text((1, 2048), 1)
    requests = [request(text((1, 2048), 512)) for _ in range(3)]
    assert one_by_one(Engine(HYBRID), [request(prefix), *requests]) == [0, *hits]


def test_four_at_once_hit_what_one_junction_kept() -> None:
    engine = Engine("vllm-0.33+window32")
    outcomes = together(engine, [request(text((1, 64), 64)) for _ in range(4)])
    assert (sum(hits_of(outcomes)), engine.stats().queries) == (128, 512)


@pytest.mark.parametrize(
    ("profile", "hits"), [("vllm-0.33", [0, 0, 64]), ("vllm-0.28", [0, 64, 64])]
)
def test_case_16_full_attention_and_a_window_of_32(profile: str, hits: list[int]) -> None:
    requests = [request(text((1, 64), 64)) for _ in range(3)]
    assert one_by_one(Engine(f"{profile}+window32"), requests) == hits


def test_windows_alone_keep_only_the_end_of_a_prompt() -> None:
    window = KVGroup(window=32)
    assert one_by_one(of_groups(window), [request(text((1, 64), 64)) for _ in "ab"]) == [0, 0]
    assert one_by_one(of_groups(window), [request(text((1, 128))) for _ in "ab"]) == [0, 112]


def test_a_follow_up_goes_on_before_the_last_prompt_token() -> None:
    engine = of_groups(KVGroup(window=32))
    first = request(text((1, 100)), 30)
    follow_up = request([*history(first)[:129], 5])
    assert one_by_one(engine, [first, follow_up]) == [0, 96]


def test_hits_end_where_blocks_of_all_sizes_end() -> None:
    engine = of_groups(KVGroup(), KVGroup(window=64, block_size=64), profile="vllm-0.28")
    assert one_by_one(engine, [request(text((1, 100), 100)) for _ in "ab"]) == [0, 64]


def test_blocks_behind_the_window_are_given_up() -> None:
    """20 blocks of full attention stay; of the window's 20, 2 with the last 31 tokens."""
    engine = of_groups(KVGroup(), KVGroup(window=32), capacity_blocks=100)
    engine.submit(request(text(319), 3))
    assert engine.step().free_blocks == 60
    assert engine.step().free_blocks == 100 - 20 - 2
    engine.check_integrity()


# Recurrent layers.


@pytest.mark.parametrize("profile", ["vllm-0.32+mamba", "vllm-0.33+mamba", "vllm-0.33+3xmamba"])
def test_a_state_is_kept_where_two_prompts_part(profile: str) -> None:
    requests = [request(text((1, 64), 64)) for _ in range(3)]
    assert one_by_one(Engine(profile), requests) == [0, 0, 64]


def test_chunks_end_where_a_state_is_kept() -> None:
    """At the last block that can hit, and at the junction with the prompt before."""
    engine = Engine("vllm-0.33+mamba")
    first, second = (request(text((1, 64), 64)) for _ in "ab")
    assert [list(step.scheduled.values()) for step in together(engine, [first])] == [[112], [16]]
    steps = [list(step.scheduled.values()) for step in together(engine, [second])]
    assert steps == [[64], [48], [16]]


@pytest.mark.parametrize(("profile", "first"), [("vllm-0.32", [0, 2, 3]), ("vllm-0.33", [0, 1, 1])])
def test_twins_wait_for_the_state_of_the_first(profile: str, first: list[int]) -> None:
    engine = Engine(f"{profile}+mamba")
    outcomes = together(engine, [request(text((1, 70)), 2) for _ in range(3)])
    assert hits_of(outcomes) == [0, 64, 64]
    assert [step for step, outcome in enumerate(outcomes) for _ in outcome.hits] == first


def test_a_recurrent_group_holds_one_state_or_two() -> None:
    engine = Engine("vllm-0.33+mamba", capacity_blocks=100, max_num_batched_tokens=32)
    engine.submit(request(text(320), 2))
    held = [100 - engine.step().free_blocks for _ in range(3)]
    assert held == [2 + 1, 4 + 2, 6 + 2]


def test_what_is_not_simulated_together_is_refused() -> None:
    for name in ("vllm-0.33+window128+eagle", "vllm-0.33+window128+lmcache"):
        with pytest.raises(ConfigError, match="not simulated together"):
            Engine(name)
    with pytest.raises(ConfigError, match="no rule for"):
        Engine("mindie+eagle")
    with pytest.raises(ConfigError, match="no rule for"):
        Engine("vllm-0.31+mamba")
    with pytest.raises(ConfigError, match="recurrent layers are not simulated"):
        of_groups(KVGroup(), KVGroup(recurrent=True), profile="vllm-0.30")
    with pytest.raises(ConfigError, match="no rule for"):
        Engine("sglang-0.5+window128")


def test_a_request_that_never_fits_into_all_groups_is_refused() -> None:
    engine = Engine("vllm-0.33+window128", capacity_blocks=20)
    with pytest.raises(LengthError):
        engine.submit(request(text(16 * 11)))
    engine.submit(request(text(16 * 9)))
