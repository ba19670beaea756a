"""What the client of `prefixbench run` costs: processor time a request, start-up, memory.

    python benchmarks/client_cost.py [--requests 3000] [--chunks 100] [--concurrency 64]

A separate process answers each request with so many chunks at once, the cheapest server there can
be, so that what is printed is the client's own cost: the whole path of a measured request, from
the row on disk to the row of results. Bars (peers.md section 5): at most 0.5 ms of processor time
a request at 100 chunks and concurrency 64, start-up below 1 s, memory below 100 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from prefixbench.core.version import FORMAT_VERSION
from prefixbench.dataset.layout import DATA, METADATA, row
from prefixbench.dataset.writer import DatasetWriter
from prefixbench.run.calibration import calibration_endpoint
from prefixbench.run.journal import RunResult
from prefixbench.run.loops import loop_factory
from prefixbench.run.options import RunOptions
from prefixbench.run.runner import run_dataset_async

PROMPT_CHARS = 16_000


def _dataset(folder: Path, requests: int, chunks: int) -> None:
    """Rows of the right size; what they say does not matter here."""
    text = "The " + "word " * (PROMPT_CHARS // 5)
    metadata = {
        "prefix_group_id": "g",
        "input_len": 4096,
        "output_len": chunks,
        "planned_prefix_len": 0,
        "cached_watermark_before": 0,
        "expected_hit_len": 0,
        "planned_dp_id": 0,
        "planned_instance_id": 0,
    }
    with DatasetWriter(folder, dataset_id="client_cost", identity="client_cost") as writer:
        for index in range(requests):
            name = {"request_id": f"r{index}"}
            data = row({**name, "prompt": text, "max_tokens": chunks})
            writer.write({DATA: [data], METADATA: [row({**name, **metadata})]})
        writer.finish(
            {
                "dataset_id": "client_cost",
                "format_version": FORMAT_VERSION,
                "request_count": requests,
                "block_size": 16,
                "hit_granularity": 16,
                "head_len": 0,
                "tail_len": 0,
                "config": {"execution": {"mode": "cold"}},
            },
            {},
        )


async def _run(dataset: Path, output: Path, chunks: int, concurrency: int) -> RunResult:
    async with calibration_endpoint(chunks, delay_ms=0) as url:
        return await run_dataset_async(
            RunOptions(
                dataset=dataset,
                urls=(url,),
                output=output,
                concurrency=concurrency,
                isolation="none",
                metrics_optional=True,
            )
        )


def _start_up_s() -> float:
    """Until a fresh process could send its first request, without the server's part."""
    started_s = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import prefixbench.run.runner"], check=True)
    return time.perf_counter() - started_s


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=64)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        dataset = Path(folder, "dataset")
        _dataset(dataset, asked.requests, asked.chunks)
        output = Path(folder, "run")
        with asyncio.Runner(loop_factory=loop_factory()) as runner:
            result = runner.run(_run(dataset, output, asked.chunks, asked.concurrency))
    (phase,) = result.runtime.performance.phases
    client = phase["client"]
    print(f"requests answered            {phase['requests']['succeeded']}")
    print(f"requests a second            {phase['qps']:.0f}")
    print(f"CPU a request                {client['cpu_s'] / asked.requests * 1000:.3f} ms")
    print(f"start-up                     {_start_up_s():.2f} s")
    print(f"peak memory                  {_peak_mb():.0f} MB")


if __name__ == "__main__":
    main()
