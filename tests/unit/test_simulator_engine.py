"""The engine from outside: time, policies, roles, what it refuses, what it counts."""

from __future__ import annotations

import pytest

from prefixbench.core.clock import VirtualClock
from prefixbench.core.errors import ConfigError, LengthError
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from simulated import drain, history, hits_of, one_by_one, request, text, together

COST = CostModel(step_ns=1000, prefill_token_ns=10, context_token_ns=1, decode_sequence_ns=100)


def test_a_step_costs_its_tokens_its_context_and_its_sequences() -> None:
    engine = Engine("vllm-0.33", cost=COST)
    steps = together(engine, [request(text(64), 3)])
    # Prefill reads 64 tokens of context, each decode one more.
    prefill = 1000 + 64 * 10 + 64
    decodes = [1000 + 100 + 65, 1000 + 100 + 66]
    assert [step.duration_ns for step in steps] == [prefill, *decodes]
    assert engine.clock.now_ns() == prefill + sum(decodes)


def test_equal_steps_at_once_take_the_same_time() -> None:
    durations = []
    for limit in (1, 100):
        engine = Engine("vllm-0.33", cost=COST, clock=VirtualClock(5))
        engine.submit(request(text(64), 14))
        total = 0
        while engine.has_work:
            total += engine.step(limit).duration_ns
        assert engine.clock.now_ns() == 5 + total
        durations.append(total)
    assert durations[0] == durations[1]


def test_equal_steps_are_really_taken_at_once() -> None:
    engine = Engine("vllm-0.33")
    engine.submit(request(text(64), 14))
    outcomes = []
    while engine.has_work:
        outcomes.append(engine.step(100))
    assert sum(outcome.times for outcome in outcomes) == 14
    assert len(outcomes) < 6


def test_without_a_cost_only_the_order_is_simulated() -> None:
    engine = Engine("vllm-0.33")
    assert all(step.duration_ns == 0 for step in together(engine, [request(text(64), 3)]))


def test_steps_are_counted_by_phase() -> None:
    engine = Engine("vllm-0.33", max_num_seqs=2)
    together(engine, [request(text(30), 3), request(text(20), 1), request(text(10), 1)])
    stats = engine.stats().scheduler
    assert (stats.num_prefill_steps, stats.num_mixed_steps, stats.num_decode_steps) == (2, 1, 2)
    assert (stats.total_prefill_tokens, stats.total_decode_tokens) == (60, 2)


def test_a_dropped_request_leaves_what_it_published() -> None:
    engine = Engine("vllm-0.33", capacity_blocks=20)
    engine.submit(request(text((1, 64)), 8, name="dropped"))
    engine.step()
    assert engine.abort("dropped")
    assert not engine.abort("dropped")
    assert not engine.has_work
    assert one_by_one(engine, [request(text((1, 65)))]) == [64]


def test_a_reset_forgets_everything_but_the_counters() -> None:
    engine = Engine("vllm-0.33", capacity_blocks=20)
    engine.submit(request(text((1, 65)), 2))
    engine.step()
    assert not engine.reset_prefix_cache()
    drain(engine)
    assert engine.reset_prefix_cache()
    assert engine.cache_contents().cached_blocks == 0
    assert one_by_one(engine, [request(text((1, 65)))]) == [0]
    assert engine.stats().queries == 130
    assert engine.cache_contents().evicted_blocks == 0


def test_a_cache_without_limit_never_evicts() -> None:
    engine = Engine("vllm-0.33")
    steps = together(engine, [request(text(1000)) for _ in range(20)])
    assert {step.free_blocks for step in steps} == {None}
    assert engine.cache_contents().cached_blocks == 20 * 62
    assert engine.kv_usage == 0.0


def test_priorities_decide_who_is_admitted_first() -> None:
    engine = Engine("vllm-0.33", max_num_seqs=1, policy="priority")
    ranks = {"late": 5, "first": 0, "second": 0}
    steps = together(
        engine, [request(text(8), name=name, priority=rank) for name, rank in ranks.items()]
    )
    assert [next(iter(step.hits)) for step in steps] == ["first", "second", "late"]


def test_a_prefill_engine_ends_with_the_first_token() -> None:
    engine = Engine("vllm-0.33:prefill")
    steps = together(engine, [request(text(64), 10)])
    assert [len(step.sampled) for step in steps] == [1]


def test_a_decode_engine_does_not_compute_the_prompt_it_is_handed() -> None:
    engine = Engine("vllm-0.33:decode", capacity_blocks=100)
    steps = together(engine, [request(text((1, 64)), 3, name="a")])
    assert [step.scheduled for step in steps] == [{"a": 1}] * 3
    assert hits_of(steps) == [0]
    assert one_by_one(engine, [request(text((1, 65)))]) == [64]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"capacity_blocks": 4}, "80 tokens do not fit into 4 blocks"),
        ({"chunked_prefill": False, "max_num_batched_tokens": 64}, "do not fit into one step"),
    ],
)
def test_a_request_that_would_wait_forever_is_refused(options, message) -> None:
    engine = Engine("vllm-0.33", **options)
    with pytest.raises(LengthError, match=message):
        engine.submit(request(text(70), 11))
    assert not engine.has_work


