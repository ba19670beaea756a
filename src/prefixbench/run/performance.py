"""Latencies and throughput of a phase, from its requests (RFC 3.3.20)."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from prefixbench.core.percentiles import percentile_of_sorted
from prefixbench.run.answer import Status
from prefixbench.run.observe import ClientReport
from prefixbench.run.results import RequestResult
from prefixbench.run.schedule import Phase

_NS_PER_MS = 1e6
_NS_PER_S = 1e9
_LATENCIES = ("ttft_ms", "tpot_ms", "e2e_ms", "schedule_ttft_ms", "schedule_e2e_ms")
_QUANTILES = (50, 90, 95, 99)


@dataclass(frozen=True, slots=True)
class PerformanceResult:
    """`performance_metrics.json`: one row a phase; `headline` names the phase that counts."""

    dataset_id: str
    manifest_sha256: str
    headline: str
    phases: tuple[Mapping[str, Any], ...]

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset_id": self.dataset_id,
            "manifest_sha256": self.manifest_sha256,
            "headline": self.headline,
            "phases": list(self.phases),
        }


@dataclass(slots=True)
class PhaseLoad:
    """Collects the requests of one phase. Latencies are those of answered requests alone."""

    planned: int
    sent: int = 0
    not_sent: int = 0
    succeeded: int = 0
    timed_out: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    input_tokens_known: int = 0
    output_tokens_known: int = 0
    busy_ns: int = 0
    first_sent_ns: int | None = None
    last_finished_ns: int | None = None
    latencies_ms: dict[str, array[float]] = field(
        default_factory=lambda: {name: array("d") for name in _LATENCIES}
    )
    gaps_ms: array[float] = field(default_factory=lambda: array("d"))

    def add(self, result: RequestResult, gaps_ns: Sequence[int]) -> None:
        if result.sent_ns is None or result.finished_ns is None:
            self.not_sent += 1
            return
        self.sent += 1
        self.timed_out += result.status is Status.TIMEOUT
        self.busy_ns += result.finished_ns - result.sent_ns
        self.first_sent_ns = min(self.first_sent_ns or result.sent_ns, result.sent_ns)
        self.last_finished_ns = max(self.last_finished_ns or 0, result.finished_ns)
        if result.status is Status.OK:
            self._add_answered(result, gaps_ns)

    @property
    def due(self) -> int:
        """Requests whose turn came: those sent, and those of sessions that had broken off."""
        return self.sent + self.not_sent

    @property
    def failed(self) -> int:
        return self.due - self.succeeded

    @property
    def duration_s(self) -> float | None:
        """From the first sending to the last end."""
        if self.first_sent_ns is None or self.last_finished_ns is None:
            return None
        return (self.last_finished_ns - self.first_sent_ns) / _NS_PER_S

    def to_json(
        self,
        phase: Phase,
        *,
        concurrency: int | None,
        most_in_flight: int,
        client: ClientReport,
    ) -> dict[str, Any]:
        """The phase's row of performance_metrics.json."""
        duration_s = self.duration_s
        return {
            "phase": phase.name,
            "round": phase.round,
            "duration_s": duration_s,
            **{name: _summary(values) for name, values in self.latencies_ms.items()},
            "itl_ms": _summary(self.gaps_ms),
            "request_throughput": _per(self.succeeded, duration_s),
            "qps": _per(self.sent, duration_s),
            "input_token_throughput": _per(self._all_input_tokens, duration_s),
            "output_token_throughput": _per(self._all_output_tokens, duration_s),
            "success_rate": _per(self.succeeded, self.due),
            "timeout_rate": _per(self.timed_out, self.sent),
            "requests": {
                "planned": self.planned,
                "sent": self.sent,
                "succeeded": self.succeeded,
                "failed": self.failed,
                "timed_out": self.timed_out,
                "not_sent": self.not_sent,
                "retried": 0,
            },
            "concurrency": {
                "configured": concurrency,
                "achieved_mean": _per(self.busy_ns / _NS_PER_S, duration_s),
                "achieved_max": most_in_flight,
            },
            "client": asdict(client),
            "not_measured": self._not_measured(),
        }

    def _not_measured(self) -> dict[str, str]:
        """Why figures of the row are null."""
        if not self.sent:
            return {"all": "no request was sent"}
        if not self.succeeded:
            return {"latencies": "no request was answered"}
        reasons = {
            "ttft_ms": (self.latencies_ms["ttft_ms"], "no answer was streamed"),
            "tpot_ms": (
                self.latencies_ms["tpot_ms"],
                "no answer has two tokens and tells how many it has",
            ),
            "itl_ms": (self.gaps_ms, "no answer came in two pieces"),
            "input_token_throughput": (self._all_input_tokens, "not every answer told its usage"),
            "output_token_throughput": (self._all_output_tokens, "not every answer told its usage"),
        }
        return {name: reason for name, (measured, reason) in reasons.items() if not measured}

    @property
    def _all_input_tokens(self) -> int | None:
        """Of all answered requests; None unless the server told for each."""
        return self.input_tokens if self.input_tokens_known == self.succeeded else None

    @property
    def _all_output_tokens(self) -> int | None:
        return self.output_tokens if self.output_tokens_known == self.succeeded else None

    def _add_answered(self, result: RequestResult, gaps_ns: Sequence[int]) -> None:
        self.succeeded += 1
        for name, values in self.latencies_ms.items():
            value = getattr(result, name)
            if value is not None:
                values.append(value)
        self.gaps_ms.extend(gap_ns / _NS_PER_MS for gap_ns in gaps_ns)
        if result.prompt_tokens is not None:
            self.input_tokens += result.prompt_tokens
            self.input_tokens_known += 1
        if result.output_tokens is not None:
            self.output_tokens += result.output_tokens
            self.output_tokens_known += 1


def _summary(values: Sequence[float]) -> dict[str, float | int | None]:
    ordered = sorted(values)
    return {
        "mean": sum(ordered) / len(ordered) if ordered else None,
        **{f"p{q}": percentile_of_sorted(ordered, q) for q in _QUANTILES},
        "min": ordered[0] if ordered else None,
        "max": ordered[-1] if ordered else None,
        "count": len(ordered),
    }


def _per(amount: float | None, base: float | None) -> float | None:
    return amount / base if amount is not None and base else None
