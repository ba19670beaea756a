"""Several engines behind one router: DP ranks, instances, or both.

Each engine has its own virtual clock; together they move in the order in which steps end, and
steps that end at the same time end together. Where steps take no time (`CostModel.ORDER_ONLY`),
all engines that have work take one step each.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Protocol

from prefixbench.core.clock import VirtualClock
from prefixbench.core.tally import HitTally, total
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.routing import Arrival, RankLoad, Router

#: A place and an affinity: the only where a prefix of a group can be found again.
Domain = tuple[int, str]


class Watch(Protocol):
    """Somebody who is told what happens, and when, on the cluster's clock."""

    def sent(self, request_id: str, now_ns: int) -> None: ...
    def stepped(self, place: int, outcome: StepOutcome, end_ns: int) -> None: ...


class Cluster:
    """Engines, each at its place, and the router in front of them.

    `by_domain` are the tokens that requests found on the device when first admitted, out of their
    prompts; what tiers below gave is in the engines' own statistics.
    """

    def __init__(self, engines: Sequence[Engine], router: Router) -> None:
        self.engines = tuple(engines)
        #: May be set at any time; it is told of what is sent from then on.
        self.watch: Watch | None = None
        self.by_domain: dict[Domain, HitTally] = defaultdict(lambda: HitTally(0, 0))
        self._router = router
        self._now_ns = 0
        # Steps that have begun, by place; their engines' clocks show when they end.
        self._begun: dict[int, StepOutcome] = {}
        self._arrivals: dict[str, tuple[int, Arrival]] = {}
        self._in_flight = [0] * len(self.engines)

    @property
    def now_ns(self) -> int:
        """The moment the steps that ended last ended."""
        return self._now_ns

    @property
    def has_work(self) -> bool:
        return bool(self._begun) or any(engine.has_work for engine in self.engines)

    def submit(self, arrival: Arrival) -> int:
        """Send a request where it is pinned or the router says; returns the place."""
        place = arrival.pinned
        if place is None:
            place = self._router.pick(arrival, [self._load(at) for at in range(len(self.engines))])
        engine = self.engines[place]
        idle_ns = self._now_ns - engine.clock.now_ns()
        if idle_ns > 0 and isinstance(engine.clock, VirtualClock):
            engine.clock.advance(idle_ns)
        engine.submit(arrival.request)
        if self.watch is not None:
            self.watch.sent(arrival.request.request_id, self._now_ns)
        self._arrivals[arrival.request.request_id] = (place, arrival)
        self._in_flight[place] += 1
        return place

    def step(self, limit: int = 1, until_ns: int | None = None) -> list[StepOutcome]:
        """The steps that end next. `limit` as for an engine: nothing may arrive in between.

        None, and it is `until_ns`, where all end later than that.
        """
        for place, engine in enumerate(self.engines):
            if engine.has_work and place not in self._begun:
                self._begun[place] = engine.step(limit)
        ends_ns = {place: self.engines[place].clock.now_ns() for place in self._begun}
        next_end_ns = min(ends_ns.values(), default=until_ns)
        if until_ns is not None and (next_end_ns is None or next_end_ns > until_ns):
            self._now_ns = until_ns
            return []
        self._now_ns = self._now_ns if next_end_ns is None else next_end_ns
        due = [place for place, end_ns in ends_ns.items() if end_ns == self._now_ns]
        outcomes = [self._begun.pop(place) for place in due]
        for place, outcome in zip(due, outcomes, strict=True):
            self._book(outcome)
            if self.watch is not None:
                self.watch.stepped(place, outcome, self._now_ns)
        return outcomes

    def play(self, arrivals: Iterable[Arrival], concurrency: int = 1) -> dict[str, int]:
        """Serve all, `concurrency` on their way at a time; returns each one's hit tokens."""
        hits: dict[str, int] = {}
        coming = iter(arrivals)
        more = True
        while more or self.has_work:
            while more and sum(self._in_flight) < concurrency:
                arrival = next(coming, None)
                more = arrival is not None
                if arrival is not None:
                    self.submit(arrival)
            for outcome in self.step(limit=1 << 30 if concurrency == 1 else 1):
                hits.update(outcome.hits)
        return hits

    def play_in_time(self, arrivals: Iterable[tuple[int, Arrival]]) -> None:
        """Serve all, each sent at its moment (ns of the engines' clock, ascending)."""
        for at_ns, arrival in arrivals:
            while self._now_ns < at_ns:
                self.step(until_ns=at_ns)
            self.submit(arrival)
        while self.has_work:
            self.step(limit=1 << 30)

    def tally_at(self, place: int) -> HitTally:
        """All domains of a place together."""
        return total(tally for (at, _), tally in self.by_domain.items() if at == place)

    def check_integrity(self) -> None:
        for engine in self.engines:
            engine.check_integrity()
        assert min(self._in_flight) >= 0
        assert sum(self._in_flight) == len(self._arrivals)

    def _load(self, place: int) -> RankLoad:
        engine = self.engines[place]
        return RankLoad(
            in_flight=self._in_flight[place],
            running=engine.running_count,
            waiting=engine.waiting_count,
            kv_usage=engine.kv_usage,
        )

    def _book(self, outcome: StepOutcome) -> None:
        for request_id, hit in outcome.hits.items():
            place, arrival = self._arrivals[request_id]
            tally = HitTally(hit, len(arrival.request.prompt))
            self.by_domain[place, arrival.affinity] += tally
        for request_id in outcome.finished:
            place, _ = self._arrivals.pop(request_id)
            self._in_flight[place] -= 1
