"""A metrics page as text, read into samples by name.

Reads the Prometheus text format and OpenMetrics with prometheus_client's parsers. A counter's
`_total` is taken off, so that one name serves pages of any version; `_created` samples stand
apart. Every page that is no metrics page has its own error: nothing here ever reads as 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as read_openmetrics
from prometheus_client.parser import text_string_to_metric_families as read_prometheus

from prefixbench.core.errors import ErrorContext, MetricsError, Stage

_END_OF_OPENMETRICS = "# EOF"
_LARGEST_EXACT = 2**53


class ScrapeProblem(StrEnum):
    """Why a metrics address gave no samples."""

    UNREACHABLE = "unreachable"
    TIMEOUT = "timeout"
    BAD_REQUEST = "bad_request"
    NOT_FOUND = "not_found"
    HTTP_ERROR = "http_error"
    HTML = "html"
    EMPTY = "empty"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"


_MEANINGS: Mapping[ScrapeProblem, tuple[str, str]] = {
    ScrapeProblem.UNREACHABLE: (
        "the metrics address cannot be reached",
        "check --metrics-url; the server may listen for metrics on another port",
    ),
    ScrapeProblem.TIMEOUT: (
        "the metrics address did not answer in time",
        "check that the server is up and that --metrics-url is its own address",
    ),
    ScrapeProblem.BAD_REQUEST: (
        "the metrics address answered 400 Bad Request",
        "check --metrics-url; some servers give metrics over https only",
    ),
    ScrapeProblem.NOT_FOUND: (
        "the metrics address answered 404 Not Found",
        "switch metrics on in the server (SGLang: --enable-metrics, llama.cpp: --metrics, "
        "MindIE: MIES_SERVICE_MONITOR_MODE=1), or give --metrics-url",
    ),
    ScrapeProblem.HTTP_ERROR: (
        "the metrics address answered with an error status",
        "look into the server's log",
    ),
    ScrapeProblem.HTML: (
        "the metrics address answered with an HTML page",
        "a proxy or a login page stands in front of it; give the server's own --metrics-url",
    ),
    ScrapeProblem.EMPTY: (
        "the metrics page is empty",
        "switch metrics on in the server, or give the address of the worker, not of its proxy",
    ),
    ScrapeProblem.TRUNCATED: (
        "the metrics page ends in the middle of a line",
        "a proxy may cut long answers; give the server's own --metrics-url",
    ),
    ScrapeProblem.MALFORMED: (
        "the metrics page is not in the Prometheus text format",
        "check --metrics-url",
    ),
}


class ScrapeError(MetricsError):
    """A metrics address gave no samples; `problem` says why."""

    def __init__(self, problem: ScrapeProblem, detail: str = "") -> None:
        message, hint = _MEANINGS[problem]
        super().__init__(
            f"{message} ({detail})" if detail else message,
            context=ErrorContext(stage=Stage.METRICS, field="metrics_url"),
            hint=hint,
        )
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Sample:
    """One number of a family."""

    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class Exposition:
    """Samples by family; for histograms the families are `x_bucket`, `x_sum` and `x_count`.

    A family that is declared and has no sample yet is there, empty: a labelled counter that was
    never raised.
    """

    samples: Mapping[str, tuple[Sample, ...]]
    created: Mapping[str, tuple[Sample, ...]]

    def of(self, family: str) -> tuple[Sample, ...]:
        return self.samples.get(family, ())

    def has(self, family: str) -> bool:
        return family in self.samples


def parse_exposition(text: str) -> Exposition:
    """Read a metrics page; raise ScrapeError if it is none."""
    _refuse_other_pages(text)
    if text.rstrip().endswith(_END_OF_OPENMETRICS):
        return _collect(text, openmetrics=True)
    if not text.endswith("\n"):
        raise ScrapeError(ScrapeProblem.TRUNCATED)
    return _collect(text, openmetrics=False)


def lines_of(text: str, families: Iterable[str]) -> str:
    """The sample lines of some families alone, so that reading them is cheap.

    >>> lines_of('# TYPE a gauge\\na{x="1"} 2\\nab 3\\nb 4\\n', ["a"])
    'a{x="1"} 2\\n'
    """
    wanted = tuple(family + end for family in families for end in ("{", " "))
    return "".join(line for line in text.splitlines(keepends=True) if line.startswith(wanted))


def whole_number(value: float) -> int | None:
    """A counter's value as the integer it is; None where it is none or no longer exact."""
    if math.isfinite(value) and value.is_integer() and abs(value) <= _LARGEST_EXACT:
        return int(value)
    return None


def _refuse_other_pages(text: str) -> None:
    start = text.lstrip()[:200].lower()
    if not start:
        raise ScrapeError(ScrapeProblem.EMPTY)
    if start.startswith("<"):
        raise ScrapeError(ScrapeProblem.HTML)


def _collect(text: str, *, openmetrics: bool) -> Exposition:
    samples: dict[str, list[Sample]] = {}
    created: dict[str, list[Sample]] = {}
    read = read_openmetrics if openmetrics else read_prometheus
    try:
        for metric in read(text):
            _sort_in(metric, samples, created)
    except (ValueError, KeyError, IndexError) as error:
        raise ScrapeError(ScrapeProblem.MALFORMED) from error
    return Exposition(
        {name: tuple(rows) for name, rows in samples.items()},
        {name: tuple(rows) for name, rows in created.items()},
    )


def _sort_in(
    metric: Metric, samples: dict[str, list[Sample]], created: dict[str, list[Sample]]
) -> None:
    if not metric.name.endswith("_created"):
        samples.setdefault(metric.name.removesuffix("_total"), [])
    for sample in metric.samples:
        home, name = samples, sample.name.removesuffix("_total")
        if sample.name.endswith("_created"):
            home, name = created, sample.name.removesuffix("_created")
        home.setdefault(name, []).append(Sample(sample.labels, sample.value))
