"""When which request is sent: phases of each execution mode, arrivals, and who waits for whom."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

from prefixbench.config.execution import ExecutionMode

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


class Turn:
    """One request's place in its group: what it waits for, and what it tells those behind it."""

    __slots__ = ("_opened_by_first_token", "_wait_for", "done")

    def __init__(self, wait_for: asyncio.Event | None, *, opened_by_first_token: bool) -> None:
        self._wait_for = wait_for
        self._opened_by_first_token = opened_by_first_token
        self.done = asyncio.Event()

    @property
    def must_wait(self) -> bool:
        return self._wait_for is not None and not self._wait_for.is_set()

    async def wait(self) -> None:
        if self._wait_for is not None:
            await self._wait_for.wait()

    def first_token(self) -> None:
        if self._opened_by_first_token:
            self.done.set()

    def finished(self) -> None:
        """Also after a failure: nobody waits for a request that will not come."""
        self.done.set()


class Turns:
    """Hands out turns in sending order."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._latest: dict[str, asyncio.Event] = {}

    def take(self, group_id: str) -> Turn:
        """The turn of the group's next request."""
        wait_for = self._latest.get(group_id) if self._gate is not Gate.NONE else None
        turn = Turn(wait_for, opened_by_first_token=self._gate is Gate.PREDECESSOR)
        if self._gate is Gate.PREDECESSOR or group_id not in self._latest:
            self._latest[group_id] = turn.done
        return turn
