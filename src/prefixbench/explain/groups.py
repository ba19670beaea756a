"""One row a prefix group: what was asked, planned and measured of its own requests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixbench.core.tally import HitTally, as_rate
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.latency import latencies
from prefixbench.explain.run_files import ObservedRequest

_NOTHING = HitTally(0, 0)


@dataclass(slots=True)
class _Group:
    """Sums of one group over all rounds."""

    designed: HitTally = _NOTHING
    found: HitTally = _NOTHING
    requests: int = 0
    unreported: int = 0
    answered: list[ObservedRequest] = field(default_factory=list)


def group_rows(analysis: Analysis) -> list[dict[str, Any]]:
    """The groups in the manifest's order; `actual` comes from the requests' own cached tokens,
    since counters know no groups, and is None if one of them reported none."""
    sums = _sums(analysis)
    targets = {
        row["id"]: row.get("target_hit_ratio")
        for row in analysis.record.validation.get("per_group", ())
    }
    as_planned = analysis.prediction.ratio == float(analysis.designed)
    return [
        _row(group["id"], sums[group["id"]], targets, as_planned, max(len(analysis.rounds), 1))
        for group in analysis.record.manifest.groups
    ]


def _sums(analysis: Analysis) -> defaultdict[str, _Group]:
    groups: defaultdict[str, _Group] = defaultdict(_Group)
    for (phase, _), outcomes in zip(analysis.rounds, analysis.outcomes, strict=True):
        for outcome in outcomes:
            group = groups[outcome.prefix_group_id]
            group.requests += 1
            group.designed += HitTally(outcome.expected_hit_len, outcome.input_len)
            result = phase.results.get(outcome.request_id)
            if result is not None and result.ok:
                _add_answer(group, result)
    return groups


def _add_answer(group: _Group, result: ObservedRequest) -> None:
    group.answered.append(result)
    if result.cached_tokens is None or result.prompt_tokens is None:
        group.unreported += 1
    else:
        group.found += HitTally(result.cached_tokens, result.prompt_tokens)


def _row(
    group_id: str, group: _Group, targets: Mapping[str, float | None], as_planned: bool, rounds: int
) -> dict[str, Any]:
    designed = as_rate(group.designed)
    return {
        "id": group_id,
        "requests": group.requests // rounds,
        "input_tokens": group.designed.queries // rounds,
        "target": targets.get(group_id),
        "designed": designed,
        "predicted": designed if as_planned else None,
        "actual": None if group.unreported else as_rate(group.found),
        "answered": len(group.answered),
        "expected_hit_tokens": group.designed.hits,
        "cached_tokens": None if group.unreported or not group.answered else group.found.hits,
        **latencies(group.answered),
    }
