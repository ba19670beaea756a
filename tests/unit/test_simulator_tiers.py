"""Tiers below the device: what is asked of them, what a hit costs, what does not fit together."""

from __future__ import annotations

import pytest

from prefixbench.core.clock import VirtualClock
from prefixbench.core.errors import ConfigError
from prefixbench.core.tally import HitTally
from prefixbench.simulator.block_keys import BlockKeys
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.profile import get_profile
from prefixbench.simulator.rules import TierRules, TierWrite
from prefixbench.simulator.tier_store import TierStore
from simulated import drain, history, request, text, together


def found(engine: Engine, prompt, outputs: int = 1) -> tuple[int, dict[str, int]]:
    """Tokens of one request on the device, and below it."""
    sent = request(prompt, outputs)
    first = together(engine, [sent])[0]
    return first.hits[sent.request_id], first.tier_hits.get(sent.request_id, {})


# LMCache under vLLM: chunks of 256 tokens below blocks of 16.


def test_a_chunk_counts_only_beyond_what_the_device_has() -> None:
    engine = Engine("lmcache", capacity_blocks=64)
    assert found(engine, text((1, 600))) == (0, {})
    # 1000 other tokens leave only one block of the first prompt on the device.
    found(engine, text(1000))
    assert found(engine, text((1, 600))) == (16, {"external": 512 - 16})
    assert found(engine, text((1, 600))) == (592, {})


def test_the_last_token_is_computed_even_if_whole_chunks_would_cover_it() -> None:
    engine = Engine("lmcache")
    assert found(engine, text((1, 512))) == (0, {})
    # The device recomputes its last block; the tier has all of it but the last token.
    assert found(engine, text((1, 512))) == (496, {"external": 15})


def test_a_chunk_that_is_not_full_is_not_stored() -> None:
    engine = Engine("lmcache")
    found(engine, text((1, 255)))
    assert len(engine.options.stores[0]) == 0
    found(engine, text((1, 256)))
    assert len(engine.options.stores[0]) == 1


def test_generated_tokens_are_stored_where_the_tier_says_so() -> None:
    for stores_output, units in ((False, 1), (True, 2)):
        rules = TierRules(name="external", unit_len=256, stores_output=stores_output)
        engine = Engine("vllm-0.33", tiers=[rules])
        together(engine, [request(text(300), 300)])
        assert len(engine.options.stores[0]) == units


def test_the_profile_of_another_version_takes_the_same_tier() -> None:
    profile = get_profile("vllm-0.26+lmcache")
    assert (profile.name, profile.block_size) == ("vllm-0.26+lmcache", 16)
    assert profile.tiers == get_profile("lmcache").tiers
    assert profile.counting is get_profile("vllm-0.26").counting
    assert (
        profile.values()["tiers"] == "external: units of 256 tokens, written when it was computed"
    )
    assert "chunk_size 256" in profile.notes["tiers"]
    assert get_profile("lmcache").is_simulated
    with pytest.raises(ConfigError):
        get_profile("vllm-0.26+redis")


@pytest.mark.parametrize(
    ("feature", "below"), [("host7", 0), ("host10", 32), ("spill4", 64), ("spill4+lmcache", 64)]
)
def test_a_profile_name_brings_host_memory_of_so_many_blocks(feature: str, below: int) -> None:
    """A prompt of 6 whole blocks and a part, another, and the first again, in a pool of 8.

    The device has kept the first 2 blocks. Written through, a host of 10 blocks has all 6 of the
    other prompt and the first 4 of this one; written on eviction, it has the 4 that were lost.
    """
    engine = Engine(f"vllm-0.33+{feature}", capacity_blocks=8)
    prompt = text((1, 96), 10)
    found(engine, prompt)
    found(engine, text(96))
    device, tiers = found(engine, prompt)
    assert (device, tiers.get("host", 0)) == (32, below)


def test_blocks_of_host_memory_are_as_large_as_those_of_the_device() -> None:
    engine = Engine("vllm-0.33+host9", block_size=32)
    assert engine.options.stores[0].rules.unit_len == 32
    with pytest.raises(ConfigError, match="radix tree"):
        Engine("sglang-0.5+spill9")


