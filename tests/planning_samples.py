"""Configurations and plans that several planning tests draw from."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from oracles import ToyRequest
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.load import parse_config
from prefixbench.workload.planner import Plan
from prefixbench.workload.setting import Frame

BLOCK = 4


def configuration(**changes: Any) -> PrefixCacheDatasetConfig:
    given: dict[str, Any] = {
        "request_count": 20,
        "block_size": BLOCK,
        "input_length": {"mode": "truncated_normal", "min": 8, "max": 60, "mean": 30, "std": 15},
        "target": {"hit_ratio": 0.5},
        "prefix": {"mode": "multi_prefix", "group_count": 3},
    }
    return parse_config(given | changes)


def toys(plan: Plan) -> list[ToyRequest]:
    """The planned requests as toys, in sending order."""
    return [
        ToyRequest(
            cache=int(plan.routes.cache[row]),
            group=int(plan.workload.group[row]),
            input_len=int(plan.workload.input_len[row]),
            prefix_len=int(plan.prefix_len[row]),
        )
        for row in plan.order
    ]


orders = st.sampled_from(
    ["sequential", "shuffle", "grouped", "interleave", "weighted_interleave"]
    + [f"{what}_len_{way}" for what in ("input", "prefix") for way in ("asc", "desc")]
)
routings = st.sampled_from(
    [
        {},
        {"cache_scope": "dp_local", "dp_size": 3, "policy": "round_robin"},
        {"cache_scope": "dp_local", "dp_size": 2, "policy": "bound"},
        {"cache_scope": "instance_local", "instances": 2, "dp_size": 2, "policy": "sticky"},
        {"cache_scope": "global", "dp_size": 2, "policy": "hash"},
    ]
)
frames = st.sampled_from(
    [Frame(), Frame(head_len=3, shortest=4), Frame(head_len=5, tail_len=2, shortest=8)]
)
