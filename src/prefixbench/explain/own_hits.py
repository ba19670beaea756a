"""What the requests' own cached tokens say, each beside what the closed form gives it.

Between the two lie four kinds of tokens: what others in flight hid or showed early, what was lost,
what only requests without an answer can have stored, and what was there before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from prefixbench.core.tally import HitTally
from prefixbench.explain.phases import Phase
from prefixbench.explain.scene import Scene
from prefixbench.explain.visibility import hit_bounds


class Split(NamedTuple):
    """Where one request's cached tokens differ from the closed form, or sums over many.

    `found = modelled + overlap - lost + failed + surplus`.
    """

    overlap: int
    lost: int
    failed: int
    surplus: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnHits:
    """Requests' own cached tokens: their sum, the tokens of each kind, and requests with such."""

    total: HitTally
    tokens: Split
    requests: Split


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

    def split(self, found: int) -> Split:
        possible = min(max(found, self.least), self.most)
        return Split(
            overlap=possible - self.modelled,
            lost=possible - min(found, possible),
            failed=max(min(found, self.most_failed) - possible, 0),
            surplus=max(found - self.most_failed, 0),
        )


def own_hits(rounds: Sequence[tuple[Phase, Scene]]) -> OwnHits | None:
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
    return OwnHits(
        total=tally,
        tokens=Split(*map(sum, kinds)),
        requests=Split(*(sum(map(bool, kind)) for kind in kinds)),
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
