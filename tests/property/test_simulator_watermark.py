"""The closed form against an unlimited cache that is asked token by token."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from oracles import ToyRequest, served_hits
from prefixbench.core.records import RequestPlan
from prefixbench.simulator.watermark import simulate_prefix_cache_watermarks

BLOCK = 4


@st.composite
def toys(draw: st.DrawFn) -> tuple[int, list[ToyRequest]]:
    """Block-aligned prefixes, never shorter than a head that may end inside a block."""
    head = draw(st.integers(0, 10))
    rows = draw(
        st.lists(
            st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 5), st.integers(1, 6)),
            min_size=1,
            max_size=20,
        )
    )
    requests = []
    for cache, group, blocks, own in rows:
        prefix = max(blocks * BLOCK, head)
        requests.append(ToyRequest(cache, group, prefix + own, prefix))
    return head, requests


@given(toys())
def test_watermarks_are_what_an_unlimited_cache_finds(rows: tuple[int, list[ToyRequest]]) -> None:
    head, requests = rows
    plans = [
        RequestPlan(
            request_id=f"r{number}",
            prefix_group_id=f"g{toy.group}",
            input_len=toy.input_len,
            planned_prefix_len=toy.prefix_len,
            planned_dp_id=toy.cache,
        )
        for number, toy in enumerate(requests)
    ]
    result = simulate_prefix_cache_watermarks(
        plans, "dp_local", hit_granularity=BLOCK, head_len=head
    )
    expected = served_hits(requests, block=BLOCK, head=head)
    assert [outcome.expected_hit_len for outcome in result] == expected
    assert (result.hits, result.queries) == (
        sum(expected),
        sum(toy.input_len for toy in requests),
    )


@given(toys(), st.integers(0, 30))
def test_warm_depths_are_a_first_request_of_every_group_and_cache(
    rows: tuple[int, list[ToyRequest]], depth: int
) -> None:
    head, requests = rows
    depth = max(depth, head)

    def plan(number: int, toy: ToyRequest, prefix: int) -> RequestPlan:
        return RequestPlan(
            request_id=f"r{number}",
            prefix_group_id=f"g{toy.group}",
            input_len=prefix + 5,
            planned_prefix_len=prefix,
            planned_instance_id=toy.cache,
        )

    plans = [plan(number, toy, toy.prefix_len) for number, toy in enumerate(requests)]
    domains = {(toy.cache, toy.group): toy for toy in requests}
    warm_ups = [plan(-1, toy, depth) for toy in domains.values()]
    options = {"hit_granularity": BLOCK, "head_len": head}
    sent_first = simulate_prefix_cache_watermarks([*warm_ups, *plans], "instance_local", **options)
    warmed = simulate_prefix_cache_watermarks(
        plans, "instance_local", warm={f"g{group}": depth for group in range(3)}, **options
    )
    assert list(warmed) == list(sent_first)[len(warm_ups) :]
