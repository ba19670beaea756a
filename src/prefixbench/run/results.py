"""One row for each request whose turn came, in the words of the contract (section 4)."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson

from prefixbench.run.answer import Status
from prefixbench.run.client import Exchange
from prefixbench.run.dispatch import Dispatch
from prefixbench.run.schedule import Phase

_NS_PER_MS = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestResult:
    """A request as it went. Moments are nanoseconds since the Unix epoch; None: not measured.

    `ttft_ms` and `e2e_ms` count from sending, `schedule_*` from the planned moment, so that
    waiting inside this client is seen. Of a turn whose session broke off nothing is measured, and
    its `attempt` is 0.
    """

    request_id: str
    phase: str
    round: int
    prefix_group_id: str
    planned_dp_id: int
    planned_instance_id: int
    endpoint: str
    actual_dp_id: int | None = None
    actual_instance_id: int | None = None
    attempt: int
    planned_send_ns: int
    sent_ns: int | None = None
    first_token_ns: int | None = None
    finished_ns: int | None = None
    server_prefill_start_ns: int | None = None
    server_prefill_end_ns: int | None = None
    ttft_ms: float | None = None
    tpot_ms: float | None = None
    e2e_ms: float | None = None
    schedule_ttft_ms: float | None = None
    schedule_e2e_ms: float | None = None
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    status: Status
    http_status: int | None = None
    error: str | None
    dataset_id: str
    manifest_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultContext:
    """What all rows of a phase share; `epoch_ns` turns the clock's moments into Unix time."""

    phase: Phase
    dataset_id: str
    manifest_sha256: str
    epoch_ns: int

    def result(
        self, sent: Dispatch, exchange: Exchange, *, endpoint: str, instance_id: int | None
    ) -> RequestResult:
        """The row of one request. `instance_id` None: a router chose the instance."""
        ok = exchange.status is Status.OK
        return RequestResult(
            **self._planned(sent, endpoint),
            actual_dp_id=exchange.dp_rank,
            actual_instance_id=instance_id,
            attempt=1,
            sent_ns=exchange.sent_ns + self.epoch_ns,
            first_token_ns=_shifted(exchange.first_token_ns, self.epoch_ns),
            finished_ns=exchange.finished_ns + self.epoch_ns,
            ttft_ms=_ms_between(exchange.sent_ns, exchange.first_token_ns),
            tpot_ms=_tpot_ms(exchange) if ok else None,
            e2e_ms=_ms_between(exchange.sent_ns, exchange.finished_ns) if ok else None,
            schedule_ttft_ms=_ms_between(sent.planned_ns, exchange.first_token_ns),
            schedule_e2e_ms=_ms_between(sent.planned_ns, exchange.finished_ns) if ok else None,
            prompt_tokens=exchange.prompt_tokens,
            cached_tokens=exchange.cached_tokens,
            output_tokens=exchange.output_tokens,
            status=exchange.status,
            http_status=exchange.http_status,
            error=exchange.error,
        )

    def unsent(self, due: Dispatch, why: str, *, endpoint: str) -> RequestResult:
        """The row of a request that could not be sent when its turn came."""
        return RequestResult(
            **self._planned(due, endpoint), attempt=0, status=Status.NOT_SENT, error=why
        )

    def _planned(self, due: Dispatch, endpoint: str) -> dict[str, Any]:
        request = due.request
        return {
            "request_id": request.request_id,
            "phase": self.phase.name,
            "round": self.phase.round,
            "prefix_group_id": request.group_id,
            "planned_dp_id": request.dp_id,
            "planned_instance_id": request.instance_id,
            "endpoint": endpoint,
            "planned_send_ns": due.planned_ns + self.epoch_ns,
            "dataset_id": self.dataset_id,
            "manifest_sha256": self.manifest_sha256,
        }


class RowWriter:
    """A JSON lines file that is whole after every row: each row is one write, nothing is held."""

    def __init__(self, path: Path, *, append: bool = False) -> None:
        self._path = path
        self._append = append

    def __enter__(self) -> Self:
        self._file = self._path.open("ab" if self._append else "wb", buffering=0)
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def write(self, row: Any) -> None:
        """Write a mapping or a dataclass."""
        self._file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))


def _tpot_ms(exchange: Exchange) -> float | None:
    """Time per output token after the first; None below two tokens."""
    if exchange.first_token_ns is None or (exchange.output_tokens or 0) < 2:
        return None
    return (
        (exchange.finished_ns - exchange.first_token_ns)
        / _NS_PER_MS
        / ((exchange.output_tokens or 0) - 1)
    )


def _ms_between(start_ns: int, end_ns: int | None) -> float | None:
    return None if end_ns is None else (end_ns - start_ns) / _NS_PER_MS


def _shifted(moment_ns: int | None, epoch_ns: int) -> int | None:
    return None if moment_ns is None else moment_ns + epoch_ns
