"""Random configurations of data sets, drawn over every option that planning knows."""

from __future__ import annotations

import random
from typing import Any

from prefixbench.workload.setting import Frame

FRAMES = (
    Frame(),
    Frame(head_len=5, tail_len=2, shortest=8),
    Frame(head_len=40, tail_len=5, shortest=46),
)
_WORDS = ["sequential", "shuffle", "grouped", "interleave", "weighted_interleave"] + [
    f"{what}_len_{way}" for what in ("input", "prefix") for way in ("asc", "desc")
]
_ROUTINGS: list[dict[str, Any]] = [
    {},
    {},
    {"cache_scope": "dp_local", "dp_size": 3, "policy": "round_robin"},
    {"cache_scope": "dp_local", "dp_size": 2, "policy": "bound"},
    {"cache_scope": "instance_local", "instances": 2, "dp_size": 2, "policy": "sticky"},
    {"cache_scope": "dp_local", "instances": 2, "dp_size": 2, "policy": "hash"},
    {"cache_scope": "global", "dp_size": 2, "policy": "round_robin"},
]


def random_frame(draw: random.Random) -> Frame:
    return draw.choice(FRAMES)


def random_configuration(draw: random.Random) -> dict[str, Any]:
    """A configuration as a user would write it; its target may be out of reach."""
    count = draw.randint(1, 60)
    block = draw.choice([1, 16, 16, 128])
    scale = draw.choice([4, 20]) * max(block, 8) + 60
    config: dict[str, Any] = {
        "seed": draw.randint(0, 999),
        "request_count": count,
        "block_size": block,
        "input_length": _lengths(draw, count, scale),
        "output_length": draw.choice([1, 16, 40]),
        "prefix": _prefix(draw, count, block),
        "request_order": _order(draw),
        "routing": draw.choice(_ROUTINGS),
        "planning": _planning(draw, scale // block + 1),
    }
    prefix = config["prefix"]
    config["target"] = _target(draw, prefix)
    config["execution"] = {
        "mode": draw.choice(
            ["progressive_prefix_fill", "progressive_prefix_fill", "warmup", "cold"]
        )
    }
    if draw.random() < 0.15:
        config["sessions"] = _sessions(draw, config)
    if config["target"].get("scope") == "per_group" or "sessions" in config or "tree" in prefix:
        config["planning"].pop("capacity_blocks", None)
    if "sessions" not in config and "tree" not in prefix and draw.random() < 0.15:
        config["prefix"]["nested_prefix"] = False
    if draw.random() < 0.1:
        config["planning"]["block_residual_calibration"] = False
    return config


def _sessions(draw: random.Random, config: dict[str, Any]) -> dict[str, Any]:
    """Turns of a session; what does not go with it is taken out of the configuration."""
    if isinstance(config["input_length"], dict) and config["input_length"]["mode"] == "explicit":
        config["input_length"] = max(config["input_length"]["values"])
    if config["routing"].get("policy") == "round_robin":
        config["routing"] = {}
    turns = draw.randint(1, 4)
    config["request_count"] = turns * config["request_count"]
    answers = draw.choice(["planned", "served"])
    return {"turns": turns, "new_tokens": draw.choice([3, 200]), "answers": answers}


def _lengths(draw: random.Random, count: int, scale: int) -> Any:
    low, high = scale // 2 + 50, 2 * scale + 100
    match draw.choice(["fixed", "explicit", "truncated_normal", "histogram", "empirical"]):
        case "fixed":
            return scale + 50
        case "explicit":
            return {"mode": "explicit", "values": [draw.randint(low, high) for _ in range(count)]}
        case "truncated_normal":
            mean = (low + high) / 2
            return {
                "mode": "truncated_normal",
                "min": low,
                "max": high,
                "mean": mean,
                "std": mean / draw.choice([2, 6]),
            }
        case "histogram":
            middle = (low + high) // 2
            bins = [
                {"range": [low, middle], "weight": draw.randint(1, 5)},
                {"range": [middle, high], "weight": draw.randint(0, 5)},
            ]
            return {"mode": "histogram", "bins": bins}
        case _:
            return {"mode": "empirical", "values": [draw.randint(low, high) for _ in range(9)]}


def _prefix(draw: random.Random, count: int, block: int) -> dict[str, Any]:
    groups = draw.randint(1, min(count, draw.choice([2, 6, 60])))
    prefix: dict[str, Any] = {
        "mode": "multi_prefix",
        "minimum_non_shared_length": draw.choice([0, 1, block, 2 * block]),
    }
    if draw.random() < 0.15:
        top = {"name": "system", "length": draw.choice([block, 3 * block + 5])}
        return prefix | {"tree": [top, {"name": "tenant", "count": groups}]}
    if draw.random() < 0.5:
        popularity = {"mode": "zipf", "exponent": draw.choice([0, 0.7, 1.2])}
        shares = draw.choice([{}, {"popularity": popularity}])
        return prefix | {"group_count": groups} | shares
    weights = [draw.choice([1, 1, 2, 5]) for _ in range(groups)]
    named = [{"id": f"g{i}", "request_weight": w} for i, w in enumerate(weights)]
    return prefix | {"groups": named}


def _order(draw: random.Random) -> dict[str, Any]:
    leaders = draw.choice([None, None, "none", "first", "barrier"])
    order: dict[str, Any] = {} if leaders is None else {"leaders": leaders}
    if draw.random() < 0.3:
        return order | draw.choice([{}, {"reuse_distance": draw.randint(1, 40)}])
    if draw.random() < 0.5:
        return order | {"mode": draw.choice(_WORDS)}
    return order | {
        "within_group": draw.choice(_WORDS),
        "across_group": draw.choice([*_WORDS, "lag_robust"]),
    }


def _planning(draw: random.Random, blocks: int) -> dict[str, Any]:
    planning: dict[str, Any] = {
        "profile": draw.choice(["proportional", "proportional", "monotone", "ramp"]),
        "budget_policy": draw.choice(["global_ratio", "global_ratio", "proportional"]),
    }
    if draw.random() < 0.3:
        planning["concurrency"] = draw.randint(2, 20)
    if draw.random() < 0.3:
        planning["capacity_blocks"] = draw.randint(1, 30 * blocks)
    return planning


def _target(draw: random.Random, prefix: dict[str, Any]) -> dict[str, Any]:
    ratio = draw.choice([0.0, 0.3, 0.5, 0.6, 0.9, 1.0, draw.random()])
    semantics = draw.choice(["order_aware_global", "order_aware_global", "static_prefix_ratio"])
    target = {"hit_ratio": round(ratio, 4), "semantics": semantics}
    if draw.random() < 0.2 and "groups" in prefix:
        rows = [
            {"id": group["id"], "hit_ratio": round(draw.uniform(0, 0.8), 3)}
            for group in prefix["groups"]
        ]
        return {"scope": "per_group", "groups": rows, "semantics": semantics}
    return target
