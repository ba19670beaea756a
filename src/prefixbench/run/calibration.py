"""What this client adds to a time to first token, measured against a server of known timing.

Each figure is the client's less the server's: mean of the times to first token less mean of the
delays that the server made, and likewise for the 99th percentile. The way over loopback is in it.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import orjson

from prefixbench.core.clock import Clock
from prefixbench.core.percentiles import percentile
from prefixbench.run.client import Client

_CHUNKS = 16
_DELAY_MS = 20.0
_LEAST_REQUESTS = 50
_REQUESTS_A_SLOT = 8
_TIMEOUT_S = 10.0
_BODY = orjson.dumps({"prompt": "word " * 3000, "max_tokens": _CHUNKS, "stream": True})


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The client's own share of a time to first token, and its processor time a request."""

    requests: int
    concurrency: int
    ttft_bias_ms_mean: float
    ttft_bias_ms_p99: float
    cpu_ms_per_request: float


async def calibrate(clock: Clock, concurrency: int) -> Calibration:
    """Measure at this concurrency; takes about a second."""
    requests = max(_LEAST_REQUESTS, _REQUESTS_A_SLOT * concurrency)
    async with (
        calibration_endpoint(_CHUNKS, _DELAY_MS) as url,
        Client(clock, timeout_s=_TIMEOUT_S) as client,
    ):
        cpu_s = time.process_time()
        ttft_ms = await _first_tokens_ms(client, url, requests, concurrency)
        cpu_s = time.process_time() - cpu_s
        waited_ms = orjson.loads((await client.get(url + "/waited")).text)
    return Calibration(
        requests=len(ttft_ms),
        concurrency=concurrency,
        ttft_bias_ms_mean=_mean(ttft_ms) - _mean(waited_ms),
        ttft_bias_ms_p99=_p99(ttft_ms) - _p99(waited_ms),
        cpu_ms_per_request=cpu_s / requests * 1000,
    )


@asynccontextmanager
async def calibration_endpoint(chunks: int, delay_ms: float) -> AsyncIterator[str]:
    """A server of known timing in a process of its own; yields its base address."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "prefixbench.run.calibration_endpoint", str(chunks), str(delay_ms)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        yield f"http://127.0.0.1:{int(await process.stdout.readline())}"
    finally:
        process.stdin.close()
        await process.wait()


async def _first_tokens_ms(
    client: Client, url: str, requests: int, concurrency: int
) -> list[float]:
    found: list[float] = []
    left = iter(range(requests))

    async def slot() -> None:
        for _ in left:
            exchange = await client.complete(url + "/v1/completions", _BODY)
            if exchange.first_token_ns is not None:
                found.append((exchange.first_token_ns - exchange.sent_ns) / 1e6)

    await asyncio.gather(*(slot() for _ in range(concurrency)))
    return found


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _p99(values: list[float]) -> float:
    return percentile(values, 99) or 0.0
