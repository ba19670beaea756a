"""When simulated requests were sent, admitted, answered and done, and the work till then."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from prefixbench.simulator.cost import NO_WORK, Work
from prefixbench.simulator.engine import StepOutcome


@dataclass(slots=True, kw_only=True)
class Moments:
    """Moments of one request, in ns of the cluster's clock, and the place that served it."""

    sent_ns: int
    place: int = 0
    admitted_ns: int = 0
    first_token_ns: int = 0
    finished_ns: int = 0
    output_len: int = 0

    @property
    def queued_ns(self) -> int:
        return self.admitted_ns - self.sent_ns

    @property
    def ttft_ns(self) -> int:
        return self.first_token_ns - self.sent_ns

    @property
    def decode_ns(self) -> int:
        return self.finished_ns - self.first_token_ns

    @property
    def e2e_ns(self) -> int:
        return self.finished_ns - self.sent_ns


@dataclass(slots=True)
class _Ledger:
    """Work done up to each moment at which a step began or ended."""

    moments_ns: list[int] = field(default_factory=lambda: [0])
    done: list[Work] = field(default_factory=lambda: [NO_WORK])

    def add(self, start_ns: int, end_ns: int, work: Work) -> None:
        before = self.done[-1]
        self.moments_ns += [start_ns, end_ns]
        self.done += [before, before.plus(work)]

    def until(self, moment_ns: int) -> Work:
        """Work up to a moment; inside a step in proportion to time."""
        at = bisect_right(self.moments_ns, moment_ns)
        if at == len(self.moments_ns):
            return self.done[-1]
        start_ns, end_ns = self.moments_ns[at - 1], self.moments_ns[at]
        part = (moment_ns - start_ns) / (end_ns - start_ns)
        return self.done[at - 1].times(1 - part).plus(self.done[at].times(part))


class Stopwatch:
    """A cluster's watch: every request's moments, and the work between any two of them."""

    def __init__(self) -> None:
        self._moments: dict[str, Moments] = {}
        self._ledgers: defaultdict[int, _Ledger] = defaultdict(_Ledger)

    @property
    def moments(self) -> Mapping[str, Moments]:
        return self._moments

    def sent(self, request_id: str, now_ns: int) -> None:
        self._moments[request_id] = Moments(sent_ns=now_ns)

    def stepped(self, place: int, outcome: StepOutcome, end_ns: int) -> None:
        start_ns = end_ns - outcome.duration_ns
        self._ledgers[place].add(start_ns, end_ns, outcome.work)
        for request_id in outcome.hits:
            self._moments[request_id].place = place
            self._moments[request_id].admitted_ns = start_ns
        for request_id in outcome.sampled:
            moments = self._moments[request_id]
            moments.first_token_ns = moments.first_token_ns or end_ns
            moments.output_len += outcome.times
        for request_id in outcome.finished:
            self._moments[request_id].finished_ns = end_ns

    def work_between(self, place: int, start_ns: int, end_ns: int) -> Work:
        """What the engine at a place computed between two moments."""
        ledger = self._ledgers[place]
        return ledger.until(end_ns).plus(ledger.until(start_ns).times(-1))
