"""The first screen of the page: the answer in one sentence, four numbers, and what to know."""

from __future__ import annotations

from prefixbench.core.records import ValidationStatus
from prefixbench.core.wording import plural
from prefixbench.explain.markup import Child, Html, element, join
from prefixbench.explain.report import PrefixCacheReport
from prefixbench.explain.wording import (
    count,
    headline_sentence,
    is_visible_pp,
    percent,
    pick,
    points,
    points_pp,
    readable,
)

_VERDICTS = {
    ValidationStatus.PASS: "Pass",
    ValidationStatus.PASS_WITH_WARNING: "Pass with warning",
    ValidationStatus.FAIL: "Fail",
}


def first_screen(report: PrefixCacheReport) -> Html:
    """Everything above the first section."""
    return element(
        "header",
        element(
            "p",
            "prefixbench report · ",
            element("b", report.dataset_id),
            f" · {report.run_id}" if report.run_id else None,
            class_="crumb",
        ),
        element("h1", _sentence(report), id="headline-sentence"),
        element("p", _setting(report), class_="setting"),
        element(
            "div",
            _target(report),
            _designed(report),
            _measured(report),
            _verdict(report),
            class_="answer",
        ),
        element("ul", [element("li", note, class_="note") for note in report.notes], class_="notes")
        if report.notes
        else None,
    )


def _sentence(report: PrefixCacheReport) -> str:
    sentence = headline_sentence(
        report.target_hit_ratio, report.designed_hit_ratio, report.actual_hit_rate
    )
    return f"{sentence}."


def _setting(report: PrefixCacheReport) -> str:
    """What was run, in one line."""
    run = report.provenance["run"]
    requests = sum(group["requests"] for group in report.groups)
    server = run.get("server") or {}
    engine = " ".join(filter(None, (server.get("engine"), server.get("version"))))
    parts = [
        f"{plural(requests, 'request')} in {plural(len(report.groups), 'prefix group')}",
        f"{readable(report.mode)} mode" if report.mode else None,
        _pace(run.get("concurrency"), run.get("request_rate")),
        f"{engine} server" if engine else None,
        f"blocks of {report.provenance['dataset']['block_size']} tokens",
    ]
    return " · ".join(part for part in parts if part)


def _pace(concurrency: int | None, request_rate: float | None) -> str | None:
    if request_rate:
        return f"{request_rate:g} requests/s"
    return f"concurrency {concurrency}" if concurrency else None


def _tile(name: str, heading: str, number: Child, *lines: Child, class_: str = "") -> Html:
    return element(
        "div",
        element("h2", heading),
        element("p", number, id=f"headline-{name}", class_="big"),
        [element("p", line) for line in lines if line],
        class_=f"tile {class_}".strip(),
    )


def _target(report: PrefixCacheReport) -> Html:
    semantics = pick(report.provenance, "config", "target", "semantics")
    return _tile(
        "target",
        "Target · asked",
        percent(report.target_hit_ratio, absent="per group"),
        "of each request shared and warmed"
        if semantics == "static_prefix_ratio"
        else "of all input tokens, cold start",
    )


def _designed(report: PrefixCacheReport) -> Html:
    tokens = sum(group["input_tokens"] for group in report.groups)
    return _tile(
        "designed",
        "Designed · planned",
        percent(report.designed_hit_ratio),
        f"of {count(tokens)} input tokens",
        _allowing_for(report),
        _prediction(report),
    )


def _allowing_for(report: PrefixCacheReport) -> str | None:
    planned = report.planned_conditions
    return None if planned is None else f"allowing for {planned['in_words']}"


def _prediction(report: PrefixCacheReport) -> str | None:
    """What the plan becomes at the run's concurrency, where that is not the plan itself."""
    low, high = report.prediction["low"], report.prediction["high"]
    if low is None or low == high == report.designed_hit_ratio:
        return None
    if low == high:
        return f"predicted in this cache: {percent(low)}"
    pace = _pace(report.provenance["run"].get("concurrency"), None)
    return f"{percent(low)} to {percent(high)} at {pace or 'this rate'}"


def _measured(report: PrefixCacheReport) -> Html:
    own = report.usage["hit_rate"]
    witness = None if own is None else f"requests' own usage: {percent(own)}"
    if report.actual_hit_rate is None:
        unknown = element("span", percent(None), class_="absent")
        return _tile("actual", "Actual · measured", unknown, witness)
    last = report.phases[-1]["phase"]
    queries = sum(row["queries"] for row in report.phases if row["phase"] == last)
    return _tile(
        "actual",
        "Actual · measured",
        percent(report.actual_hit_rate),
        f"of {count(queries)} {report.provenance['unit'] or 'token'}s queried",
        witness,
        class_="measured",
    )


def _verdict(report: PrefixCacheReport) -> Html:
    status = ValidationStatus(report.status)
    warning, failure = report.runtime_threshold_pp["warn"], report.runtime_threshold_pp["fail"]
    validation = pick(report.provenance, "config", "validation", "pass_tolerance")
    return element(
        "div",
        element("h2", "Verdict"),
        element("p", _verdict_word(report), class_="big"),
        element(
            "dl",
            _deviation("construction", report.construction_deviation, _limit(validation, 100)),
            _deviation("runtime", report.runtime_deviation, _limit(warning, 1)),
        ),
        _main_cause(report),
        id="headline-verdict",
        class_=f"tile verdict {status}",
        title=f"runtime limit: warn above {warning} pp, fail above {failure or 'no'} pp",
    )


def _verdict_word(report: PrefixCacheReport) -> str:
    """A run without a rate has no verdict of its own, unless its data set already failed."""
    if report.runtime_status is None and report.status != ValidationStatus.FAIL:
        return "Not measured"
    return _VERDICTS[ValidationStatus(report.status)]


def _deviation(name: str, deviation: float | None, limit: str | None) -> Html:
    return join(
        element("dt", name),
        element("dd", points(deviation), id=f"deviation-{name}"),
        element("dd", limit, class_="limit"),
    )


def _limit(value: float | None, times: int) -> str | None:
    return None if value is None else f"limit {value * times:g} pp"


def _main_cause(report: PrefixCacheReport) -> Html | None:
    """The first cause that has no size, or one that can be seen."""
    for verdict in report.attribution["verdicts"]:
        step = verdict["contribution_pp"]
        cause = element("a", readable(verdict["cause"]), href="#attribution")
        if step is None:
            return element("p", "because of ", cause)
        if is_visible_pp(step):
            return element("p", "mostly ", cause, f", {points_pp(step)}")
    return None
