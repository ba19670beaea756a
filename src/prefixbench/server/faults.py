"""Faults on purpose: the server fails as real ones do, so that a runner and a report can be tested.

A fault is a name with an optional value (`--fault http_error=0.1`); the table below is all there
is. Which requests a fault strikes depends on their number alone (0 for the first generation
request), so a run can be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import StrEnum

from prefixbench.core.errors import ConfigError, ConfigProblem, ErrorContext, Stage
from prefixbench.core.seeds import stream, unit


class Fault(StrEnum):
    """The names that `--fault` takes."""

    HTTP_ERROR = "http_error"
    TIMEOUT = "timeout"
    DISCONNECT = "disconnect"
    METRICS_400 = "metrics_400"
    METRICS_404 = "metrics_404"
    METRICS_HTML = "metrics_html"
    METRICS_EMPTY = "metrics_empty"
    METRICS_TRUNCATED = "metrics_truncated"
    COUNTER_RESET = "counter_reset"
    BLOCK_SIZE_LABEL = "block_size_label"
    NO_CACHED_TOKENS = "no_cached_tokens"
    EXTRA_PROMPT_TOKEN = "extra_prompt_token"
    SHORT_ANSWER = "short_answer"


class ValueRule(StrEnum):
    """What may stand behind the name; the text is what an error message says is allowed."""

    NONE = "no value"
    SHARE_OR_COUNT = "no value (all), a share below 1, or N for the first N requests"
    COUNT = "a whole number above 0"

    def accepts(self, value: float | None) -> bool:
        match self:
            case ValueRule.NONE:
                return value is None
            case ValueRule.COUNT:
                return value is not None and _is_count(value)
            case ValueRule.SHARE_OR_COUNT:
                return value is None or 0 < value < 1 or _is_count(value)


def _is_count(value: float) -> bool:
    return value >= 1 and value.is_integer()


@dataclass(frozen=True, slots=True)
class FaultRule:
    """One row of the table: what the fault does, and which value it takes."""

    meaning: str
    value: ValueRule = ValueRule.NONE


FAULT_RULES: Mapping[Fault, FaultRule] = {
    Fault.HTTP_ERROR: FaultRule("answers with status 500", ValueRule.SHARE_OR_COUNT),
    Fault.TIMEOUT: FaultRule("never answers", ValueRule.SHARE_OR_COUNT),
    Fault.DISCONNECT: FaultRule(
        "closes the connection after the first token", ValueRule.SHARE_OR_COUNT
    ),
    Fault.METRICS_400: FaultRule("/metrics answers with status 400"),
    Fault.METRICS_404: FaultRule("/metrics answers with status 404"),
    Fault.METRICS_HTML: FaultRule("/metrics is an HTML page"),
    Fault.METRICS_EMPTY: FaultRule("/metrics is empty"),
    Fault.METRICS_TRUNCATED: FaultRule("/metrics ends in the middle of a line"),
    Fault.COUNTER_RESET: FaultRule(
        "counters and start time begin anew after N requests, as after a restart", ValueRule.COUNT
    ),
    Fault.BLOCK_SIZE_LABEL: FaultRule("the labels state a block size of N", ValueRule.COUNT),
    Fault.NO_CACHED_TOKENS: FaultRule("usage has no cached_tokens"),
    Fault.EXTRA_PROMPT_TOKEN: FaultRule("every prompt gets one token more, at its start"),
    Fault.SHORT_ANSWER: FaultRule(
        "answers end at half their length, whatever the request says", ValueRule.SHARE_OR_COUNT
    ),
}


@dataclass(frozen=True, slots=True)
class Faults:
    """The faults that are on."""

    values: Mapping[Fault, float | None]

    def has(self, fault: Fault) -> bool:
        return fault in self.values

    def count(self, fault: Fault) -> int | None:
        """The whole number given with a fault; None when the fault is off."""
        value = self.values.get(fault)
        return None if value is None else int(value)

    def strikes(self, fault: Fault, request_number: int) -> bool:
        """Whether a fault of share or count hits this request."""
        if fault not in self.values:
            return False
        value = self.values[fault]
        if value is None:
            return True
        if value < 1:
            return unit(stream("fault", name=fault.value), request_number) < value
        return request_number < value


def parse_faults(specs: Sequence[str]) -> Faults:
    """Read `NAME[=VALUE]` words; every wrong one is reported at once."""
    values: dict[Fault, float | None] = {}
    problems: list[ConfigProblem] = []
    for spec in specs:
        name, _, text = spec.partition("=")
        problem = _problem(name, text)
        if problem is None:
            values[Fault(name)] = float(text) if text else None
        else:
            problems.append(problem)
    if problems:
        raise ConfigError(
            "; ".join(problem.message for problem in problems),
            context=ErrorContext(stage=Stage.CONFIG, field="--fault"),
            hint=f"known faults: {', '.join(Fault)}",
            problems=problems,
        )
    return Faults(values)


def _problem(name: str, text: str) -> ConfigProblem | None:
    if name not in FAULT_RULES:
        return ConfigProblem(
            path="--fault",
            message=f"there is no fault {name!r}",
            given=name,
            allowed=", ".join(Fault),
            nearest=next(iter(get_close_matches(name, list(Fault), n=1)), None),
        )
    rule = FAULT_RULES[Fault(name)].value
    if rule.accepts(_number(text)):
        return None
    return ConfigProblem(
        path="--fault",
        message=f"fault {name} takes {rule.value}, not {text!r}",
        given=text,
        allowed=rule.value,
    )


def _number(text: str) -> float | None:
    """None for no text; not-a-number, which no rule accepts, for text that is no number."""
    try:
        return float(text) if text else None
    except ValueError:
        return float("nan")


@dataclass(frozen=True, slots=True)
class Page:
    """A metrics page as it goes out."""

    text: str
    status: int = 200
    content_type: str = "text/plain"


_PAGE_FAULTS: Mapping[Fault, Callable[[str], Page]] = {
    Fault.METRICS_400: lambda _: Page("bad request\n", status=400),
    Fault.METRICS_404: lambda _: Page("not found\n", status=404),
    Fault.METRICS_HTML: lambda _: Page(
        "<!doctype html><title>Sign in</title><p>Sign in\n", content_type="text/html"
    ),
    Fault.METRICS_EMPTY: lambda _: Page(""),
    Fault.METRICS_TRUNCATED: lambda text: Page(text[: _middle_of_a_sample(text)]),
}


def faulty_page(text: str, faults: Faults) -> Page:
    """The page as the faults leave it."""
    for fault, disturb in _PAGE_FAULTS.items():
        if faults.has(fault):
            return disturb(text)
    return Page(text)


def _middle_of_a_sample(text: str) -> int:
    """A place about half-way behind an opening brace, so that what is left cannot be read."""
    return text.index("{", len(text) // 2) + 1
