"""Time as an argument: the same engine runs offline in no time and live in real time."""

from __future__ import annotations

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """A source of nanoseconds and a way to wait for them."""

    def now_ns(self) -> int: ...

    async def sleep_ns(self, duration_ns: int) -> None: ...


class RealClock:
    """The machine's monotonic clock."""

    def now_ns(self) -> int:
        return time.perf_counter_ns()

    async def sleep_ns(self, duration_ns: int) -> None:
        await asyncio.sleep(duration_ns / 1e9)


class VirtualClock:
    """A clock that moves only when someone waits.

    >>> clock = VirtualClock()
    >>> asyncio.run(clock.sleep_ns(5)); clock.now_ns()
    5
    """

    def __init__(self, start_ns: int = 0) -> None:
        self._now_ns = start_ns

    def now_ns(self) -> int:
        return self._now_ns

    def advance(self, duration_ns: int) -> None:
        self._now_ns += duration_ns

    async def sleep_ns(self, duration_ns: int) -> None:
        self.advance(duration_ns)
