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

#: In a run of a second the p99 is all but the largest value, and every machine pauses now and then.
_LATE_TIMES = 3


class ClientVerdict(StrEnum):
    """Whether the client kept up with the load it was asked for."""

    OK = "ok"
    LATE = "late"
    BUSY = "busy"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientReport:
    """Lateness of the event loop and of sending, processor time, and the largest memory.

    `reason` is the number behind a verdict that is not ok.
    """

    loop_lag_ms_p99: float | None
    send_delay_ms_p99: float | None
    cpu_s: float
    max_rss_bytes: int | None
    verdict: ClientVerdict
    reason: str | None = None


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
        verdict, reason = judge_client(
            self._lags_ms, self.send_delays_ms, cpu_s=self._cpu_s, wall_s=self._wall_s
        )
        return ClientReport(
            loop_lag_ms_p99=percentile(self._lags_ms, 99),
            send_delay_ms_p99=percentile(self.send_delays_ms, 99),
            cpu_s=self._cpu_s,
            max_rss_bytes=_max_rss_bytes(),
            verdict=verdict,
            reason=reason,
        )

    async def _tick(self) -> None:
        while True:
            before_ns = self._clock.now_ns()
            await self._clock.sleep_ns(_TICK_NS)
            late_ns = self._clock.now_ns() - before_ns - _TICK_NS
            self._lags_ms.append(max(late_ns, 0) / _NS_PER_MS)


def judge_client(
    lags_ms: Sequence[float], delays_ms: Sequence[float], *, cpu_s: float, wall_s: float
) -> tuple[ClientVerdict, str | None]:
    """Whether the client kept up, and the number that says otherwise.

    It is late if more than one percent of its loop's wake-ups, or of its sendings, came late, and
    at least three did.
    """
    if wall_s > 0 and cpu_s / wall_s > _BUSY_SHARE:
        return ClientVerdict.BUSY, f"{cpu_s:.1f} s of processor time in {wall_s:.1f} s"
    for name, times_ms in (("event loop's lag", lags_ms), ("send delay", delays_ms)):
        p99_ms = percentile(times_ms, 99)
        often = sum(time_ms > _LATE_MS for time_ms in times_ms) >= _LATE_TIMES
        if often and p99_ms is not None and p99_ms > _LATE_MS:
            return ClientVerdict.LATE, f"p99 of its {name}: {p99_ms:.1f} ms"
    return ClientVerdict.OK, None


def _max_rss_bytes() -> int | None:
    """`getrusage` states kilobytes, on macOS bytes; Windows has none."""
    if sys.platform == "win32":
        return None
    import resource  # there is no such module on Windows

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
