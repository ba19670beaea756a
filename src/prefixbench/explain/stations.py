"""From the target to the measured rate, one named step at a time.

A station is a hit ratio under one more observed fact; its contribution is its distance from the
station before, so the contributions sum to `actual - target` exactly, by construction. What no
evidence in the files explains stands in the last station, *unexplained* (contract, section 4).
Ratios are fractions here and become floats when the report is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.core.wording import plural
from prefixbench.explain.causes import Cause
from prefixbench.explain.observed import OBSERVE, Observe, Server
from prefixbench.explain.own_hits import OwnHits, own_hits
from prefixbench.explain.phases import Phase, combined_tally
from prefixbench.explain.scene import Scene, deepest_prefixes
from prefixbench.explain.wording import count

if TYPE_CHECKING:
    from prefixbench.dataset.plan_walk import Conditions

TARGET = "target"
DESIGNED = "designed"
#: The plan without what it allows for, and what it allows for (requests in flight, a small cache).
THEORY = "theory"
PLANNED_CONDITIONS = "planned_conditions"
UNEXPLAINED = "unexplained"

_NO_CAUSE = frozenset({TARGET, DESIGNED, THEORY, PLANNED_CONDITIONS, UNEXPLAINED})


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A hit ratio on the way, and what led to it from the station before."""

    name: str
    ratio: Fraction
    contribution: Fraction
    evidence: str

    @property
    def is_cause(self) -> bool:
        return self.name not in _NO_CAUSE


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The whole way. `unexplained` is None where nothing was measured."""

    stations: tuple[Station, ...]
    unexplained: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What is to be explained: the rounds of one phase, each with the scene that was planned.

    `other_mode` says that a warmed plan ran cold, or the reverse; `eviction_evidence` what shows
    that the cache was too small, if anything does. `caches` are those that counted queries, and
    `planned_caches` those that should. `conditions` are what the plan allows for.
    """

    target: Fraction | None
    designed: Fraction
    rounds: Sequence[tuple[Phase, Scene]]
    other_mode: bool
    server: Server
    eviction_evidence: str | None
    external_hits: int
    caches: int
    planned_caches: int
    conditions: Conditions | None = None


class _Path:
    """Stations in the making; knows where it stands. Steps of one name become one station."""

    def __init__(self, name: str, ratio: Fraction, evidence: str) -> None:
        self._steps = {name: (ratio, [evidence])}

    @property
    def ratio(self) -> Fraction:
        return sum((contribution for contribution, _ in self._steps.values()), Fraction(0))

    def go(self, name: str, contribution: Fraction, evidence: str) -> None:
        before, known = self._steps.get(name, (Fraction(0), []))
        self._steps[name] = (before + contribution, [*known, evidence])

    def stations(self) -> tuple[Station, ...]:
        """The whole way; its first station contributes nothing, it is where the way begins."""
        ratios = accumulate(contribution for contribution, _ in self._steps.values())
        return tuple(
            Station(
                name=name,
                ratio=ratio,
                contribution=contribution if place else Fraction(0),
                evidence="; ".join(evidence),
            )
            for place, (ratio, (name, (contribution, evidence))) in enumerate(
                zip(ratios, self._steps.items(), strict=True)
            )
        )


def attribute(headline: Headline) -> Attribution:
    """Walk from the target over the design to what the counters say."""
    path = _construction(headline)
    scenes = _observed_facts(path, headline)
    allowed = _planned_conditions(path, headline.conditions, scenes)
    actual = combined_tally(phase for phase, _ in headline.rounds)
    if actual is None or actual.ratio is None:
        return Attribution(stations=path.stations(), unexplained=None)
    witness = own_hits(scenes)
    if witness is not None and witness.total.ratio is not None:
        unplanned = max(witness.tokens.lost - allowed.evicted, 0)
        elsewhere = min(unplanned, _most_lost_to_routing(scenes, headline))
        _per_request(path, witness, headline, elsewhere, allowed)
        _second_witness(path, witness.total, actual, headline.external_hits, _doubtful(scenes))
    unexplained = actual.ratio - path.ratio
    path.go(UNEXPLAINED, unexplained, "no evidence in the files for the rest")
    return Attribution(stations=path.stations(), unexplained=unexplained)


