"""How fast the analytic engine is, in CPU seconds; loading is counted apart.

    python benchmarks/trace_speed.py

First a whole process from 10,000 requests in JSON to every definition and the curve (at most 2.5 s
and 300 MiB). Then the bars of plan columns: one million requests of 256 blocks in 1,000 groups of
Zipf's popularity; all capacities in at most 2 s and one capacity in at most 0.3 s with numba, one
capacity in at most 10 s without. Then the published traces in `../shared/traces` (or where
PREFIXBENCH_SHARED says), if they are there.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import TypeVar

from prefixbench.exchange.load import open_trace
from prefixbench.exchange.trace import TraceFormat
from prefixbench.simulator.compiled import ChainColumns, compiled_hits, compiled_steps
from prefixbench.simulator.stack_distance import CapacityCurve, ChainRequest, LruChains
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache

T = TypeVar("T")

REQUESTS, BLOCKS, GROUPS, CAPACITY = 1_000_000, 256, 1_000, 200_000


def timed(work: Callable[[], T]) -> tuple[float, T]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


def bar(name: str, seconds: float, most: float | None = None, *, requests: int = REQUESTS) -> None:
    verdict = "" if most is None else f", bar {most:g} s: {'met' if seconds <= most else 'MISSED'}"
    print(f"  {name}: {seconds:.2f} s, {requests / seconds:,.0f} requests/s{verdict}")


def zipf_requests() -> list[ChainRequest]:
    draw = Random(1)
    weights = list(accumulate(1 / rank for rank in range(1, GROUPS + 1)))
    groups = draw.choices(range(GROUPS), cum_weights=weights, k=REQUESTS)
    shared = [draw.randrange(100, 200) for _ in groups]
    return [
        ChainRequest(group, depth, BLOCKS - depth)
        for group, depth in zip(groups, shared, strict=True)
    ]


def report_columns() -> None:
    print(f"{REQUESTS:,} requests of {BLOCKS} blocks, {GROUPS:,} groups:")
    requests = zipf_requests()
    cache = LruChains(CAPACITY)
    seconds, hits = timed(lambda: [cache.serve(request) for request in requests])
    bar("one capacity, pure Python", seconds, 10)
    if find_spec("numba") is None:
        print("  numba is not installed: the compiled loops are not timed")
        return
    loading, columns = timed(lambda: ChainColumns.of(requests))
    bar("columns out of records", loading)
    few = ChainColumns.of(requests[:9])
    compiling, _ = timed(lambda: (compiled_hits(few, 1), compiled_steps(few)))
    print(f"  numba loaded, loops compiled or read from its cache: {compiling:.2f} s")
    seconds, same = timed(lambda: compiled_hits(columns, CAPACITY))
    bar("one capacity, compiled", seconds, 0.3)
    seconds, curve = timed(
        lambda: CapacityCurve.from_steps(REQUESTS * BLOCKS, compiled_steps(columns))
    )
    bar("all capacities, compiled", seconds, 2)
    assert same == hits
    assert curve.tally(CAPACITY).hits == sum(hits)


def report_whole_process() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.jsonl"
        write_trace(path, 10_000)
        size = path.stat().st_size / 1e6
        command = [sys.executable, "-m", "prefixbench", "simulate", "--trace", str(path)]
        command += ["--format", "mooncake", "--curve", "--json"]
        environment = os.environ | {"PREFIXBENCH_CACHE": ""}
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds, memory = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(f"whole process, 10,000 requests of {BLOCKS} blocks, {size:.1f} MB of JSON:")
    bar("every definition and the curve", seconds, 2.5, requests=10_000)
    print(f"  memory: {memory:.0f} MiB, bar 300 MiB: {'met' if memory <= 300 else 'MISSED'}")


def write_trace(path: Path, count: int) -> None:
    """Chains of many groups, each request with blocks of its own behind them."""
    fresh = GROUPS * BLOCKS
    with path.open("w") as file:
        for number, request in enumerate(zipf_requests()[:count]):
            first = request.group * BLOCKS
            ids = [*range(first, first + request.shared), *range(fresh, fresh + request.own)]
            fresh += request.own
            row = {"timestamp": number, "input_length": 512 * BLOCKS, "output_length": 1}
            file.write(json.dumps(row | {"hash_ids": ids}) + "\n")


def report_published() -> None:
    default = Path(__file__).resolve().parents[2] / "shared"
    folder = Path(os.environ.get("PREFIXBENCH_SHARED", default)) / "traces"
    for name, form in (
        ("mooncake-fast25/conversation_trace.jsonl", TraceFormat.MOONCAKE),
        ("mooncake-fast25/synthetic_trace.jsonl", TraceFormat.MOONCAKE),
        ("weka-claude-code/kvct_runs.jsonl.gz", TraceFormat.WEKA),
    ):
        if (folder / name).exists():
            report_trace(folder / name, form)


def report_trace(path: Path, form: TraceFormat) -> None:
    loading, requests = timed(lambda: list(open_trace(path, form).requests))
    indexing, trace = timed(lambda: IndexedTrace(requests))
    cache = TraceCache(trace)
    curve, _ = timed(cache.lru_curve)
    one, _ = timed(lambda: cache.hit_blocks(10_000))
    stretches = sum(map(len, cache.stretches)) / len(requests)
    print(f"{path.name}: {trace.accesses / len(requests):,.0f} blocks a request, read as")
    print(f"  {stretches:.2f} stretches a request; reading {loading:.2f} s, tree {indexing:.2f} s")
    bar("all capacities", curve, requests=len(requests))
    bar("one more capacity", one, requests=len(requests))


def main() -> None:
    report_whole_process()  # first: a child's peak memory begins with its parent's
    report_columns()
    report_published()


if __name__ == "__main__":
    main()
