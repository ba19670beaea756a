"""From the target to the measured rate, one named step at a time.

A station is a hit ratio under one more observed fact; its contribution is its distance from the
station before, so the contributions sum to `actual - target` exactly, by construction. What no
evidence in the files explains stands in the last station, *unexplained* (contract, section 4).
Ratios are fractions here and become floats when the report is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import accumulate
from typing import NamedTuple

from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.explain.causes import Cause
from prefixbench.explain.observed import OBSERVE, Observe, Server
from prefixbench.explain.phases import Phase, combined_tally
from prefixbench.explain.scene import Scene, deepest_prefixes
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
    that the cache was too small, if anything does. `caches` are those that counted queries, and
    `planned_caches` those that should.
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
    actual = combined_tally(phase for phase, _ in headline.rounds)
    if actual is None or actual.ratio is None:
        return Attribution(stations=path.stations(), unexplained=None)
    witness = _witness(scenes)
    if witness is not None and witness.total.ratio is not None:
        elsewhere = min(witness.tokens.lost, _most_lost_to_routing(scenes, headline))
        _per_request(path, witness, headline, elsewhere)
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


class _Split(NamedTuple):
    """Where one request's cached tokens differ from the closed form, or sums over many.

    `found = modelled + overlap - lost + failed + surplus`.
    """

    overlap: int
    lost: int
    failed: int
    surplus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Witness:
    """Requests' own cached tokens: their sum, the tokens of each kind, and requests with such."""

    total: HitTally
    tokens: _Split
    requests: _Split


@dataclass(frozen=True, slots=True, kw_only=True)
class _Finding:
    """One request: what the closed form gives, what it found, and what it can have found.

    `most` is what answered requests can have left, `most_failed` what all can.
    """

    modelled: int
    found: int | None
    queries: int
    least: int
    most: int
    most_failed: int

    def split(self, found: int) -> _Split:
        possible = min(max(found, self.least), self.most)
        return _Split(
            overlap=possible - self.modelled,
            lost=possible - min(found, possible),
            failed=max(min(found, self.most_failed) - possible, 0),
            surplus=max(found - self.most_failed, 0),
        )


def _witness(rounds: Sequence[tuple[Phase, Scene]]) -> _Witness | None:
    """Compare cached tokens with the closed form; None without requests, or if one reports none."""
    splits = []
    tally = HitTally(0, 0)
    for phase, scene in rounds:
        for finding in _findings(phase, scene):
            if finding.found is None:
                return None
            tally += HitTally(finding.found, finding.queries)
            splits.append(finding.split(finding.found))
    if not splits:
        return None
    kinds = list(zip(*splits, strict=True))
    return _Witness(
        total=tally,
        tokens=_Split(*map(sum, kinds)),
        requests=_Split(*(sum(map(bool, kind)) for kind in kinds)),
    )


def _findings(phase: Phase, scene: Scene) -> Iterator[_Finding]:
    """A request that broke off told nothing; it is taken to have found what it should."""
    bounds = hit_bounds(replace(scene, unanswered=()), phase.results)
    with_failed = hit_bounds(scene, phase.results) if scene.unanswered else bounds
    for outcome in scene.outcomes():
        name, modelled = outcome.request_id, outcome.expected_hit_len
        result, known = phase.results[name], bounds.get(name)
        most = modelled if known is None else max(known.most, modelled)
        yield _Finding(
            modelled=modelled,
            found=result.cached_tokens if result.ok else modelled,
            queries=outcome.input_len if result.prompt_tokens is None else result.prompt_tokens,
            least=modelled if known is None else min(known.least, modelled),
            most=most,
            most_failed=max(most, with_failed[name].most) if name in with_failed else most,
        )


def _most_lost_to_routing(rounds: Sequence[tuple[Phase, Scene]], headline: Headline) -> int:
    """Hits that caches beyond the planned ones can cost: each computes a group's prefix once more.

    0 where answers name their rank: then requests already stand where they went.
    """
    if headline.caches <= headline.planned_caches or any(_names_ranks(*each) for each in rounds):
        return 0
    most = 0
    for _, scene in rounds:
        sizes = Counter(plan.prefix_group_id for plan in scene.requests)
        for group, deepest in deepest_prefixes(scene.as_seen()).items():
            most += (min(headline.caches, sizes[group]) - 1) * deepest
    return most


def _names_ranks(phase: Phase, scene: Scene) -> bool:
    return any(result.actual_dp_id is not None for _, result in phase.arrived(scene.requests))


def _per_request(path: _Path, witness: _Witness, headline: Headline, elsewhere: int) -> None:
    """The steps that requests' own hits show; `elsewhere` tokens were missed in further caches."""
    queries, tokens, requests = witness.total.queries, witness.tokens, witness.requests
    if requests.overlap:
        path.go(
            Cause.CONCURRENCY_VISIBILITY,
            Fraction(tokens.overlap, queries),
            f"{plural(requests.overlap, 'request')} sent while another one was still "
            f"computing the prefix: {count(abs(tokens.overlap))} tokens",
        )
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
    missed = f"{plural(requests.lost, 'request')} missed {count(tokens.lost)} tokens"
    if elsewhere:
        path.go(
            Cause.ROUTING,
            -Fraction(elsewhere, queries),
            f"{headline.caches} caches counted queries, planned were {headline.planned_caches}: "
            f"{missed} that another one may have stored",
        )
    if tokens.lost > elsewhere and headline.eviction_evidence:
        path.go(
            Cause.CAPACITY_EVICTION,
            -Fraction(tokens.lost - elsewhere, queries),
            f"{missed} that were stored before; {headline.eviction_evidence}",
        )


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
