"""Sends the requests of one phase: in planned order, in a closed or an open loop.

Closed loop: so many slots; a free slot takes the next request. Open loop: each request has a
planned time and is sent then, late or not; a limit on requests in flight makes it wait. A gate
holds a request back until an earlier one of its group has come far enough, and a turn of a session
until the turn before it has ended; it keeps its slot meanwhile, so that the order never changes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass

from prefixbench.core.clock import Clock
from prefixbench.run.planned import PlannedRequest
from prefixbench.run.schedule import Gate, Ticket, Tickets

#: A stop is noticed at the latest after this time.
_LONGEST_SLEEP_NS = 100_000_000

_NO_LIMIT = 2**31


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One request that is about to be sent.

    `planned_ns`: when the schedule wants it sent; in a closed loop, when its slot became free.
    `ready_ns`: when nothing but this program stood between it and the wire.
    """

    request: PlannedRequest
    ticket: Ticket
    planned_ns: int
    ready_ns: int


Send = Callable[[Dispatch], Awaitable[None]]

#: Planned time of a request after the start of its phase, given its place in the order.
Arrival = Callable[[int, PlannedRequest], int]


class Dispatcher:
    """Sends requests until there are none, or until `stop` is set; then waits for those sent.

    With `arrival_ns` the loop is open. `concurrency` None is no limit in an open loop and 1 in a
    closed one.
    """

    def __init__(
        self,
        send: Send,
        *,
        clock: Clock,
        gate: Gate,
        concurrency: int | None,
        stop: asyncio.Event,
        arrival_ns: Arrival | None = None,
    ) -> None:
        self._send = send
        self._clock = clock
        self._tickets = Tickets(gate)
        self._concurrency = concurrency
        self._arrival_ns = arrival_ns
        self._stop = stop
        self._in_flight = 0
        self.most_in_flight = 0

    async def run(self, requests: Iterable[PlannedRequest]) -> None:
        """Send the requests in this order."""
        if self._arrival_ns is None:
            await self._closed_loop(iter(requests))
        else:
            await self._open_loop(iter(requests), self._arrival_ns)

    async def _closed_loop(self, rows: Iterator[PlannedRequest]) -> None:
        async with asyncio.TaskGroup() as slots:
            for _ in range(self._concurrency or 1):
                slots.create_task(self._slot(rows))

    async def _slot(self, rows: Iterator[PlannedRequest]) -> None:
        while not self._stop.is_set():
            planned_ns = self._clock.now_ns()
            request = next(rows, None)
            if request is None:
                return
            await self._deliver(request, self._tickets.take(request), planned_ns, planned_ns)

    async def _open_loop(self, rows: Iterator[PlannedRequest], arrival_ns: Arrival) -> None:
        limit = asyncio.Semaphore(self._concurrency or _NO_LIMIT)
        start_ns = self._clock.now_ns()
        async with asyncio.TaskGroup() as tasks:
            for index, request in enumerate(rows):
                planned_ns = start_ns + arrival_ns(index, request)
                await self._sleep_until(planned_ns)
                had_to_wait = limit.locked()
                await limit.acquire()
                if self._stop.is_set():
                    return
                ticket = self._tickets.take(request)
                ready_ns = self._clock.now_ns() if had_to_wait else planned_ns
                tasks.create_task(self._deliver_in(limit, request, ticket, planned_ns, ready_ns))

    async def _deliver_in(
        self,
        limit: asyncio.Semaphore,
        request: PlannedRequest,
        ticket: Ticket,
        planned_ns: int,
        ready_ns: int,
    ) -> None:
        try:
            await self._deliver(request, ticket, planned_ns, ready_ns)
        finally:
            limit.release()

    async def _deliver(
        self, request: PlannedRequest, ticket: Ticket, planned_ns: int, ready_ns: int
    ) -> None:
        try:
            if ticket.must_wait:
                await ticket.wait()
                ready_ns = self._clock.now_ns()
            if self._stop.is_set():
                return
            self._in_flight += 1
            self.most_in_flight = max(self.most_in_flight, self._in_flight)
            await self._send(
                Dispatch(request=request, ticket=ticket, planned_ns=planned_ns, ready_ns=ready_ns)
            )
            self._in_flight -= 1
        finally:
            ticket.finished()

    async def _sleep_until(self, moment_ns: int) -> None:
        while not self._stop.is_set():
            left_ns = moment_ns - self._clock.now_ns()
            if left_ns <= 0:
                return
            await self._clock.sleep_ns(min(left_ns, _LONGEST_SLEEP_NS))
