"""How fast the simulator is: the event engine on recorded traces, the analytic one on columns.

    python benchmarks/simulator_speed.py [TRACE.json ...]

Without arguments the big recorded traces are taken from `../shared/goldens` (or from the folder
that PREFIXBENCH_SHARED names). The event engine is timed from the parsed file to its results, best
of several runs, as the real scheduler was, in pure Python and, where numba is installed, compiled;
what loading the compiled loops takes (compiling them where nothing is kept on disk) stands apart.
The machine is measured in turn with it, and the ratio is scaled to the machine on which the real
scheduler was timed. Processor time counts, so that what else runs meanwhile matters less.
"""

from __future__ import annotations

import json
import os
import sys
import time
import timeit
from collections.abc import Callable
from pathlib import Path
from random import Random

from prefixbench.simulator.compiled import ChainColumns, can_compile, compiled_hits, compiled_steps
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.replay_steps import replay_steps
from prefixbench.simulator.stack_distance import ChainRequest, lru_curve, lru_hits

#: Requests per second of vLLM 0.32.0's own scheduler on one core, and what the loop below took in
#: the same minutes (85 to 96 ms).
REAL_SCHEDULER = {"j-big-000": 5_400, "j-big-003": 1_600, "j-big-004": 1_800}
REFERENCE_LOOP_S = 0.090
RUNS = 9


def best_of(*works: Callable[[], object], runs: int = RUNS) -> list[float]:
    """The least processor time of each, in seconds; they are run in turn."""
    turns = [
        [timeit.timeit(work, timer=time.process_time, number=1) for work in works]
        for _ in range(runs)
    ]
    return [min(times) for times in zip(*turns, strict=True)]


def machine_loop() -> int:
    """The yardstick: `python -m timeit -n 1 -r 7 'sum(range(10_000_000))'`."""
    return sum(range(10_000_000))


def big_traces() -> list[Path]:
    default = Path(__file__).resolve().parents[2] / "shared"
    shared = Path(os.environ.get("PREFIXBENCH_SHARED", default))
    return sorted((shared / "goldens" / "vllm-0.32").glob("j-big-*.json"))


def event_paths() -> list[PlayPath]:
    return [PlayPath.PURE, PlayPath.COMPILED] if can_compile() else [PlayPath.PURE]


def report_loading(path: Path) -> None:
    """What the first replay on the compiled path takes beyond a later one."""
    trace = json.loads(path.read_text(encoding="utf-8"))
    first, later = (best_of(lambda: replay_steps(trace, PlayPath.COMPILED), runs=1) for _ in "12")
    print(f"loading the compiled loops: {first[0] - later[0]:.2f} s")


def report_event_engine(path: Path) -> None:
    trace = json.loads(path.read_text(encoding="utf-8"))
    for way in event_paths():
        loop_s, seconds = best_of(machine_loop, lambda way=way: replay_steps(trace, way))
        rate = len(trace["requests"]) / seconds
        real = REAL_SCHEDULER.get(path.stem)
        line = f"{path.stem}, {way}: {rate:,.0f} requests/s, loop {loop_s * 1e3:.0f} ms"
        if real is not None:
            scaled = rate / real * loop_s / REFERENCE_LOOP_S
            line += f", {rate / real:.1f} x the real scheduler, {scaled:.1f} x scaled to it"
        print(line)


def chains(count: int, groups: int = 1_000) -> list[ChainRequest]:
    """Requests of about 256 blocks, groups as often as Zipf says."""
    draw = Random(1)
    weights = [1 / (rank + 1) for rank in range(groups)]
    return [
        ChainRequest(group, draw.randrange(100, 200), draw.randrange(50, 150))
        for group in draw.choices(range(groups), weights, k=count)
    ]


def report_analytic_engine(capacity: int = 200_000) -> None:
    requests = chains(100_000)
    one_s, every_s = best_of(
        lambda: lru_hits(requests, capacity), lambda: lru_curve(requests), runs=3
    )
    print(f"analytic, {len(requests):,} requests of 256 blocks, pure Python:")
    print(f"  one capacity {one_s:.2f} s, every capacity {every_s:.2f} s")
    if can_compile():
        columns = ChainColumns.of(chains(1_000_000))
        one_s, every_s = best_of(
            lambda: compiled_hits(columns, capacity), lambda: compiled_steps(columns), runs=4
        )
        print("analytic, 1,000,000 requests of 256 blocks as columns, compiled:")
        print(f"  one capacity {one_s:.2f} s, every capacity {every_s:.2f} s")


def main(arguments: list[str]) -> None:
    traces = [Path(argument) for argument in arguments] or big_traces()
    if traces and can_compile():
        report_loading(traces[0])
    for path in traces:
        report_event_engine(path)
    if not traces:
        print("no recorded traces here: name some, or set PREFIXBENCH_SHARED")
    report_analytic_engine()


if __name__ == "__main__":
    main(sys.argv[1:])
