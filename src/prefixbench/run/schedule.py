"""When which request is sent: phases of each execution mode, arrivals, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from prefixbench.config.execution import ExecutionMode
from prefixbench.run.planned import PlannedRequest

_NS_PER_S = 1_000_000_000
_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One measured pass over the data set.

    `isolated`: what the cache holds from before must not be found. `warmed`: warm-up requests are
    sent first; they belong to the phase and are never measured.
    """

    name: str
    round: int
    isolated: bool
    warmed: bool


def phases_of(mode: ExecutionMode, rounds: int) -> tuple[Phase, ...]:
    """The phases of a run in order (RFC 3.1.5); the last one is the headline.

    Every round starts as the first one did, so that rounds are repetitions and not a sequence.

    >>> [phase.name for phase in phases_of(ExecutionMode.COMPARE, 1)]
    ['cold', 'hot']
    """
    return tuple(
        phase for number in range(1, rounds + 1) for phase in _phases_of_round(mode, number)
    )


def _phases_of_round(mode: ExecutionMode, number: int) -> tuple[Phase, ...]:
    match mode:
        case ExecutionMode.COLD | ExecutionMode.PROGRESSIVE_PREFIX_FILL:
            return (Phase(name=mode.value, round=number, isolated=True, warmed=False),)
        case ExecutionMode.WARMUP:
            return (Phase(name=mode.value, round=number, isolated=True, warmed=True),)
        case ExecutionMode.HOT:
            return (Phase(name=mode.value, round=number, isolated=False, warmed=True),)
        case ExecutionMode.COMPARE:
            return (
                Phase(name="cold", round=number, isolated=True, warmed=False),
                Phase(name="hot", round=number, isolated=True, warmed=True),
            )
        case _:
            assert_never(mode)


def evenly_spaced_ns(index: int, request_rate: float) -> int:
    """Planned time of a request after the start of its phase, at so many requests a second.

    >>> evenly_spaced_ns(3, 2.0)
    1500000000
    """
    return round(index / request_rate * _NS_PER_S)


def recorded_ns(arrival_ms: float) -> int:
    """The same from an arrival time that stands in the data set."""
    return round(arrival_ms * _NS_PER_MS)


class Gate(StrEnum):
    """Which earlier request of its group a request waits for."""

    NONE = "none"
    #: `preserve_group_dependency`: the one before it in the group, until its first token.
    PREDECESSOR = "predecessor"
    #: `leaders: barrier`: the first one of the group, until it has finished.
    LEADER = "leader"


class Ticket:
    """One request's place in the order: what it waits for, and what it tells those behind it.

    `passed` opens the gate of its group, `ended` lets the next turn of its session go.
    """

    __slots__ = ("_opened_by_first_token", "_wait_for", "ended", "passed")

    def __init__(self, wait_for: Sequence[asyncio.Event], *, opened_by_first_token: bool) -> None:
        self._wait_for = wait_for
        self._opened_by_first_token = opened_by_first_token
        self.passed = asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def must_wait(self) -> bool:
        return not all(event.is_set() for event in self._wait_for)

    async def wait(self) -> None:
        for event in self._wait_for:
            await event.wait()

    def first_token(self) -> None:
        if self._opened_by_first_token:
            self.passed.set()

    def finished(self) -> None:
        """Also after a failure: nobody waits for a request that will not come."""
        self.passed.set()
        self.ended.set()


class Tickets:
    """Hands out tickets in sending order.

    Whatever the gate, a turn of a session waits until the turn before it has ended. Everything
    that is waited for stands before it in the order, so that no two requests wait for each other.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._latest: dict[str, asyncio.Event] = {}
        self._ends_of_turns: dict[str, asyncio.Event] = {}

    def take(self, request: PlannedRequest) -> Ticket:
        """The ticket of the next request."""
        group_id, history_id = request.group_id, request.history_id
        gate = self._latest.get(group_id) if self._gate is not Gate.NONE else None
        turn_before = self._ends_of_turns.pop(history_id, None) if history_id else None
        ticket = Ticket(
            [event for event in (gate, turn_before) if event is not None],
            opened_by_first_token=self._gate is Gate.PREDECESSOR,
        )
        if self._gate is Gate.PREDECESSOR or group_id not in self._latest:
            self._latest[group_id] = ticket.passed
        if request.has_later_turn:
            self._ends_of_turns[request.request_id] = ticket.ended
        return ticket
