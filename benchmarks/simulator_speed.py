"""How fast the simulator is: the event engine on recorded traces, the analytic one on columns.

    python benchmarks/simulator_speed.py [TRACE.json ...]

Without arguments the big recorded traces are taken from `../shared/goldens` (or from the folder
that PREFIXBENCH_SHARED names). The event engine is timed from the parsed file to its results, best
of several runs, as the real scheduler was; the machine is measured beside it, and the ratio is
scaled to the machine on which the real scheduler was timed.
"""

from __future__ import annotations

import json
import os
import sys
import timeit
from collections.abc import Callable
from pathlib import Path
from random import Random

from prefixbench.simulator.replay_steps import replay_steps
from prefixbench.simulator.stack_distance import ChainRequest, lru_curve, lru_hits

#: Requests per second of vLLM 0.32.0's own scheduler on one core, and what the loop below took in
#: the same minutes (85 to 96 ms).
REAL_SCHEDULER = {"j-big-000": 5_400, "j-big-003": 1_600, "j-big-004": 1_800}
REFERENCE_LOOP_S = 0.090
RUNS = 7


def best_of(work: Callable[[], object], runs: int = RUNS) -> float:
    return min(timeit.repeat(work, number=1, repeat=runs))


def machine_loop_s() -> float:
    """The yardstick: `python -m timeit -n 1 -r 7 'sum(range(10_000_000))'`."""
    return best_of(lambda: sum(range(10_000_000)))


def big_traces() -> list[Path]:
    default = Path(__file__).resolve().parents[2] / "shared"
    shared = Path(os.environ.get("PREFIXBENCH_SHARED", default))
    return sorted((shared / "goldens" / "vllm-0.32").glob("j-big-*.json"))


def report_event_engine(path: Path) -> None:
    trace = json.loads(path.read_text(encoding="utf-8"))
    loop_s = machine_loop_s()
    seconds = best_of(lambda: replay_steps(trace))
    rate = len(trace["requests"]) / seconds
    real = REAL_SCHEDULER.get(path.stem)
    line = f"{path.stem}: {rate:,.0f} requests/s, loop {loop_s * 1e3:.0f} ms"
    if real is not None:
        scaled = rate / real * loop_s / REFERENCE_LOOP_S
        line += f", {rate / real:.1f} x the real scheduler, {scaled:.1f} x scaled to its machine"
    print(line)


def report_analytic_engine(
    count: int = 100_000, groups: int = 1_000, capacity: int = 200_000
) -> None:
    draw = Random(1)
    weights = [1 / (rank + 1) for rank in range(groups)]
    requests = [
        ChainRequest(group, draw.randrange(100, 200), draw.randrange(50, 150))
        for group in draw.choices(range(groups), weights, k=count)
    ]
    one = count / best_of(lambda: lru_hits(requests, capacity), 3)
    every = count / best_of(lambda: lru_curve(requests), 3)
    print(f"analytic, {count:,} requests of 256 blocks, {groups:,} groups, pure Python:")
    print(f"  one capacity {one:,.0f} requests/s, every capacity {every:,.0f} requests/s")


def main(arguments: list[str]) -> None:
    traces = [Path(argument) for argument in arguments] or big_traces()
    for path in traces:
        report_event_engine(path)
    if not traces:
        print("no recorded traces here: name some, or set PREFIXBENCH_SHARED")
    report_analytic_engine()


if __name__ == "__main__":
    main(sys.argv[1:])
