"""The client watches itself: a figure that the client's own slowness made must not pass unseen."""

from __future__ import annotations

import asyncio
import sys
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import TracebackType
from typing import Self

from prefixbench.core.clock import Clock
from prefixbench.core.percentiles import percentile

_TICK_NS = 10_000_000
_NS_PER_MS = 1e6

#: Above these the client is part of what was measured: a few percent of a usual first token.
_LATE_MS = 10.0
_BUSY_SHARE = 0.9


class ClientVerdict(StrEnum):
    """Whether the client kept up with the load it was asked for."""

    OK = "ok"
    LATE = "late"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReport:
    """Lateness of the event loop and of sending, processor time, and the largest memory."""

    loop_lag_ms_p99: float | None
    send_delay_ms_p99: float | None
    cpu_s: float
    max_rss_bytes: int | None
    verdict: ClientVerdict


class ClientObserver:
    """Async context manager around a phase; `send_delays_ms` is filled by who sends."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lags_ms = array("d")
        self.send_delays_ms = array("d")

    async def __aenter__(self) -> Self:
        self._started_ns = self._clock.now_ns()
        self._cpu_s = time.process_time()
        self._task = asyncio.create_task(self._tick())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        self._cpu_s = time.process_time() - self._cpu_s
        self._wall_s = (self._clock.now_ns() - self._started_ns) / 1e9

    def report(self) -> ClientReport:
        """What was seen, after the phase."""
        lag_ms = percentile(self._lags_ms, 99)
        delay_ms = percentile(self.send_delays_ms, 99)
        return ClientReport(
            loop_lag_ms_p99=lag_ms,
            send_delay_ms_p99=delay_ms,
            cpu_s=self._cpu_s,
            max_rss_bytes=_max_rss_bytes(),
            verdict=_verdict([lag_ms, delay_ms], self._cpu_s, self._wall_s),
        )

    async def _tick(self) -> None:
        while True:
            before_ns = self._clock.now_ns()
            await self._clock.sleep_ns(_TICK_NS)
            late_ns = self._clock.now_ns() - before_ns - _TICK_NS
            self._lags_ms.append(max(late_ns, 0) / _NS_PER_MS)


def _verdict(lateness_ms: Sequence[float | None], cpu_s: float, wall_s: float) -> ClientVerdict:
    if wall_s > 0 and cpu_s / wall_s > _BUSY_SHARE:
        return ClientVerdict.BUSY
    if any(value is not None and value > _LATE_MS for value in lateness_ms):
        return ClientVerdict.LATE
    return ClientVerdict.OK


def _max_rss_bytes() -> int | None:
    """`getrusage` states kilobytes, on macOS bytes; Windows has none."""
    if sys.platform == "win32":
        return None
    import resource  # there is no such module on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
