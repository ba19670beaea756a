"""Three models of one cache agree wherever they must (sequential use, no outputs to speak of).

The closed form, the analytic engine and the event engine are checked against each other and
against naive lists.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from cache_oracles import ListPool, LruBlocks
from prefixbench.core.records import RequestPlan
from prefixbench.simulator.cost import NO_WORK, CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.stack_distance import (
    ChainRequest,
    lru_curve,
    lru_hits,
)
from prefixbench.simulator.tokens import TokenRuns
from prefixbench.simulator.watermark import simulate_prefix_cache_watermarks
from simulated import closed_loop_hits, engine_requests

BLOCK = 4
GROUPS = st.integers(0, 2)


def plan(number: int, group: int, prefix_len: int, input_len: int) -> RequestPlan:
    return RequestPlan(
        request_id=f"r{number}",
        prefix_group_id=f"g{group}",
        input_len=input_len,
        output_len=1,
        planned_prefix_len=prefix_len,
    )


@st.composite
def plans(draw: st.DrawFn, tail: st.SearchStrategy[int]) -> list[RequestPlan]:
    """Block-aligned prefixes, each followed by at least one token of the request's own."""
    rows = draw(st.lists(st.tuples(GROUPS, st.integers(0, 6), tail), min_size=1, max_size=25))
    return [
        plan(number, group, blocks * BLOCK, blocks * BLOCK + own)
        for number, (group, blocks, own) in enumerate(rows)
    ]


ANY_TAIL = st.integers(1, 3 * BLOCK)
WHOLE_BLOCKS = st.integers(1, 3).map(lambda blocks: blocks * BLOCK)
NEVER_WHOLE_BLOCKS = ANY_TAIL.filter(lambda tokens: tokens % BLOCK)
LARGEST_REQUEST = 9


