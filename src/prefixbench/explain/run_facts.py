"""What the verdict on a run depends on, gathered from its analysis."""

from __future__ import annotations

from fractions import Fraction

from prefixbench.explain.analysis import Analysis
from prefixbench.explain.judgement import Answers, RunFacts
from prefixbench.explain.phases import Phase
from prefixbench.explain.unsized import why_unmeasured
from prefixbench.explain.verdict import Threshold
from prefixbench.explain.wording import pick

#: Errors that end a run whose files speak for themselves: answers and rates are judged.
_JUDGED_BY_FILES = frozenset({"too_many_failures", "metrics"})
_CUT_SHORT = frozenset({"running", "interrupted"})


def run_facts(analysis: Analysis, threshold: Threshold) -> RunFacts:
    """The facts of a run, for `judge`."""
    record = analysis.record
    actual, told = analysis.actual, analysis.told
    return RunFacts(
        designed=analysis.designed,
        actual=None if actual is None else actual.ratio,
        told=None if told is None else told.ratio,
        unexplained=analysis.attribution.unexplained,
        unmeasured=why_unmeasured(analysis.rounds, analysis.server),
        threshold=threshold,
        answers=_answers(analysis),
        max_failure_rate=_max_failure_rate(analysis),
        error=_error(analysis),
        is_cut_short=record.run.get("status") in _CUT_SHORT
        or any(_is_cut_short(phase) for phase in analysis.phases),
        is_partial=bool(pick(record.counters, "global", "partial")),
        failed_checks=_failed_checks(analysis),
    )


def _answers(analysis: Analysis) -> Answers:
    planned = len(analysis.record.plans)
    counted = [_counted(phase, planned) for phase in analysis.phases]
    last = {phase.name for phase, _ in analysis.rounds}
    return Answers(
        due=sum(due for due, _ in counted),
        answered=sum(answered for _, answered in counted),
        headline=sum(
            answered
            for phase, (_, answered) in zip(analysis.phases, counted, strict=True)
            if phase.name in last
        ),
    )


def _counted(phase: Phase, planned: int) -> tuple[int, int]:
    """Requests of one phase that were due, and those answered; a phase cut short owes no more
    than it sent."""
    if not planned and not phase.results:
        requests = phase.performance.get("requests") or {}
        return requests.get("planned") or 0, requests.get("succeeded") or 0
    sent = len(phase.results)
    due = sent if _is_cut_short(phase) else max(planned, sent)
    return due, sum(result.ok for result in phase.results.values())


def _is_cut_short(phase: Phase) -> bool:
    return phase.counters.get("complete") is False


def _max_failure_rate(analysis: Analysis) -> Fraction:
    from prefixbench.run.options import DEFAULT_MAX_FAILURE_RATE

    stated = analysis.record.run.get("max_failure_rate")
    return Fraction(repr(DEFAULT_MAX_FAILURE_RATE if stated is None else float(stated)))


def _error(analysis: Analysis) -> str | None:
    error = analysis.record.run.get("error") or {}
    return None if error.get("code") in _JUDGED_BY_FILES else error.get("message")


def _failed_checks(analysis: Analysis) -> tuple[str, ...]:
    last = {phase.name for phase, _ in analysis.rounds}
    return tuple(
        str(check["name"])
        for check in analysis.record.counters.get("checks", ())
        if check["status"] == "fail" and check.get("phase") in last
    )
