"""What planning costs: processor time and memory for exact plans of very large data sets.

    python benchmarks/planning_speed.py [--requests 10000000] [--groups 10000]

Lengths and groups are given (normal lengths, Zipf groups); what is timed is the plan and the count
of what it hits, which must miss the target by 0 blocks. Bars: 10 million requests in at most 3 CPU
s and 1.2 GiB, 100,000 in at most 0.05 CPU s, 200,000 for caches of 20,000 blocks in at most 2 CPU s
with the extra `fast`. The table of concurrency and loading the compiled loops are timed apart.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

from prefixbench.config.load import parse_config
from prefixbench.simulator.compiled import (
    WORTH_COMPILING,
    ChainColumns,
    compiled_depths,
    is_worth_compiling,
)
from prefixbench.simulator.stack_distance import ChainRequest
from prefixbench.workload.columns import Workload
from prefixbench.workload.planner import Plan, plan_setting
from prefixbench.workload.setting import Frame, geometry_of, settle

BLOCK = 16
SMALL, SMALL_GROUPS = 100_000, 300
LIMITED, LIMITED_GROUPS, CAPACITY = 200_000, 300, 20_000

Result = TypeVar("Result")


def workload_of(requests: int, groups: int, mean: int, seed: int = 1) -> Workload:
    """Normal lengths around a mean, groups with Zipf shares in random order."""
    random = np.random.default_rng(seed)
    lengths = random.normal(mean, mean / 4, requests).clip(mean // 4, 2 * mean).astype(np.int32)
    weights = 1 / np.arange(1, groups + 1)
    counts = np.maximum(weights / weights.sum() * requests, 1).astype(np.int64)
    counts[0] += requests - counts.sum()
    group = np.repeat(np.arange(groups, dtype=np.int32), counts)
    random.shuffle(group)
    return Workload(
        input_len=lengths,
        output_len=np.ones(requests, np.int32),
        group=group,
        group_ids=tuple(f"group_{number}" for number in range(groups)),
        group_weights=tuple(weights.tolist()),
    )


def planned(workload: Workload, ratio: float, **planning: Any) -> Plan:
    config = parse_config(
        {
            "request_count": workload.request_count,
            "block_size": BLOCK,
            "input_length": 1,
            "target": {"hit_ratio": ratio},
            "prefix": {"group_count": len(workload.group_ids)},
            "planning": planning,
        }
    )
    plan = plan_setting(settle(config, workload, geometry_of(config, BLOCK, Frame())))
    _ = plan.hit_blocks
    return plan


def timed(work: Callable[[], Result]) -> tuple[Result, float]:
    start = time.process_time()
    result = work()
    return result, time.process_time() - start


def time_plan(
    requests: int, groups: int, ratio: float, *, mean: int = 4096, **planning: Any
) -> None:
    """Plan a workload of its own, so that nothing sorted before is used again."""
    workload = workload_of(requests, groups, mean)
    plan, seconds = timed(lambda: planned(workload, ratio, **planning))
    residual = plan.hit_blocks - plan.targets.total
    peak_gib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    limits = "".join(f", {value:,} {name}" for name, value in planning.items())
    print(
        f"{requests:,} requests, {groups:,} groups{limits}, {ratio}: residual {residual} blocks,"
        f" {plan.steps} counts, {seconds:.3f} CPU s, peak {peak_gib:.2f} GiB"
    )


def time_loading() -> None:
    """Compile the loops of limited caches, or load them where they were compiled before."""
    chain = ChainColumns.of([ChainRequest(0, 1, 1)])
    compiled = is_worth_compiling(WORTH_COMPILING)
    _, seconds = timed(lambda: compiled and compiled_depths(chain, np.zeros(1, np.int64), 1))
    print(f"compiled caches: {f'{seconds:.3f} CPU s to load' if compiled else 'no numba'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=10_000_000)
    parser.add_argument("--groups", type=int, default=10_000)
    options = parser.parse_args()
    for ratio in (0.5, 0.6, 0.9):
        time_plan(SMALL, SMALL_GROUPS, ratio)
    for ratio in (0.5, 0.6, 0.9):
        time_plan(options.requests, options.groups, ratio)
    time_loading()
    for ratio in (0.3, 0.5, 0.6):
        time_plan(LIMITED, LIMITED_GROUPS, ratio, mean=1024, capacity_blocks=CAPACITY)
    plan = planned(workload_of(options.requests, options.groups, mean=4096), 0.5)
    hits, seconds = timed(lambda: plan.hits_at_reported_lags)
    print(f"hits at concurrency {', '.join(map(str, hits))}: {seconds:.1f} CPU s")


if __name__ == "__main__":
    main()
