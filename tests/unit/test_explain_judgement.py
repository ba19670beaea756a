"""The verdict on a run as a table: one row a rule of contract sections 4 and 7 and RFC 3.3.21."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from prefixbench.core.records import ValidationStatus
from prefixbench.explain.causes import Cause
from prefixbench.explain.judgement import Answers, RunFacts, judge
from prefixbench.explain.unsized import Unsized
from prefixbench.explain.verdict import Threshold

PASS, WARN, FAIL = ValidationStatus

LIMITED, UNLIMITED = Threshold(3, 5), Threshold(10, None)
ALL = Answers(due=1000, answered=1000, headline=1000)
NO_METRICS = Unsized(Cause.METRICS_UNAVAILABLE, "the page could not be read")
RESET = Unsized(Cause.SERVER_RESTART, "counter reset")
OFF = Unsized(Cause.CACHING_DISABLED, "the server says that prefix caching is off")
NOBODY = Unsized(Cause.FAILED_REQUESTS, "9 of 9 requests not answered: 9 http error")


def percents(rate: float | None) -> Fraction | None:
    return None if rate is None else Fraction(str(rate)) / 100


def facts(actual: float | None = 60, **changes: Any) -> RunFacts:
    """A run planned for 60 %; rates in percent."""
    rates = {name: percents(changes.pop(name, None)) for name in ("told", "unexplained")}
    rates |= {"designed": percents(changes.pop("designed", 60)), "actual": percents(actual)}
    plain = {
        "unmeasured": None,
        "threshold": LIMITED,
        "answers": ALL,
        "max_failure_rate": Fraction(1, 100),
    }
    return RunFacts(**(rates | plain | changes))


def answers(answered: int, headline: int | None = None) -> Answers:
    return Answers(due=1000, answered=answered, headline=answered if headline is None else headline)


FAILED = Cause.FAILED_REQUESTS
TABLE: tuple[tuple[str, RunFacts, ValidationStatus | None, Cause | None], ...] = (
    ("as planned", facts(), PASS, None),
    ("as planned, nothing of it known", facts(answers=Answers(due=0, answered=0, headline=0)),
     PASS, None),
    ("3 points off", facts(57), PASS, None),
    ("4 points off", facts(64), WARN, None),
    ("6 points off", facts(54), FAIL, None),
    ("under pressure, 9 points off", facts(51, threshold=UNLIMITED, unexplained=-9), PASS, None),
    ("under pressure, explained", facts(10, threshold=UNLIMITED, unexplained=0), WARN, None),
    ("under pressure, mostly explained", facts(10, threshold=UNLIMITED, unexplained=-10),
     WARN, None),
    ("under pressure, unexplained", facts(10, threshold=UNLIMITED, unexplained=-11), FAIL, None),
    ("1 % failed", facts(answers=answers(990)), PASS, None),
    ("more than 1 % failed", facts(answers=answers(989)), FAIL, FAILED),
    ("more failed, and that is allowed", facts(answers=answers(900),
     max_failure_rate=Fraction(1, 10)), PASS, None),
    ("nearly all failed, 0 % measured, under pressure", facts(0, threshold=UNLIMITED,
     unexplained=0, answers=answers(3)), FAIL, FAILED),
    ("all failed", facts(None, unmeasured=NOBODY, answers=answers(0)), FAIL, FAILED),
    ("all failed, and all may", facts(None, unmeasured=NOBODY, answers=answers(0),
     max_failure_rate=Fraction(1)), FAIL, FAILED),
    ("all of the last phase failed", facts(None, unmeasured=NOBODY, answers=answers(995, 0)),
     FAIL, FAILED),
    ("all failed on a server that is off", facts(None, unmeasured=OFF, answers=answers(0)),
     FAIL, FAILED),
    ("no metrics", facts(None, unmeasured=NO_METRICS), None, NO_METRICS.cause),
    ("no metrics, the requests say as planned", facts(None, unmeasured=NO_METRICS, told=58),
     None, NO_METRICS.cause),
    ("no metrics, the requests say nothing hit", facts(None, unmeasured=NO_METRICS, told=0),
     FAIL, NO_METRICS.cause),
    ("no metrics under pressure, the requests say nothing hit", facts(None,
     unmeasured=NO_METRICS, told=0, threshold=UNLIMITED), FAIL, NO_METRICS.cause),
    ("counters reset", facts(None, unmeasured=RESET, told=60), None, RESET.cause),
    ("caching off", facts(None, unmeasured=OFF), FAIL, OFF.cause),
    ("caching off, nothing hit", facts(None, unmeasured=OFF, told=0), FAIL, OFF.cause),
    ("caching off, no hit was planned", facts(None, unmeasured=OFF, told=0, designed=0),
     None, OFF.cause),
    ("metrics of another server", facts(None, unmeasured=OFF, told=60), None, OFF.cause),
    ("ended with an error", facts(error="the prompts are other ones"), FAIL, None),
    ("cut short", facts(is_cut_short=True), WARN, None),
    ("cut short, far off", facts(0, is_cut_short=True), FAIL, None),
    ("some metrics missing", facts(is_partial=True), WARN, None),
    ("a check failed", facts(failed_checks=("server_at_rest",)), WARN, None),
)  # fmt: skip


@pytest.mark.parametrize(
    ("run", "expected", "decided_by"),
    [row[1:] for row in TABLE],
    ids=[row[0].replace(" ", "_") for row in TABLE],
)
def test_a_run_is_judged_by_its_gravest_finding(
    run: RunFacts, expected: ValidationStatus | None, decided_by: Cause | None
) -> None:
    judgement = judge(run)
    assert judgement.status is expected
    assert judgement.cause is decided_by
    assert (judgement.reason is None) == (expected is PASS)


def test_what_failed_first_is_told_first() -> None:
    everything = facts(
        0, answers=answers(100), error="gone", is_cut_short=True, is_partial=True,
        failed_checks=("routing", "routing"),
    )  # fmt: skip
    sentences = [finding.sentence for finding in judge(everything).findings]
    assert sentences == [
        "900 of 1,000 requests were not answered, more than 1.00 % of them.",
        "The run ended with an error: gone.",
        "The measured rate is −60.00 pp off the plan; a run of this kind fails beyond 5 pp.",
        "The run was cut short: this is what was measured until then.",
        "The measured rate is partial: the metrics of some instances are missing.",
        "Checks failed while the run was measured: routing.",
    ]


def test_a_few_failed_requests_are_noted_even_where_the_run_passes() -> None:
    (finding,) = judge(facts(answers=answers(995))).findings
    assert finding.sentence == "5 of 1,000 requests were not answered."