def event_hits(profile: str, rows: list[RequestPlan], capacity: int | None) -> list[int]:
    engine = Engine(profile, capacity_blocks=capacity, block_size=BLOCK)
    hits = closed_loop_hits(engine, engine_requests(rows))
    return [hits[row.request_id] // BLOCK for row in rows]


def chain_requests(rows: list[RequestPlan]) -> list[ChainRequest]:
    """The rows in full blocks; with answers of one token, nothing of an answer is stored."""
    return [
        ChainRequest(
            group=int(row.prefix_group_id[1:]),
            shared=row.planned_prefix_len // BLOCK,
            own=row.input_len // BLOCK - row.planned_prefix_len // BLOCK,
        )
        for row in rows
    ]


def analytic_hits(rows: list[RequestPlan], capacity: int) -> list[int]:
    return lru_hits(chain_requests(rows), capacity)


@given(plans(ANY_TAIL))
def test_without_limit_all_three_models_agree(rows: list[RequestPlan]) -> None:
    closed = simulate_prefix_cache_watermarks(rows, "global", hit_granularity=BLOCK)
    expected = [outcome.expected_hit_len // BLOCK for outcome in closed]
    assert analytic_hits(rows, 10**6) == expected
    assert event_hits("vllm-0.33", rows, None) == expected
    assert event_hits("ideal", rows, None) == expected
    curve = lru_curve(chain_requests(rows))
    assert curve.tally().hits == sum(expected)


@given(plans(ANY_TAIL), st.integers(LARGEST_REQUEST, 30))
def test_the_ideal_profile_is_the_analytic_engine(rows: list[RequestPlan], capacity: int) -> None:
    assert event_hits("ideal", rows, capacity) == analytic_hits(rows, capacity)


@given(plans(WHOLE_BLOCKS), st.integers(LARGEST_REQUEST, 30))
def test_whole_blocks_in_vllm_are_the_analytic_engine(
    rows: list[RequestPlan], capacity: int
) -> None:
    assert event_hits("vllm-0.33", rows, capacity) == analytic_hits(rows, capacity)


@given(plans(NEVER_WHOLE_BLOCKS), st.integers(LARGEST_REQUEST + 1, 30))
def test_partial_blocks_in_vllm_take_one_block_of_the_capacity(
    rows: list[RequestPlan], capacity: int
) -> None:
    assert event_hits("vllm-0.33", rows, capacity) == analytic_hits(rows, capacity - 1)


@st.composite
def prompts(draw: st.DrawFn) -> list[tuple[list[int], int]]:
    """Prompts that branch, repeat and are heads of each other; with numbers of outputs."""
    tokens = st.lists(st.integers(0, 1), min_size=1, max_size=14)
    return draw(st.lists(st.tuples(tokens, st.integers(1, 6)), min_size=1, max_size=20))


@given(prompts(), st.integers(7, 20), st.sampled_from(["vllm-0.33", "vllm-0.27", "vllm-0.20"]))
@settings(max_examples=200)
def test_one_by_one_the_pool_is_a_list_of_blocks(
    rows: list[tuple[list[int], int]], capacity: int, profile: str
) -> None:
    """Mixed lengths, repeated prompts, generated tokens: partial and duplicate blocks included."""
    engine = Engine(profile, capacity_blocks=capacity, block_size=3)
    oracle = ListPool(3, capacity, keyless_first=profile != "vllm-0.20")
    for number, (prompt, outputs) in enumerate(rows):
        output = range(100 * number + 10, 100 * number + 10 + outputs)
        hits = closed_loop_hits(engine, [EngineRequest(f"r{number}", prompt, output)])
        assert hits == {f"r{number}": oracle.serve(prompt, output)}
        engine.check_integrity()
    assert engine.cache_contents().cached_blocks == len(oracle.published)
    distinct = {slot.content for slot in oracle.published}
    assert engine.cache_contents().cached_keys == len(distinct)


CHAINS = st.lists(
    st.builds(ChainRequest, GROUPS, st.integers(0, 6), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


def path_of(number: int, request: ChainRequest) -> list[tuple[str, int, int]]:
    shared = [("shared", request.group, depth) for depth in range(request.shared)]
    return shared + [("own", number, depth) for depth in range(request.own)]


@given(CHAINS)
def test_runs_are_an_lru_of_single_blocks_at_every_capacity(requests: list[ChainRequest]) -> None:
    curve = lru_curve(requests)
    for capacity in range(30):
        oracle = LruBlocks(capacity)
        expected = [oracle.serve(path_of(*row)) for row in enumerate(requests)]
        assert lru_hits(requests, capacity) == expected
        assert curve.tally(capacity).hits == sum(expected)
    assert curve.tally().queries == sum(request.blocks for request in requests)


@given(CHAINS)
def test_more_capacity_never_hits_less(requests: list[ChainRequest]) -> None:
    curve = lru_curve(requests)
    hits = [curve.tally(capacity).hits for capacity in range(200)]
    assert hits == sorted(hits)
    assert hits[-1] == curve.tally().hits


EVERY_TERM_COSTS = CostModel(
    step_ns=1000, prefill_token_ns=100, context_token_ns=10, decode_sequence_ns=1
)


@given(plans(ANY_TAIL), st.integers(1, 6))
def test_equal_steps_at_once_are_the_same_as_one_by_one(
    rows: list[RequestPlan], concurrency: int
) -> None:
    """Longer outputs, several clients, a tight pool: a limit changes nothing but the call count."""
    rows = [
        RequestPlan(
            request_id=row.request_id,
            prefix_group_id=row.prefix_group_id,
            input_len=row.input_len,
            output_len=1 + number % 9,
            planned_prefix_len=row.planned_prefix_len,
        )
        for number, row in enumerate(rows)
    ]
    logs = []
    for limit in (1, 50):
        engine = Engine(
            "vllm-0.33", 14, max_num_seqs=concurrency, block_size=BLOCK, cost=EVERY_TERM_COSTS
        )
        for request in engine_requests(rows):
            engine.submit(request)
        log, work = [], NO_WORK
        while engine.has_work:
            outcome = engine.step(limit)
            engine.check_integrity()
            work = work.plus(outcome.work)
            single = outcome._replace(times=1, duration_ns=0, work=NO_WORK)
            log += [single] * outcome.times
        assert engine.clock.now_ns() == EVERY_TERM_COSTS.price_ns(work)
        logs.append((log, work, engine.stats()))
    assert logs[0] == logs[1]


def test_planned_requests_share_what_the_plan_says() -> None:
    rows = [plan(0, 0, 8, 12), plan(1, 0, 10, 11), plan(2, 1, 6, 9)]
    first, second, other = (list(each.prompt) for each in engine_requests(rows, head_len=5))
    assert [len(first), len(second), len(other)] == [12, 11, 9]
    assert first[:8] == second[:8]
    assert first[:5] == other[:5]
    assert first[8:] != second[8:12]
    assert not set(first[5:]) & set(other[5:])
    assert not set(first[8:]) & set(second[8:])


def test_runs_continue_each_other() -> None:
    assert TokenRuns([range(5), range(5, 9)]).runs == (range(9),)
