"""The measured phases of a run: a phase's counters, its latencies and its requests, joined."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.core.records import RequestPlan
from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.explain.run_files import ObservedRequest

#: Phases that start with nothing of the data set cached; every other one was warmed up.
_COLD = frozenset({"cold", "progressive_prefix_fill"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One round of one measured phase. `results` holds the last attempt of each request."""

    name: str
    round: int
    counters: Mapping[str, Any]
    performance: Mapping[str, Any]
    results: Mapping[str, ObservedRequest]
    attempts: int

    @property
    def warmed(self) -> bool:
        return self.name not in _COLD

    @property
    def designed(self) -> float | None:
        """The ratio this phase should show: a warmed plan run cold has a lower one of its own."""
        return self.counters.get("designed_hit_ratio")

    @property
    def tally(self) -> HitTally | None:
        """What the server's counters grew by; None where they are missing or void."""
        hits, queries = self.counters.get("hits"), self.counters.get("queries")
        if hits is None or not queries:
            return None
        return HitTally(hits, queries, Unit(self.counters.get("unit", Unit.TOKEN)))

    def arrived(
        self, plans: Iterable[RequestPlan]
    ) -> Iterator[tuple[RequestPlan, ObservedRequest]]:
        """Requests that were answered, with their plans, in planned order."""
        for plan in plans:
            result = self.results.get(plan.request_id)
            if result is not None and result.ok:
                yield plan, result


def measured_phases(
    counters: Mapping[str, Any], performance: Mapping[str, Any], results: Iterable[ObservedRequest]
) -> tuple[Phase, ...]:
    """The phases with a designed ratio, in the order of the run; warm-up has none."""
    rows: defaultdict[tuple[str, int], list[ObservedRequest]] = defaultdict(list)
    for result in results:
        rows[result.phase, result.round].append(result)
    timings = {_key(row): row for row in performance.get("phases", ())}
    return tuple(
        Phase(
            name=key[0],
            round=key[1],
            counters={"unit": counters.get("unit", Unit.TOKEN), **row},
            performance=timings.get(key, {}),
            results=_last_attempts(rows[key]),
            attempts=len(rows[key]),
        )
        for row in counters.get("phases", ())
        if row.get("designed_hit_ratio") is not None
        for key in (_key(row),)
    )


def headline(phases: Sequence[Phase]) -> tuple[Phase, ...]:
    """All rounds of the last measured phase: of a comparison, the hot one."""
    return tuple(phase for phase in phases if phase.name == phases[-1].name) if phases else ()


def combined_tally(phases: Iterable[Phase]) -> HitTally | None:
    """Counters of several rounds, added; None if one of them is void, since a part is no whole."""
    tallies = [phase.tally for phase in phases]
    known = [tally for tally in tallies if tally is not None]
    if not known or len(known) < len(tallies):
        return None
    return total(known, known[0].unit)


def _key(row: Mapping[str, Any]) -> tuple[str, int]:
    return row["phase"], row.get("round") or 0


def _last_attempts(rows: Iterable[ObservedRequest]) -> dict[str, ObservedRequest]:
    last: dict[str, ObservedRequest] = {}
    for row in rows:
        if row.request_id not in last or row.attempt >= last[row.request_id].attempt:
            last[row.request_id] = row
    return last
