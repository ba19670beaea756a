"""Latencies of groups of requests: quantiles and counts before means, nothing dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import fsum
from operator import attrgetter
from typing import Any

from prefixbench.core.percentiles import percentile_of_sorted
from prefixbench.explain.run_files import ObservedRequest


@dataclass(frozen=True, slots=True)
class LatencyMetric:
    """A latency of a request: the key in the files, its short name, what it runs from and to."""

    key: str
    name: str
    meaning: str


#: `schedule_*` stand beside their twins, so that waiting inside the client is seen.
LATENCIES: tuple[LatencyMetric, ...] = (
    LatencyMetric("ttft_ms", "TTFT", "first token − sending"),
    LatencyMetric("schedule_ttft_ms", "TTFT, scheduled", "first token − planned time"),
    LatencyMetric("tpot_ms", "TPOT", "(finish − first token) / (output tokens − 1)"),
    LatencyMetric("itl_ms", "ITL", "each gap between two tokens"),
    LatencyMetric("e2e_ms", "E2E", "finish − sending"),
    LatencyMetric("schedule_e2e_ms", "E2E, scheduled", "finish − planned time"),
)

#: What a distribution tells, in the order of a table.
STATISTICS = ("count", "min", "p50", "p90", "p95", "p99", "max", "mean")


def distribution(values: Iterable[float | None]) -> dict[str, Any]:
    """Count, quantiles and mean of the values that were measured; None where there are none.

    >>> distribution([1.0, None, 3.0])["p50"], distribution([])["mean"]
    (2.0, None)
    """
    ordered = sorted(value for value in values if value is not None)
    return {
        "count": len(ordered),
        "min": percentile_of_sorted(ordered, 0),
        "p50": percentile_of_sorted(ordered, 50),
        "p90": percentile_of_sorted(ordered, 90),
        "p95": percentile_of_sorted(ordered, 95),
        "p99": percentile_of_sorted(ordered, 99),
        "max": percentile_of_sorted(ordered, 100),
        "mean": fsum(ordered) / len(ordered) if ordered else None,
    }


def latencies(results: Sequence[ObservedRequest]) -> dict[str, Any]:
    """The distributions of all latencies that a request's row holds."""
    return {
        metric.key: distribution(map(attrgetter(metric.key), results))
        for metric in LATENCIES
        if hasattr(ObservedRequest, metric.key)
    }


def latencies_by_cache(results: Iterable[ObservedRequest]) -> dict[str, Any]:
    """Latencies of requests that found something cached beside those that found nothing.

    Requests whose cached tokens were not reported are in neither.
    """
    hit: list[ObservedRequest] = []
    miss: list[ObservedRequest] = []
    for result in results:
        if result.cached_tokens is not None:
            (hit if result.cached_tokens else miss).append(result)
    return {"hit": latencies(hit), "miss": latencies(miss)}