@pytest.mark.parametrize(("prompt", "output"), [([], [1]), ([1], [])])
def test_an_empty_request_is_refused(prompt, output) -> None:
    with pytest.raises(LengthError, match="at least one"):
        Engine("vllm-0.33").submit(EngineRequest("r", prompt, output))


def test_an_id_names_one_unfinished_request() -> None:
    engine = Engine("vllm-0.33")
    engine.submit(request(text(20), name="a"))
    with pytest.raises(ValueError, match="a is not finished"):
        engine.submit(request(text(20), name="a"))
    drain(engine)
    assert one_by_one(engine, [request(text(20), name="a")]) == [0]


@pytest.mark.parametrize(
    ("profile", "policy"),
    [("vllm-0.33", "lpm"), ("sglang-0.5", "priority"), ("nano-vllm", "priority")],
)
def test_a_policy_that_the_engine_does_not_have_is_refused(profile, policy) -> None:
    with pytest.raises(ConfigError, match="policy"):
        Engine(profile, policy=policy)


@pytest.mark.parametrize("profile", ["trtllm", "lmdeploy", "sglang-0.5:decode", "llamacpp:decode"])
def test_what_is_only_described_is_not_simulated(profile) -> None:
    with pytest.raises(ConfigError, match=r"simulated"):
        Engine(profile)


# SGLang's order of work.


def test_overlap_hides_a_batch_from_the_one_scheduled_behind_it() -> None:
    """Each prompt fills a step; the second is scheduled before the first one's result is known."""
    found = {}
    for overlap in (True, False):
        engine = Engine("sglang-0.5", max_num_batched_tokens=65, overlap=overlap)
        found[overlap] = hits_of(together(engine, [request(text((1, 64), 1)) for _ in "abc"]))
    assert found == {True: [0, 0, 64], False: [0, 64, 64]}


def test_with_overlap_too_a_client_that_saw_a_token_finds_its_prompt() -> None:
    engine = Engine("sglang-0.5")
    first = request(text((1, 64)), 5)
    engine.submit(first)
    assert engine.step().sampled == [first.request_id]
    engine.submit(request(text((1, 64), 1)))
    assert hits_of(drain(engine)) == [64]


def test_lpm_and_fcfs_give_the_same_outputs_in_another_order() -> None:
    orders, tokens = {}, {}
    for policy in ("fcfs", "lpm"):
        engine = Engine("sglang-0.5", max_num_batched_tokens=128, policy=policy)
        one_by_one(engine, [request(text((1, 200)))])
        waiting = [
            request(text((2, 100), 8), 4, name="new"),
            request(text((1, 150), 8), 4, name="known"),
        ]
        steps = together(engine, waiting)
        orders[policy] = [name for step in steps for name in step.hits]
        sampled = [name for step in steps for name in step.sampled]
        tokens[policy] = {name: sampled.count(name) for name in ("new", "known")}
    assert orders == {"fcfs": ["new", "known"], "lpm": ["known", "new"]}
    assert tokens["fcfs"] == tokens["lpm"] == {"new": 4, "known": 4}


@pytest.mark.parametrize(
    ("policy", "admissions"),
    [
        ("fcfs", [{"one": 0, "two": 0}, {"other": 0}]),
        ("lpm", [{"one": 0, "other": 0}, {"two": 100}]),
    ],
)
def test_lpm_lets_a_prompt_wait_for_the_one_that_computes_its_prefix(policy, admissions) -> None:
    engine = Engine("sglang-0.5", max_num_seqs=2, policy=policy, overlap=False)
    shared = [request(text((1, 100), 5), 2, name=name) for name in ("one", "two")]
    steps = together(engine, [*shared, request(text(50), 2, name="other")])
    assert [step.hits for step in steps if step.hits] == admissions


def test_dfs_weight_finishes_the_busiest_branch_first() -> None:
    engine = Engine("sglang-0.5", max_num_seqs=1, policy="dfs-weight")
    one_by_one(engine, [request(text((1, 50))), request(text((2, 50)))])
    names = ["x1", "y1", "y2"]
    steps = together(
        engine, [request(text((1 if name[0] == "x" else 2, 50), 5), name=name) for name in names]
    )
    assert [name for step in steps for name in step.hits] == ["y1", "y2", "x1"]


def test_a_finished_request_leaves_its_output_evictable_alone() -> None:
    engine = Engine("sglang-0.5", capacity_blocks=200)
    first = request(text((1, 60)), 40)
    one_by_one(engine, [first])
    # 120 new tokens push out the 39 stored output tokens, not the prompt.
    one_by_one(engine, [request(text(120))])
    assert one_by_one(engine, [request([*history(first), 7])]) == [60]
