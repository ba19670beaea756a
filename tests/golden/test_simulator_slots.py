"""Worked cases of a server whose cache is its slots.

Source: llama.cpp's own server through xllamacpp 2026.10, executed without its host prompt cache;
`tests/live/test_live_llamacpp.py` does the same with random requests.
"""

from __future__ import annotations

import pytest

from prefixbench.core.errors import ConfigError, LengthError
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.tokens import TokenRuns
from simulated import drain, history, hits_of, one_by_one, request, text, together


def slots(number: int, **options) -> Engine:
    return Engine("llamacpp", max_num_seqs=number, **options)


def test_the_same_prompt_computes_its_last_token_again() -> None:
    assert one_by_one(slots(2), [request(text((1, 100))) for _ in "ab"]) == [0, 99]


def test_a_shared_prefix_hits_token_by_token() -> None:
    assert one_by_one(slots(1), [request(text((1, 60), 40)) for _ in "ab"]) == [0, 60]


def test_a_slot_is_cut_where_the_next_prompt_leaves_it() -> None:
    """The second prompt shares 60 tokens of 100; the third finds these and no more."""
    prompts = [text((1, 100)), text((1, 60), 40), text((1, 100))]
    assert one_by_one(slots(1), map(request, prompts)) == [0, 60, 60]


@pytest.mark.parametrize(("number", "hits"), [(2, [0] * 6), (3, [0] * 3 + [99] * 3)])
def test_a_cycle_of_three_prompts_needs_three_slots(number: int, hits: list[int]) -> None:
    cycle = [request(text((seed, 100))) for _ in range(2) for seed in range(3)]
    assert one_by_one(slots(number), cycle) == hits


@pytest.mark.parametrize(("shared", "hit"), [(10, 0), (11, 11)])
def test_a_slot_is_taken_for_more_than_a_tenth_of_the_prompt(shared: int, hit: int) -> None:
    """Otherwise the slot that was used longest ago is overwritten, here the empty one."""
    prompts = [text((1, 50)), text((1, shared), 100 - shared)]
    assert one_by_one(slots(2), map(request, prompts)) == [0, hit]


def test_of_equal_slots_the_first_is_taken_and_of_unused_ones_the_last() -> None:
    """A fills slot 1, B slot 0; C shares as much with both and cuts B, so A is found whole."""
    first, second = text((1, 20), (2, 30)), text((1, 20), (3, 30))
    engine = slots(2)
    assert hits_of(together(engine, map(request, (first, second)))) == [0, 0]
    assert one_by_one(engine, map(request, (text((1, 20), 10), first, second))) == [20, 49, 20]


def test_a_conversation_finds_all_but_the_last_generated_token() -> None:
    first = request(text((1, 20)), 12)
    assert one_by_one(slots(2), [first, request([*history(first), 5])]) == [0, 31]


def test_twins_take_a_slot_each_and_do_not_hit() -> None:
    engine = slots(2)
    assert hits_of(together(engine, [request(text((1, 64))) for _ in "ab"])) == [0, 0]
    assert engine.cache_contents().cached_blocks == 128


def test_a_third_request_waits_for_a_slot() -> None:
    engine = slots(2)
    steps = together(engine, [request(text((1, 64)), outputs) for outputs in (1, 3, 1)])
    assert [len(step.scheduled) for step in steps] == [2, 2, 1]
    assert hits_of(steps) == [0, 0, 63]


def test_generating_slots_go_before_prompts() -> None:
    engine = slots(2, max_num_batched_tokens=50)
    engine.submit(request(text(10), 4, name="a"))
    engine.step()
    engine.submit(request(text(80), 2, name="b"))
    assert [step.scheduled for step in drain(engine)] == [
        {"a": 1, "b": 49},
        {"a": 1, "b": 31},
        {"a": 1, "b": 1},
    ]


def test_extra_keys_separate_slots_and_a_reset_empties_them() -> None:
    salted = [request(text((1, 50)), salt=salt) for salt in ("x", "y", "x")]
    engine = slots(1)
    assert one_by_one(engine, salted) == [0, 0, 0]
    assert engine.reset_prefix_cache()
    assert one_by_one(engine, [request(text((1, 50)), salt="x")]) == [0]


def test_an_aborted_request_leaves_what_it_computed() -> None:
    engine = slots(1, max_num_batched_tokens=30)
    engine.submit(request(text((1, 100)), name="gone"))
    engine.step()
    assert engine.abort("gone")
    engine.check_integrity()
    assert one_by_one(engine, [request(text((1, 100)))]) == [30]


def test_equal_steps_at_once_do_the_same_work() -> None:
    one, many = slots(2), slots(2)
    for engine in (one, many):
        for seed, outputs in ((1, 40), (2, 25)):
            engine.submit(request(TokenRuns([range(seed * 1000, seed * 1000 + 30)]), outputs))
    singly = drain(one)
    steps = 0
    while many.has_work:
        steps += many.step(limit=1000).times
    assert steps == len(singly)
    assert one.stats().scheduler == many.stats().scheduler


def test_slots_share_the_capacity() -> None:
    engine = slots(4, capacity_blocks=400)
    with pytest.raises(LengthError):
        engine.submit(request(text(101)))
    engine.submit(request(text(99), 2))
    engine.step()
    assert engine.kv_usage == 0.25


def test_blocks_and_tiers_are_refused() -> None:
    with pytest.raises(ConfigError, match="has slots"):
        slots(2, block_size=16)
    with pytest.raises(ConfigError, match="has slots"):
        Engine("llamacpp+lmcache")
