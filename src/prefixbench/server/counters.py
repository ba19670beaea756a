"""What one rank counts since it started, in the words every dialect of the metrics page shares."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import accumulate

#: Bucket edges in seconds, as on vLLM's page (its v1 `PrometheusStatLogger`).
FIRST_TOKEN_EDGES_S = (
    *(0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0, 160.0, 640.0, 2560.0),
)
TOKEN_GAP_EDGES_S = (
    *(0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75),
    *(1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0),
)
WHOLE_REQUEST_EDGES_S = (
    *(0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0),
    *(40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0, 1920.0, 7680.0),
)


class FinishedReason(StrEnum):
    """Why a request ended, in vLLM's words; simulated text always runs to its limit."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"
    ERROR = "error"


class Histogram:
    """Counts of observations in buckets whose upper edges are included."""

    def __init__(self, edges: Sequence[float]) -> None:
        self._edges = tuple(edges)
        self._counts = [0] * (len(self._edges) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._edges, value)] += 1
        self.sum += value

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper edge, observations up to it) in ascending order, `+Inf` last.

        >>> histogram = Histogram([0.5, 1.0])
        >>> histogram.observe(0.5); histogram.observe(3.0)
        >>> histogram.cumulative()
        [('0.5', 1), ('1.0', 1), ('+Inf', 2)]
        """
        edges = [*map(str, self._edges), "+Inf"]
        return list(zip(edges, accumulate(self._counts), strict=True))


@dataclass(slots=True)
class RankCounters:
    """Counters of one rank; a new object is what a restart leaves.

    `queries` and `hits` are tokens, `external_*` those of the tiers below. `prompt_tokens`,
    `cached_tokens` and `loaded_tokens` (the part of the cached ones that came from below) are
    counted when the first token of a request comes out, so an aborted request may be in the former
    ones alone.
    """

    started_s: float
    queries: int = 0
    hits: int = 0
    external_queries: int = 0
    external_hits: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    loaded_tokens: int = 0
    generation_tokens: int = 0
    preemptions: int = 0
    finished: dict[FinishedReason, int] = field(
        default_factory=lambda: dict.fromkeys(FinishedReason, 0)
    )
    first_token_s: Histogram = field(default_factory=lambda: Histogram(FIRST_TOKEN_EDGES_S))
    token_gap_s: Histogram = field(default_factory=lambda: Histogram(TOKEN_GAP_EDGES_S))
    whole_request_s: Histogram = field(default_factory=lambda: Histogram(WHOLE_REQUEST_EDGES_S))
