"""Which rank a request goes to when its client does not say.

The rule is vLLM's internal balancing (engine-semantics section 10, read in 0.33): the lowest score
wins, the scan for it starts one rank later after each pick, and what is cached plays no part. An
idle server therefore spreads a sequential client's requests evenly over the ranks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RankLoad:
    """What the balancer sees of a rank; `kv_usage` is 0..1."""

    in_flight: int
    running: int
    waiting: int
    kv_usage: float

    @property
    def score(self) -> float:
        """Requests on the rank, and a penalty for a queue before a pool more than half full."""
        requests = max(self.in_flight, self.waiting + self.running)
        return requests + 6 * self.waiting * max(0.0, self.kv_usage - 0.5)


class Balancer:
    """Picks ranks; remembers only where the next scan starts.

    >>> idle = RankLoad(in_flight=0, running=0, waiting=0, kv_usage=0.0)
    >>> balancer = Balancer()
    >>> [balancer.pick([idle, idle, idle]) for _ in range(4)]
    [0, 1, 2, 0]
    """

    def __init__(self) -> None:
        self._start = 0

    def pick(self, loads: Sequence[RankLoad]) -> int:
        count = len(loads)
        scan = [(self._start + offset) % count for offset in range(count)]
        self._start = (self._start + 1) % count
        return min(scan, key=lambda rank: loads[rank].score)