# Several tiers.

HOST = TierRules(name="host", unit_len=16, capacity_units=4, write=TierWrite.ON_EVICTION)
EXTERNAL = TierRules(name="external", unit_len=32)


def test_the_nearest_tier_that_has_a_unit_gives_it() -> None:
    engine = Engine("vllm-0.33", capacity_blocks=8, tiers=[HOST, EXTERNAL])
    prompt = text((1, 96), 10)
    found(engine, prompt)
    # 5 blocks, the first of them the partial one and the free one: the prompt loses its last 4
    # to the host, whose units of it go first.
    found(engine, text(96))
    assert found(engine, prompt) == (32, {"host": 64})
    stats = engine.stats()
    assert [tier.name for tier in stats.tiers] == ["host", "external"]
    assert stats.tiers[0].tokens == HitTally(64, stats.queries - stats.hits)
    assert stats.tiers[1].tokens == HitTally(0, stats.queries - stats.hits - 64)
    assert stats.anywhere == HitTally(96, 106 + 96 + 106)


def test_a_hit_is_promoted_to_the_device_and_to_the_tiers_between() -> None:
    host = TierRules(name="host", unit_len=16, capacity_units=6)
    engine = Engine("vllm-0.33", capacity_blocks=8, tiers=[host, EXTERNAL])
    prompt = text((1, 96), 10)
    for each in (prompt, text(100)):
        found(engine, each)
    # Neither the device nor the host had room for both.
    assert found(engine, prompt) == (16, {"external": 80})
    assert found(engine, prompt) == (96, {})
    engine.reset_prefix_cache()
    assert found(engine, prompt) == (0, {"host": 96})


def test_the_end_of_a_used_path_is_lost_before_its_start() -> None:
    store = TierStore(TierRules(name="host", unit_len=16, capacity_units=3))
    store.take_in([30, 20, 10], 0)
    store.use([10, 20, 30], 1)
    assert store.take_in([99], 1) == [30]


def test_names_of_units_below_outlive_the_clearing_of_unused_ones(monkeypatch) -> None:
    """Block identities are dropped from time to time; here, whenever that is asked."""
    monkeypatch.setattr(BlockKeys, "worth_collecting", True)
    engine = Engine("vllm-0.33", capacity_blocks=8, tiers=[HOST, EXTERNAL])
    prompt = text((1, 96), 10)
    for each in (prompt, text(96)):
        found(engine, each)
    assert found(engine, prompt) == (32, {"host": 64})
    engine.reset_prefix_cache()
    assert found(engine, prompt) == (0, {"external": 96})


def test_what_is_unused_for_its_time_to_live_is_gone() -> None:
    clock = VirtualClock()
    rules = TierRules(name="host", unit_len=16, ttl_ns=100)
    engine = Engine("vllm-0.33", tiers=[rules], clock=clock)
    hits = []
    for gap in (0, 99, 99, 100):
        clock.advance(gap)
        engine.reset_prefix_cache()
        hits.append(found(engine, text((1, 64), 1))[1].get("host", 0))
    assert hits == [0, 64, 64, 0]
    assert engine.options.stores[0].expired_units == 4


def test_loading_takes_time_also_where_computing_takes_none() -> None:
    rules = TierRules(name="host", unit_len=16, load_ns=1000, load_token_ns=2)
    for cost in (CostModel.ORDER_ONLY, CostModel(prefill_token_ns=7)):
        engine = Engine("vllm-0.33", tiers=[rules], cost=cost)
        prompt = text((1, 64), 1)
        found(engine, prompt)
        engine.reset_prefix_cache()
        step = together(engine, [request(prompt)])[0]
        assert step.duration_ns == 1000 + 2 * 64 + round(cost.prefill_token_ns)