def _construction(headline: Headline) -> _Path:
    if headline.target is None:
        return _Path(DESIGNED, headline.designed, "hits of the plan; no global target was asked")
    path = _Path(TARGET, headline.target, "as configured")
    path.go(
        DESIGNED,
        headline.designed - headline.target,
        "expected hits of the plan over its input tokens",
    )
    return path


def _observed_facts(path: _Path, headline: Headline) -> list[tuple[Phase, Scene]]:
    """Put the observed facts in place, one after the other, in every round."""
    rounds = [(phase, scene.under(None)) for phase, scene in headline.rounds]
    walked = _tally(rounds).ratio
    if walked is not None and headline.other_mode:
        name = rounds[0][0].name
        path.go(
            Cause.EXECUTION_MODE,
            walked - path.ratio,
            f"the plan walked as the {name} phase finds the cache",
        )
    elif walked is not None and headline.conditions is not None:
        path.go(
            THEORY,
            walked - path.ratio,
            "the same requests one at a time in an unlimited cache",
        )
    for observe in OBSERVE:
        rounds = _observe(path, observe, rounds, headline.server)
    return rounds


def _observe(
    path: _Path, observe: Observe, rounds: list[tuple[Phase, Scene]], server: Server
) -> list[tuple[Phase, Scene]]:
    seen = [observe(scene, phase, server) for phase, scene in rounds]
    found = [observation for observation in seen if observation is not None]
    if not found:
        return rounds
    changed = [
        (phase, scene if observation is None else observation.scene)
        for (phase, scene), observation in zip(rounds, seen, strict=True)
    ]
    before, after = _tally(rounds).ratio, _tally(changed).ratio
    if before is not None and after is not None:
        evidence = "; ".join(dict.fromkeys(observation.evidence for observation in found))
        path.go(found[0].cause, after - before, evidence)
    return changed


class _Allowed(NamedTuple):
    """Tokens that a plan gives up: to requests in flight together, and to a limited cache."""

    hidden: int
    evicted: int


def _planned_conditions(
    path: _Path, conditions: Conditions | None, rounds: Sequence[tuple[Phase, Scene]]
) -> _Allowed:
    """Step down to what the observed requests find under the conditions of the plan."""
    theory = _tally(rounds)
    if conditions is None or not theory.queries:
        return _Allowed(0, 0)
    unlimited = replace(conditions, capacity_blocks=None)
    flying, limited = (
        _tally([(phase, scene.under(kept)) for phase, scene in rounds])
        for kept in (unlimited, conditions)
    )
    path.go(
        PLANNED_CONDITIONS,
        -Fraction(theory.hits - limited.hits, theory.queries),
        f"the plan allows for {conditions_in_words(conditions)}",
    )
    return _Allowed(theory.hits - flying.hits, flying.hits - limited.hits)


def conditions_in_words(conditions: Conditions) -> str:
    """What a plan allows for, as the end of a sentence."""
    words = []
    if conditions.in_flight > 1:
        words.append(f"{plural(conditions.in_flight, 'request')} in flight")
    if conditions.capacity_blocks is not None:
        words.append(f"a cache of {plural(conditions.capacity_blocks, 'block')}")
    return " and ".join(words)


def _tally(rounds: Sequence[tuple[Phase, Scene]]) -> HitTally:
    return total(scene.tally() for _, scene in rounds)


def _most_lost_to_routing(rounds: Sequence[tuple[Phase, Scene]], headline: Headline) -> int:
    """Hits that caches beyond the planned ones can cost: each computes a group's prefix once more,
    and any turn of a session may come to another cache than the turn before it.

    0 where answers name their rank: then requests already stand where they went.
    """
    if headline.caches <= headline.planned_caches or any(_names_ranks(*each) for each in rounds):
        return 0
    most = 0
    for _, scene in rounds:
        seen = scene.as_seen()
        sizes = Counter(plan.prefix_group_id for plan in seen)
        for group, deepest in deepest_prefixes(seen).items():
            most += (min(headline.caches, sizes[group]) - 1) * deepest
        most += sum(plan.planned_prefix_len for plan in seen if plan.history_request_id is not None)
    return most


def _names_ranks(phase: Phase, scene: Scene) -> bool:
    return any(result.actual_dp_id is not None for _, result in phase.arrived(scene.requests))


