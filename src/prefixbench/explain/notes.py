"""What a reader must know before believing the headline; it stands in the first screen."""

from __future__ import annotations

from collections.abc import Iterator

from prefixbench.core.records import ValidationStatus
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.judgement import Judgement
from prefixbench.explain.phases import Phase
from prefixbench.explain.verdict import ScenarioClass
from prefixbench.explain.wording import percent, pick

#: Verdicts of the client that need no word.
_CLIENT_FINE = frozenset({None, "ok"})
_CLIENT_WORDS = {"busy": "short of processor time", "late": "late in sending or reading"}


def notes(analysis: Analysis, scenario: ScenarioClass, judgement: Judgement) -> list[str]:
    """Sentences, the gravest first; none for a run without anything to note."""
    return [
        *(finding.sentence for finding in judgement.findings),
        *_dataset(analysis),
        *_client(analysis),
        *_cache(analysis),
        *_pressure(scenario),
    ]


def _dataset(analysis: Analysis) -> Iterator[str]:
    report = analysis.record.validation
    if report.get("reachable") is False:
        reasons = "; ".join(map(str, report.get("unreachable_reasons", ())))
        maximum = percent(report.get("max_reachable_hit_ratio"))
        yield f"The target cannot be reached, at most {maximum}: {reasons}."
    elif report["validation_status"] != ValidationStatus.PASS:
        policy = pick(analysis.record.manifest.config, "validation", "on_failure")
        yield (
            f"The data set misses its target by {abs(report['deviation_pp']):.2f} points "
            f"(validation.on_failure: {policy})."
        )
    if analysis.other_mode:
        yield (
            f"The data set was planned for {percent(float(analysis.planned))} in another mode; "
            f"run this way its own designed ratio is {percent(float(analysis.designed))}."
        )


def _client(analysis: Analysis) -> Iterator[str]:
    yield from dict.fromkeys(filter(None, (_slow_client(phase) for phase, _ in analysis.rounds)))


def _slow_client(phase: Phase) -> str | None:
    """A client that could not keep up makes latencies its own."""
    client = phase.performance.get("client") or {}
    if client.get("verdict") in _CLIENT_FINE:
        return None
    state = _CLIENT_WORDS.get(client["verdict"], client["verdict"])
    reason = f" ({client['reason']})" if client.get("reason") else ""
    return f"The client was {state}{reason}: latencies may be its own."


def _cache(analysis: Analysis) -> Iterator[str]:
    for phase, _ in analysis.rounds:
        state = phase.counters.get("cache_state_before")
        if not phase.warmed and state in ("warm", "unknown"):
            yield f"The cache was {state} before a phase that should start cold."


def _pressure(scenario: ScenarioClass) -> Iterator[str]:
    if scenario is ScenarioClass.TRAFFIC_OR_PRESSURE:
        yield "The cache was under pressure: judge the deviation by its attribution."
