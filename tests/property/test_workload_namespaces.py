"""Groups of another model or salt find nothing of each other, the shared head included."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cache_oracles import LruBlocks
from oracles import ToyRequest, lagged_hits, served_hits, tokens_of
from planning_samples import BLOCK, configuration, routings
from prefixbench.core.errors import ConfigError
from prefixbench.simulator.watermark import simulate_prefix_cache_watermarks
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.rows import group_plans, request_plans
from prefixbench.workload.setting import Frame

#: Two whole blocks of head, and a part of a third one.
HEADED = Frame(head_len=9, tail_len=2, shortest=12)
KEYS = st.fixed_dictionaries(
    {}, optional={"cache_salt": st.sampled_from("ab"), "model": st.sampled_from("mn")}
)


@st.composite
def settings_of_groups(draw: st.DrawFn) -> dict[str, Any]:
    groups = [{"id": f"g{number}", **draw(KEYS)} for number in range(draw(st.integers(1, 5)))]
    return {
        "seed": draw(st.integers(0, 1000)),
        "request_count": draw(st.integers(len(groups), 30)),
        "target": {"hit_ratio": draw(st.integers(0, 60)) / 100},
        "prefix": {"groups": groups},
        "routing": draw(routings),
        "request_order": {"mode": draw(st.sampled_from(["sequential", "shuffle", "interleave"]))},
        "planning": {"budget_policy": draw(st.sampled_from(["global_ratio", "proportional"]))},
    }


def apart(plan: Plan) -> list[ToyRequest]:
    """The requests in sending order; every model and salt has caches of its own."""
    keys = [(group.model, group.cache_salt) for group in plan.config.prefix.groups]
    numbers: dict[Any, int] = {}
    return [
        ToyRequest(
            cache=numbers.setdefault(
                (int(plan.routes.cache[row]), keys[plan.workload.group[row]]), len(numbers)
            ),
            group=int(plan.workload.group[row]),
            input_len=int(plan.workload.input_len[row]),
            prefix_len=int(plan.prefix_len[row]),
        )
        for row in plan.order
    ]


@settings(max_examples=120, deadline=None)
@given(settings_of_groups(), st.integers(1, 6))
def test_every_model_and_salt_computes_the_head_once_a_cache(
    given: dict[str, Any], lag: int
) -> None:
    plan = plan_workload(configuration(**given), BLOCK, HEADED)
    requests = apart(plan)
    found = served_hits(requests, block=BLOCK, head=9, tail=2)
    assert [hits // BLOCK for hits in found] == plan.depths.hits[plan.order].tolist()
    assert sum(found) == plan.hit_blocks * BLOCK == plan.sequential_hit_blocks * BLOCK
    assert plan.hit_blocks == plan.targets.total or not plan.reachable
    in_flight = lagged_hits(requests, lag, block=BLOCK, head=9, tail=2)
    assert sum(in_flight) == plan.lag_model.hits(lag) * BLOCK
    groups = group_plans(plan)
    assert sum(group.designed_hit_tokens for group in groups.values()) == sum(found)
    assert sum(group.head_cold_loss for group in groups.values()) == 8 * len(
        {request.cache for request in requests}
    )
    walked = simulate_prefix_cache_watermarks(
        request_plans(plan), plan.config.routing.cache_scope, hit_granularity=BLOCK, head_len=9
    )
    assert [row.expected_hit_len for row in walked] == found


def limited(*salts: str, capacity_blocks: int = 20) -> Plan:
    groups = [{"id": f"g{number}", "cache_salt": salt} for number, salt in enumerate(salts)]
    config = configuration(
        prefix={"groups": groups},
        target={"hit_ratio": 0.2},
        output_length=1,
        planning={"capacity_blocks": capacity_blocks},
    )
    return plan_workload(config, BLOCK, HEADED)


@pytest.mark.parametrize("capacity_blocks", [16, 20, 30, 60])
def test_in_a_limited_cache_every_group_keeps_a_head_of_its_own(capacity_blocks: int) -> None:
    plan = limited("a", "b", "c", capacity_blocks=capacity_blocks)
    cache = LruBlocks(capacity_blocks)
    found = 0
    for number, request in enumerate(apart(plan)):
        tokens = tokens_of(request, number, 9, 2)
        keys = [
            (request.group, *tokens[: end + BLOCK])
            for end in range(0, len(tokens) // BLOCK * BLOCK, BLOCK)
        ]
        found += cache.serve(keys)
    assert plan.hit_blocks == found


def test_a_limited_cache_of_groups_that_share_heads_in_part_is_refused() -> None:
    with pytest.raises(ConfigError, match="limited cache cannot be planned"):
        limited("a", "a", "b")