def _per_request(
    path: _Path, witness: OwnHits, headline: Headline, elsewhere: int, allowed: _Allowed
) -> None:
    """The steps that requests' own hits show, beyond what the plan allows for; `elsewhere` tokens
    were missed in further caches."""
    queries, tokens, requests = witness.total.queries, witness.tokens, witness.requests
    _overlap(path, witness, allowed.hidden)
    if tokens.failed:
        path.go(
            Cause.FAILED_REQUESTS,
            Fraction(tokens.failed, queries),
            f"{plural(requests.failed, 'request')} hit {count(tokens.failed)} tokens that only "
            "requests without an answer can have stored",
        )
    if tokens.surplus:
        path.go(
            Cause.RESIDUAL_CACHE,
            Fraction(tokens.surplus, queries),
            f"{plural(requests.surplus, 'request')} hit {count(tokens.surplus)} tokens "
            "more than this phase can have stored",
        )
    if elsewhere:
        path.go(
            Cause.ROUTING,
            -Fraction(elsewhere, queries),
            f"{headline.caches} caches counted queries, planned were {headline.planned_caches}: "
            f"{_missed(witness)} that another one may have stored",
        )
    _eviction(path, witness, headline.eviction_evidence, elsewhere, allowed.evicted)


def _overlap(path: _Path, witness: OwnHits, hidden: int) -> None:
    """Where the plan allows for `hidden` tokens, only the difference is a step."""
    tokens, requests = witness.tokens.overlap, witness.requests.overlap
    if tokens == -hidden and (hidden or not requests):
        return
    path.go(
        Cause.CONCURRENCY_VISIBILITY,
        Fraction(tokens + hidden, witness.total.queries),
        f"{plural(requests, 'request')} sent while another one was still computing the prefix: "
        f"{count(abs(tokens))} tokens{_beside(hidden)}",
    )


def _eviction(
    path: _Path, witness: OwnHits, evidence: str | None, elsewhere: int, allowed: int
) -> None:
    """Losses need evidence that the cache was too small; what was not lost needs none."""
    unplanned = witness.tokens.lost - elsewhere - allowed
    shown = evidence if unplanned > 0 else "more was kept than planned"
    if unplanned and shown:
        path.go(
            Cause.CAPACITY_EVICTION,
            -Fraction(unplanned, witness.total.queries),
            f"{_missed(witness)} that were stored before{_beside(allowed)}; {shown}",
        )


def _missed(witness: OwnHits) -> str:
    return f"{plural(witness.requests.lost, 'request')} missed {count(witness.tokens.lost)} tokens"


def _beside(allowed: int) -> str:
    return f" (the plan allows for {count(allowed)})" if allowed else ""


def _doubtful(rounds: Sequence[tuple[Phase, Scene]]) -> HitTally:
    """The most that requests which ended early can add to the counters, or take from them."""
    return total(
        HitTally(plan.planned_prefix_len, plan.input_len)
        for phase, scene in rounds
        for plan in (*scene.requests, *scene.unanswered)
        for result in (phase.results.get(plan.request_id),)
        if result is not None and result.ended_early
    )


def _second_witness(
    path: _Path, requests: HitTally, counters: HitTally, external_hits: int, doubtful: HitTally
) -> None:
    """The counters and the requests' own cached tokens disagree."""
    if counters == requests or counters.ratio is None or requests.ratio is None:
        return
    evidence = (
        f"counters: {count(counters.hits)} of {count(counters.queries)}, answered requests: "
        f"{count(requests.hits)} of {count(requests.queries)} tokens"
    )
    if counters.unit is not Unit.TOKEN:
        cause = Cause.METRIC_UNIT_MISMATCH
        evidence = f"the counters count {counters.unit}s, not tokens"
    elif external_hits:
        cause = Cause.TIER_OVERLAP
        evidence = f"{count(external_hits)} tokens came from an external tier; {evidence}"
    else:
        cause = _disagreement(requests, counters, doubtful)
    path.go(cause, counters.ratio - requests.ratio, evidence)


def _disagreement(requests: HitTally, counters: HitTally, doubtful: HitTally) -> Cause:
    queries, hits = counters.queries - requests.queries, counters.hits - requests.hits
    if abs(queries) <= doubtful.queries and abs(hits) <= doubtful.hits:
        return Cause.FAILED_REQUESTS
    return Cause.FOREIGN_TRAFFIC if max(queries, hits) > 0 else Cause.COUNTER_WINDOW