def test_a_store_of_two_engines_hands_prompts_from_one_to_the_other() -> None:
    store = TierStore(TierRules(name="external", unit_len=32))
    engines = [Engine("vllm-0.33", tiers=[store]) for _ in range(2)]
    assert [found(engine, text((1, 100))) for engine in engines] == [
        (0, {}),
        (0, {"external": 96}),
    ]


def test_salts_separate_tiers_too() -> None:
    engine = Engine("lmcache")
    for salt, hits in (("x", {}), ("y", {}), ("x", {"external": 512})):
        engine.reset_prefix_cache()
        sent = request(text((1, 600)), salt=salt)
        assert together(engine, [sent])[0].tier_hits.get(sent.request_id, {}) == hits


def test_a_preempted_request_is_counted_apart_in_every_tier() -> None:
    engine = Engine("vllm-0.33", capacity_blocks=8, tiers=[TierRules(name="host", unit_len=16)])
    steps = together(engine, [request(text(60), 30, name=name) for name in "ab"])
    resumed = next(step for step in steps if step.resume_hits)
    # On the device 32 of 65 tokens are left; 64 whole ones are below.
    assert (resumed.resume_hits, resumed.tier_hits) == ({"b": 32}, {"b": {"host": 32}})
    (tier,) = engine.stats().tiers
    assert (tier.queries, tier.hits) == (120, 0)
    assert (tier.preempted_queries, tier.preempted_hits) == (33, 32)


# A radix tree above a tier.


def test_a_tree_loads_from_a_tier_what_it_has_lost() -> None:
    engine = Engine("sglang-0.5", capacity_blocks=200, tiers=[TierRules(name="host", unit_len=16)])
    first = request(text((1, 100)), 5)
    together(engine, [first])
    found(engine, text(150))
    # Of 104 tokens with KV, six units of 16 are stored; the tree has lost its leaf.
    assert found(engine, [*history(first), *text(20)]) == (0, {"host": 96})
    assert found(engine, history(first)[:101]) == (100, {})
    engine.check_integrity()


def test_a_tree_computes_only_what_no_tier_has() -> None:
    engine = Engine("sglang-0.5", max_num_batched_tokens=64, tiers=[EXTERNAL])
    together(engine, [request(text((1, 200)))])
    engine.reset_prefix_cache()
    steps = together(engine, [request(text((1, 200), 5))])
    assert [list(step.scheduled.values()) for step in steps] == [[13]]


def test_an_uncut_prompt_of_a_tree_takes_of_the_budget_what_it_computes() -> None:
    engine = Engine(
        "sglang-0.5", max_num_batched_tokens=210, chunked_prefill=False, tiers=[EXTERNAL]
    )
    together(engine, [request(text((1, 200)))])
    engine.reset_prefix_cache()
    steps = together(engine, [request(text((1, 200), 5)) for _ in "ab"])
    assert [list(step.scheduled.values()) for step in steps] == [[13, 13]]


# What does not fit together.


@pytest.mark.parametrize(
    ("profile", "tiers", "message"),
    [
        ("vllm-0.33", [TierRules(name="host", unit_len=24)], "whole blocks of 16"),
        (
            "vllm-0.33",
            [TierRules(name="host", unit_len=32, write=TierWrite.ON_EVICTION)],
            "units of 16 tokens, not of 32",
        ),
        ("vllm-0.33", [EXTERNAL, HOST], "units of 32 tokens, not of 16"),
        ("vllm-0.33", [TierStore(HOST)], "cannot be shared"),
        ("vllm-0.33+host16+spill16", None, "host is named twice"),
        (
            "sglang-0.5",
            [TierRules(name="host", unit_len=1, write=TierWrite.ON_EVICTION)],
            "radix tree",
        ),
    ],
)
def test_tiers_that_do_not_fit_are_refused(profile, tiers, message) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        Engine(profile, tiers=tiers)
    assert refused.value.hint


def test_without_prefix_caching_no_tier_is_asked() -> None:
    engine = Engine("lmcache", prefix_caching=False)
    assert [found(engine, text((1, 600)))[1] for _ in range(2)] == [{}, {}]
    assert list(engine.stats().tiers) == []
    drain(engine)
