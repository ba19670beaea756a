"""Whether a run did what its data set was planned for: every rule, and the sentence for it.

A rule looks at what was answered, at how the run ended, and at the rate; the worst finding decides.
Two things are never let through. A rate over requests of which too many failed is the rate of
another workload. And a rate that nobody measured is no pass (RFC 3.3.21, 3.4.4; contract 4 and 7).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from prefixbench.core.records import ValidationStatus
from prefixbench.core.wording import plural
from prefixbench.explain.causes import Cause
from prefixbench.explain.unsized import Unsized
from prefixbench.explain.verdict import Threshold, worst
from prefixbench.explain.wording import count, percent, points

_PASS, _WARN, _FAIL = ValidationStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Requests that should have been answered, and those that were, in all measured phases.

    `headline` are those answered in the phase that counts. Both are 0 where nobody counted.
    """

    due: int
    answered: int
    headline: int

    @property
    def lost(self) -> int:
        return self.due - self.answered


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFacts:
    """All that the verdict on a run depends on; ratios and rates are fractions.

    `actual` is the counters' rate and `unmeasured` why there is none, `told` the rate of the
    requests' own cached tokens; `error` is what the run ended with, and `failed_checks` are names
    of checks made while running.
    """

    designed: Fraction
    actual: Fraction | None
    told: Fraction | None
    unexplained: Fraction | None
    unmeasured: Unsized | None
    threshold: Threshold
    answers: Answers
    max_failure_rate: Fraction
    error: str | None = None
    is_cut_short: bool = False
    is_partial: bool = False
    failed_checks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to hold for or against a run, in a sentence; `cause` where it is the reason."""

    status: ValidationStatus
    sentence: str
    cause: Cause | None = None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Findings, the gravest first; `status` is None where there is no rate and nothing failed."""

    status: ValidationStatus | None
    findings: tuple[Finding, ...]

    @property
    def reason(self) -> str | None:
        """What decided, unless the run passed."""
        decisive = self._decisive
        return None if decisive is None else decisive.sentence

    @property
    def cause(self) -> Cause | None:
        """The named cause that decided, if one did."""
        decisive = self._decisive
        return None if decisive is None else decisive.cause

    @property
    def _decisive(self) -> Finding | None:
        """The gravest finding; of several, the first rule's."""
        if not self.findings or self.findings[0].status is _PASS:
            return None
        return self.findings[0]


def judge(facts: RunFacts) -> Judgement:
    """Apply every rule."""
    found = [finding for rule in _RULES for finding in rule(facts)]
    status = worst(finding.status for finding in found)
    graver_first = sorted(found, key=lambda finding: -_severity(finding.status))
    measured = facts.actual is not None or status is _FAIL
    return Judgement(status if measured else None, tuple(graver_first))


def _severity(status: ValidationStatus) -> int:
    return list(ValidationStatus).index(status)


def _answers(facts: RunFacts) -> Iterator[Finding]:
    """More requests failed than the run allows; without an answer there is nothing to judge."""
    answers = facts.answers
    if not answers.lost:
        return
    lost = f"{count(answers.lost)} of {plural(answers.due, 'request')} were not answered"
    if not answers.headline:
        yield Finding(_FAIL, f"{lost}: nothing was measured.", Cause.FAILED_REQUESTS)
    elif Fraction(answers.lost, answers.due) > facts.max_failure_rate:
        allowed = percent(float(facts.max_failure_rate))
        yield Finding(_FAIL, f"{lost}, more than {allowed} of them.", Cause.FAILED_REQUESTS)
    else:
        yield Finding(_PASS, f"{lost}.")


def _ending(facts: RunFacts) -> Iterator[Finding]:
    if facts.error is not None:
        yield Finding(_FAIL, f"The run ended with an error: {facts.error}.")
    if facts.is_cut_short:
        yield Finding(_WARN, "The run was cut short: this is what was measured until then.")


def _without_a_rate(facts: RunFacts) -> Iterator[Finding]:
    """No rate is no pass; the requests' own word, or the server's, may show that it failed."""
    missing = facts.unmeasured
    if missing is None:
        return
    yield Finding(_WARN, f"The hit rate was not measured: {missing.evidence}.", missing.cause)
    if facts.told is not None:
        deviation = facts.told - facts.designed
        if abs(deviation) > facts.threshold.last:
            yield Finding(
                _FAIL,
                f"The requests' own cached tokens are {points(float(deviation))} off the plan.",
                missing.cause,
            )
    elif missing.cause is Cause.CACHING_DISABLED and facts.designed:
        yield Finding(_FAIL, "Nothing can hit on a server that does not cache.", missing.cause)


def _rate(facts: RunFacts) -> Iterator[Finding]:
    if facts.actual is None:
        return
    deviation, threshold = facts.actual - facts.designed, facts.threshold
    status = threshold.judge(deviation)
    if status is not _PASS:
        limit = threshold.last if status is _FAIL else threshold.first
        yield Finding(
            status,
            f"The measured rate is {points(float(deviation))} off the plan; a run of this kind "
            f"{'fails' if status is _FAIL else 'warns'} beyond {float(limit) * 100:g} pp.",
        )
    unexplained = facts.unexplained
    if status is _WARN and threshold.fail is None and unexplained is not None:
        yield from _unattributed(unexplained, threshold)


def _unattributed(unexplained: Fraction, threshold: Threshold) -> Iterator[Finding]:
    """Where no deviation is too large, it must be attributed (RFC 3.3.21)."""
    if abs(unexplained) > threshold.last:
        yield Finding(
            _FAIL,
            f"{points(float(unexplained))} of the deviation have no explanation; under pressure "
            "any deviation is accepted, if its causes are found.",
        )


def _measuring(facts: RunFacts) -> Iterator[Finding]:
    """What makes a rate doubtful; a missing one has its own sentence."""
    if facts.actual is None:
        return
    if facts.is_partial:
        yield Finding(
            _WARN, "The measured rate is partial: the metrics of some instances are missing."
        )
    if facts.failed_checks:
        names = ", ".join(dict.fromkeys(facts.failed_checks))
        yield Finding(_WARN, f"Checks failed while the run was measured: {names}.")


#: Of findings that are equally grave the first one decides: what failed first stands first.
_RULES = (_answers, _ending, _without_a_rate, _rate, _measuring)
