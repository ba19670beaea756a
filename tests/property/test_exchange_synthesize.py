"""What is made of a trace has its lengths, groups and hits; what is converted hits the same."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

import trace_oracles as oracle
from prefixbench.config.load import parse_config
from prefixbench.exchange.fidelity import compare_with_plan
from prefixbench.exchange.prefix_ids import with_prefix_ids
from prefixbench.exchange.synthesize import SHORTEST, synthesize
from prefixbench.pipeline import plan_prefix_cache_dataset
from prefixbench.simulator.trace import TraceRequest, runs_of_ids
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache
from prefixbench.workload.rows import request_outcomes, request_plans

BLOCK = 16

PATHS = st.lists(st.integers(0, 2), min_size=1, max_size=7)


@st.composite
def traces(draw: st.DrawFn) -> list[TraceRequest]:
    """Paths that branch; the last block holds one token or more, up to all of them."""
    head = draw(st.lists(st.integers(7, 8), max_size=2))
    rows = draw(st.lists(st.tuples(PATHS, st.integers(1, BLOCK)), min_size=1, max_size=12))
    return [
        TraceRequest(
            input_len=BLOCK * (len(head) + len(path) - 1) + last,
            output_len=1,
            blocks=runs_of_ids([*head, *path]),
        )
        for path, last in rows
    ]


@given(traces())
def test_prefix_ids_say_the_whole_path(trace: list[TraceRequest]) -> None:
    converted = list(with_prefix_ids(trace))
    before, after = IndexedTrace(trace), IndexedTrace(converted)
    assert TraceCache(after).hit_blocks() == TraceCache(before).hit_blocks()
    assert after.tree.repeated_ids() == 0
    paths = [[block for run in request.blocks for block in run] for request in trace]
    assert len(after.tree) == len({node for path in paths for node in oracle.nodes_of(path)})


@given(traces())
@settings(max_examples=40, deadline=None)
def test_the_plan_has_the_hits_that_were_kept(trace: list[TraceRequest]) -> None:
    made = synthesize(trace, BLOCK)
    planned = plan_prefix_cache_dataset(parse_config(made.settings))
    assert planned.failure is None
    report = planned.to_json()
    assert report["expected_hit_tokens"] == made.kept_hit_tokens
    assert report["input_tokens"] == sum(max(one.input_len, SHORTEST) for one in trace)
    assert made.kept_hit_tokens <= made.trace_hit_tokens
    assert len(report["per_group"]) == len(set(groups_of(trace)))
    assert planned.plan is not None
    assert planned.plan.order.tolist() == list(range(len(trace)))


@given(traces())
@settings(max_examples=40, deadline=None)
def test_what_moved_is_what_the_plan_says_and_the_trace_does_not(
    trace: list[TraceRequest],
) -> None:
    """Hits of the trace by an oracle of single blocks, hits of the plan by its own outcomes."""
    planned = plan_prefix_cache_dataset(parse_config(synthesize(trace, BLOCK).settings)).plan
    wanted, seen = [], set()
    for request in trace:
        nodes = oracle.nodes_of([block for run in request.blocks for block in run])
        known = [node in seen for node in nodes]
        deepest = known.index(False) if False in known else len(known)
        wanted.append(min(deepest, (request.input_len - 1) // BLOCK))
        seen.update(nodes)
    found = [one.expected_hit_len // BLOCK for one in request_outcomes(planned)]
    fidelity = compare_with_plan(trace, request_plans(planned), BLOCK)
    equal = [ours == theirs for ours, theirs in zip(found, wanted, strict=True)]
    assert fidelity.equal_requests == sum(equal) / len(equal)
    missing = sum(max(theirs - ours, 0) for ours, theirs in zip(found, wanted, strict=True))
    assert fidelity.moved_hits == (missing / sum(wanted) if sum(wanted) else None)
    for point in fidelity.curve:
        assert 0 <= point.planned <= 1
        assert 0 <= point.trace <= 1


def test_conversations_are_kept_whole() -> None:
    """Every turn repeats all blocks of the one before it; three conversations take turns."""
    trace = [
        TraceRequest(
            input_len=BLOCK * (turn + 2) + 1,
            output_len=1,
            blocks=(
                range(100 * chat, 100 * chat + turn + 2),
                range(1000 * chat + turn, 1000 * chat + turn + 1),
            ),
        )
        for turn in range(5)
        for chat in (1, 2, 3)
    ]
    planned = plan_prefix_cache_dataset(parse_config(synthesize(trace, BLOCK).settings)).plan
    fidelity = compare_with_plan(trace, request_plans(planned), BLOCK)
    assert (fidelity.equal_requests, fidelity.moved_hits) == (1, 0)
    assert fidelity.curve
    for point in fidelity.curve:
        assert point.planned == point.trace


def groups_of(trace: list[TraceRequest]) -> list[tuple[int, ...]]:
    """The first block behind the head that all share; with a head, none if nobody else has it."""
    paths = [[block for run in request.blocks for block in run] for request in trace]
    head = 0
    while len(paths) > 1 and len({tuple(path[: head + 1]) for path in paths}) == 1:
        if len(paths[0]) <= head:
            break
        head += 1
    behind = [tuple(path[head : head + 1]) for path in paths]
    return [key if not head or behind.count(key) > 1 else () for key in behind]
