"""From the target to the measured rate, one named step at a time.

A station is a hit ratio under one more observed fact; its contribution is its distance from the
station before, so the contributions sum to `actual - target` exactly, by construction. What no
evidence in the files explains stands in the last station, *unexplained* (contract, section 4).
Ratios are fractions here and become floats when the report is written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.explain.causes import Cause
from prefixbench.explain.observed import OBSERVE, Observe, Server
from prefixbench.explain.phases import Phase, combined_tally
from prefixbench.explain.scene import Scene
from prefixbench.explain.visibility import hit_bounds
from prefixbench.explain.wording import count, plural

TARGET = "target"
DESIGNED = "designed"
UNEXPLAINED = "unexplained"


@dataclass(frozen=True, slots=True, kw_only=True)
class Station:
    """A hit ratio on the way, and what led to it from the station before."""

    name: str
    ratio: Fraction
    contribution: Fraction
    evidence: str

    @property
    def is_cause(self) -> bool:
        return self.name not in (TARGET, DESIGNED, UNEXPLAINED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """The whole way. `unexplained` is None where nothing was measured."""

    stations: tuple[Station, ...]
    unexplained: Fraction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Headline:
    """What is to be explained: the rounds of one phase, each with the scene that was planned.

    `other_mode` says that a warmed plan ran cold, or the reverse; `eviction_evidence` what shows
    that the cache was too small, if anything does.
    """

    target: Fraction | None
    designed: Fraction
    rounds: Sequence[tuple[Phase, Scene]]
    other_mode: bool
    server: Server
    eviction_evidence: str | None
    external_hits: int


class _Path:
    """Stations in the making; knows where it stands."""

    def __init__(self, name: str, ratio: Fraction, evidence: str) -> None:
        self.stations = [
            Station(name=name, ratio=ratio, contribution=Fraction(0), evidence=evidence)
        ]

    @property
    def ratio(self) -> Fraction:
        return self.stations[-1].ratio

    def go(self, name: str, contribution: Fraction, evidence: str) -> None:
        self.stations.append(
            Station(
                name=name,
                ratio=self.ratio + contribution,
                contribution=contribution,
                evidence=evidence,
            )
        )


def attribute(headline: Headline) -> Attribution:
    """Walk from the target over the design to what the counters say."""
    path = _construction(headline)
    scenes = _observed_facts(path, headline)
    actual = combined_tally(phase for phase, _ in headline.rounds)
    if actual is None or actual.ratio is None:
        return Attribution(stations=tuple(path.stations), unexplained=None)
    witness = _witness(scenes)
    if witness is not None and witness.total.ratio is not None:
        _per_request(path, witness, headline)
        _second_witness(path, witness.total, actual, headline)
    unexplained = actual.ratio - path.ratio
    path.go(UNEXPLAINED, unexplained, "no evidence in the files for the rest")
    return Attribution(stations=tuple(path.stations), unexplained=unexplained)


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
    rounds = list(headline.rounds)
    walked = _tally(rounds).ratio
    if headline.other_mode and walked is not None:
        name = rounds[0][0].name
        path.go(
            Cause.EXECUTION_MODE,
            walked - path.ratio,
            f"the plan walked as the {name} phase finds the cache",
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


def _tally(rounds: Sequence[tuple[Phase, Scene]]) -> HitTally:
    return total(scene.tally() for _, scene in rounds)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Witness:
    """Requests' own cached tokens, split by what they show against the closed form.

    `total = model hits + overlap - lost + surplus`, each over the same queries.
    """

    total: HitTally
    overlap: int
    lost: int
    surplus: int
    lost_requests: int
    surplus_requests: int
    overlap_requests: int


def _witness(rounds: Sequence[tuple[Phase, Scene]]) -> _Witness | None:
    """Compare each request's cached tokens with the closed form; None if one is not reported."""
    splits = []
    tally = HitTally(0, 0)
    for phase, scene in rounds:
        for outcome_hits, result_hits, queries, least, most in _pairs(phase, scene):
            if result_hits is None:
                return None
            tally += HitTally(result_hits, queries)
            splits.append(_split(outcome_hits, result_hits, least, most))
    overlaps, losses, surpluses = ([row[column] for row in splits] for column in range(3))
    return _Witness(
        total=tally,
        overlap=sum(overlaps),
        lost=sum(losses),
        surplus=sum(surpluses),
        overlap_requests=sum(map(bool, overlaps)),
        lost_requests=sum(map(bool, losses)),
        surplus_requests=sum(map(bool, surpluses)),
    )


def _pairs(phase: Phase, scene: Scene) -> Iterator[tuple[int, int | None, int, int, int]]:
    """Closed-form hits, own hits, prompt tokens, least and most hits of each answered request."""
    bounds = hit_bounds(scene, phase.results)
    for outcome in scene.outcomes():
        result = phase.results[outcome.request_id]
        limit = bounds.get(outcome.request_id)
        modelled = outcome.expected_hit_len
        yield (
            modelled,
            result.cached_tokens,
            outcome.input_len if result.prompt_tokens is None else result.prompt_tokens,
            modelled if limit is None else min(limit.least, modelled),
            modelled if limit is None else max(limit.most, modelled),
        )


def _split(modelled: int, found: int, least: int, most: int) -> tuple[int, int, int]:
    """Tokens due to requests in flight (signed), lost from the cache, and there before the run."""
    possible = min(max(found, least), most)
    return possible - modelled, possible - min(found, possible), max(found, possible) - possible


def _per_request(path: _Path, witness: _Witness, headline: Headline) -> None:
    queries = witness.total.queries
    if witness.overlap_requests:
        path.go(
            Cause.CONCURRENCY_VISIBILITY,
            Fraction(witness.overlap, queries),
            f"{plural(witness.overlap_requests, 'request')} sent while another one was still "
            f"computing the prefix: {count(abs(witness.overlap))} tokens",
        )
    if witness.surplus:
        path.go(
            Cause.RESIDUAL_CACHE,
            Fraction(witness.surplus, queries),
            f"{plural(witness.surplus_requests, 'request')} hit {count(witness.surplus)} tokens "
            "more than this phase can have stored",
        )
    if witness.lost and headline.eviction_evidence:
        path.go(
            Cause.CAPACITY_EVICTION,
            -Fraction(witness.lost, queries),
            f"{plural(witness.lost_requests, 'request')} missed {count(witness.lost)} tokens that "
            f"were stored before; {headline.eviction_evidence}",
        )


def _second_witness(
    path: _Path, requests: HitTally, counters: HitTally, headline: Headline
) -> None:
    """The counters and the requests' own cached tokens disagree."""
    if counters == requests or counters.ratio is None or requests.ratio is None:
        return
    cause, evidence = _disagreement(requests, counters, headline)
    path.go(cause, counters.ratio - requests.ratio, evidence)


def _disagreement(requests: HitTally, counters: HitTally, headline: Headline) -> tuple[Cause, str]:
    if counters.unit is not Unit.TOKEN:
        return Cause.METRIC_UNIT_MISMATCH, f"the counters count {counters.unit}s, not tokens"
    evidence = (
        f"counters: {count(counters.hits)} of {count(counters.queries)}, answered requests: "
        f"{count(requests.hits)} of {count(requests.queries)} tokens"
    )
    excess = counters.queries > requests.queries or counters.hits > requests.hits
    if headline.external_hits:
        tier = f"{count(headline.external_hits)} tokens came from an external tier"
        return Cause.TIER_OVERLAP, f"{tier}; {evidence}"
    return (Cause.FOREIGN_TRAFFIC if excess else Cause.COUNTER_WINDOW), evidence
