"""Three witnesses side by side: the plan, the requests' own usage, the server's counters.

Each check compares two numbers that should be equal. A difference is *explained* when the
attribution found a cause for it, *unexplained* when not, and a number that nobody measured is
neither (metrics-adapters, sections 5 and 10).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prefixbench.core.records import RequestPlan
from prefixbench.core.tally import HitTally, Unit
from prefixbench.explain.causes import Cause
from prefixbench.explain.phases import Phase, combined_tally
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.scene import Scene

#: Instance and rank.
Place = tuple[int, int]


class CheckStatus(StrEnum):
    """What a comparison came to."""

    OK = "ok"
    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    NOT_MEASURED = "not_measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Two numbers that should be equal, and whether they are."""

    name: str
    status: str
    detail: str
    phase: str | None = None
    expected: int | None = None
    observed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Comparison:
    """A check before it is judged: `excuses` are causes that account for a difference."""

    name: str
    expected: int | None
    observed: int | None
    detail: str
    excuses: frozenset[Cause]

    def judge(self, found: Collection[str]) -> Check:
        return Check(
            name=self.name,
            status=self._status(found),
            detail=self.detail,
            expected=self.expected,
            observed=self.observed,
        )

    def _status(self, found: Collection[str]) -> CheckStatus:
        if self.expected is None or self.observed is None:
            return CheckStatus.NOT_MEASURED
        if self.expected == self.observed:
            return CheckStatus.OK
        explained = any(cause in found for cause in self.excuses)
        return CheckStatus.EXPLAINED if explained else CheckStatus.UNEXPLAINED


_LOST = frozenset({Cause.FAILED_REQUESTS})
_WINDOW = frozenset(
    {
        Cause.COUNTER_WINDOW,
        Cause.FAILED_REQUESTS,
        Cause.FOREIGN_TRAFFIC,
        Cause.TIER_OVERLAP,
        Cause.METRIC_UNIT_MISMATCH,
    }
)
_ANY = frozenset(Cause)


def reconcile(
    rounds: Sequence[tuple[Phase, Scene]], *, designed_hits: int | None, causes: Collection[str]
) -> tuple[Check, ...]:
    """Compare plan, requests and counters over the rounds of one phase.

    `designed_hits` are the plan's own expected hits of one round, None where the phase has others
    because it ran in another mode; `causes` are those that the attribution found.
    """
    seen = _Seen.of(rounds)
    return tuple(
        comparison.judge(causes) for comparison in _comparisons(seen, rounds, designed_hits)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """Sums over the answered requests; None where one of them did not report the number."""

    planned: int
    answered: int
    prompts_as_planned: int | None
    routed_as_planned: int | None
    prompt_tokens: int | None
    cached_tokens: int | None
    expected_hits: int
    as_planned: int | None
    counters: HitTally | None

    @classmethod
    def of(cls, rounds: Sequence[tuple[Phase, Scene]]) -> _Seen:
        expected = [
            {row.request_id: row.expected_hit_len for row in scene.outcomes()}
            for _, scene in rounds
        ]
        pairs = [
            (plan, result, hits[plan.request_id])
            for (phase, scene), hits in zip(rounds, expected, strict=True)
            for plan, result in phase.arrived(scene.requests)
        ]
        return cls(
            planned=sum(len(scene.requests) for _, scene in rounds),
            answered=len(pairs),
            prompts_as_planned=_matches(
                (plan.input_len, result.prompt_tokens) for plan, result, _ in pairs
            ),
            routed_as_planned=_matches(
                (_planned_place(plan), _actual_place(plan, result)) for plan, result, _ in pairs
            ),
            prompt_tokens=known_sum(result.prompt_tokens for _, result, _ in pairs),
            cached_tokens=known_sum(result.cached_tokens for _, result, _ in pairs),
            expected_hits=sum(sum(hits.values()) for hits in expected),
            as_planned=_matches((hits, result.cached_tokens) for _, result, hits in pairs),
            counters=combined_tally(phase for phase, _ in rounds),
        )


def _comparisons(
    seen: _Seen, rounds: Sequence[tuple[Phase, Scene]], designed_hits: int | None
) -> Iterable[_Comparison]:
    in_tokens = seen.counters if seen.counters and seen.counters.unit is Unit.TOKEN else None
    yield _Comparison(
        name="requests_answered",
        expected=seen.planned,
        observed=seen.answered,
        detail="requests planned, requests answered",
        excuses=_LOST,
    )
    yield _Comparison(
        name="plan_walked_again",
        expected=None if designed_hits is None else designed_hits * len(rounds),
        observed=seen.expected_hits,
        detail="expected hit tokens in the validation report, the same from the request metadata",
        excuses=frozenset(),
    )
    yield _Comparison(
        name="prompt_lengths",
        expected=seen.answered,
        observed=seen.prompts_as_planned,
        detail="requests answered, those whose usage.prompt_tokens is the planned length",
        excuses=frozenset({Cause.TEMPLATE_TOKENS, Cause.SERVED_ANSWERS}),
    )
    yield _Comparison(
        name="counter_queries",
        expected=seen.prompt_tokens,
        observed=in_tokens.queries if in_tokens else None,
        detail="usage.prompt_tokens of the answered requests, queries of the server's counters",
        excuses=_WINDOW,
    )
    yield _Comparison(
        name="counter_hits",
        expected=seen.cached_tokens,
        observed=in_tokens.hits if in_tokens else None,
        detail="cached_tokens of the answered requests, hits of the server's counters",
        excuses=_WINDOW,
    )
    yield _Comparison(
        name="hits_as_planned",
        expected=seen.expected_hits,
        observed=in_tokens.hits if in_tokens else None,
        detail="expected hit tokens of the plan, hits of the server's counters",
        excuses=_ANY,
    )
    yield _Comparison(
        name="requests_as_planned",
        expected=seen.answered,
        observed=seen.as_planned,
        detail="requests answered, those whose cached_tokens are what the plan expects",
        excuses=_ANY,
    )
    yield _Comparison(
        name="routing",
        expected=seen.answered,
        observed=seen.routed_as_planned,
        detail="requests answered, those that went to the planned instance and rank",
        excuses=frozenset({Cause.ROUTING}),
    )


def runtime_checks(counters: Mapping[str, Any]) -> tuple[Check, ...]:
    """The checks that were made while running."""
    return tuple(
        Check(
            name=row["name"],
            status=row["status"],
            detail=str(row.get("detail") or ""),
            phase=row.get("phase"),
        )
        for row in counters.get("checks", ())
    )


def known_sum(values: Iterable[int | None]) -> int | None:
    """The sum; None without values, or if one of them was not measured."""
    total = None
    for value in values:
        if value is None:
            return None
        total = value + (total or 0)
    return total


def _matches(pairs: Iterable[tuple[Place | int, Place | int | None]]) -> int | None:
    """How many pairs are equal; None if one of the second values was not measured."""
    matches = 0
    for expected, observed in pairs:
        if observed is None:
            return None
        matches += expected == observed
    return matches


def _planned_place(plan: RequestPlan) -> Place:
    return plan.planned_instance_id, plan.planned_dp_id


def _actual_place(plan: RequestPlan, result: ObservedRequest) -> Place | None:
    """Where a request went; what the server does not name of it is taken as planned."""
    instance, dp_rank = result.actual_instance_id, result.actual_dp_id
    if instance is None and dp_rank is None:
        return None
    return (
        plan.planned_instance_id if instance is None else instance,
        plan.planned_dp_id if dp_rank is None else dp_rank,
    )
