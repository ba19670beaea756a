"""The queue of requests that wait for admission: first come first served, or by priority."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import StrEnum
from heapq import heapify, heappop, heappush
from typing import Protocol

from prefixbench.simulator.request import LiveRequest


class Policy(StrEnum):
    """Order of admission."""

    FCFS = "fcfs"
    PRIORITY = "priority"
    LPM = "lpm"
    DFS_WEIGHT = "dfs-weight"


class WaitingQueue(Protocol):
    """Requests in order of admission."""

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[LiveRequest]: ...
    def first(self) -> LiveRequest: ...
    def add(self, live: LiveRequest) -> None: ...
    def add_preempted(self, live: LiveRequest) -> None: ...
    def remove_first(self) -> None: ...
    def remove(self, live: LiveRequest) -> None: ...


class ArrivalQueue(deque[LiveRequest]):
    """First come, first served; a preempted request goes before all others."""

    add = deque.append
    add_preempted = deque.appendleft
    remove_first = deque.popleft

    def first(self) -> LiveRequest:
        return self[0]


class PriorityQueue:
    """The smallest (priority, arrival) first; a preempted request takes its place again."""

    def __init__(self) -> None:
        self._heap: list[tuple[tuple[int, int], LiveRequest]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def __iter__(self) -> Iterator[LiveRequest]:
        return (live for _rank, live in self._heap)

    def first(self) -> LiveRequest:
        return self._heap[0][1]

    def add(self, live: LiveRequest) -> None:
        heappush(self._heap, (live.rank, live))

    def add_preempted(self, live: LiveRequest) -> None:
        self.add(live)

    def remove_first(self) -> None:
        heappop(self._heap)

    def remove(self, live: LiveRequest) -> None:
        self._heap.remove((live.rank, live))
        heapify(self._heap)


def waiting_queue(policy: Policy) -> WaitingQueue:
    return PriorityQueue() if policy is Policy.PRIORITY else ArrivalQueue()
