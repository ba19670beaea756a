"""Rows of results and the figures made of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixbench.run.answer import Status
from prefixbench.run.client import Exchange
from prefixbench.run.dispatch import Dispatch
from prefixbench.run.observe import ClientReport, ClientVerdict
from prefixbench.run.performance import PhaseLoad
from prefixbench.run.planned import PlannedRequest
from prefixbench.run.results import RequestResult, ResultContext, RowWriter
from prefixbench.run.schedule import Gate, Phase, Tickets

MS = 1_000_000
PHASE = Phase(name="cold", round=1, isolated=True, warmed=False)
CONTEXT = ResultContext(phase=PHASE, dataset_id="d", manifest_sha256="m", epoch_ns=1000)
CLIENT = ClientReport(
    loop_lag_ms_p99=0.1,
    send_delay_ms_p99=0.2,
    cpu_s=0.5,
    max_rss_bytes=1,
    verdict=ClientVerdict.OK,
)


def result_of(
    *, planned_ns: int = 0, sent_ns: int = 2 * MS, finished_ns: int = 22 * MS, **more: Any
) -> RequestResult:
    request = PlannedRequest(
        row={"request_id": "r"},
        metadata={"prefix_group_id": "g", "planned_dp_id": 1, "planned_instance_id": 2},
    )
    dispatch = Dispatch(
        request=request,
        ticket=Tickets(Gate.NONE).take(request),
        planned_ns=planned_ns,
        ready_ns=planned_ns,
    )
    fields: dict[str, Any] = {"status": Status.OK, "first_token_ns": 12 * MS, "output_tokens": 3}
    exchange = Exchange(sent_ns=sent_ns, finished_ns=finished_ns, **(fields | more))
    return CONTEXT.result(dispatch, exchange, endpoint="e", instance_id=2)


def row_of(*results: RequestResult, gaps_ns: tuple[int, ...] = (), planned: int = 9) -> Any:
    load = PhaseLoad(planned=planned)
    for result in results:
        load.add(result, gaps_ns)
    return load.to_json(PHASE, concurrency=4, most_in_flight=3, client=CLIENT)


def test_latencies_count_from_sending_and_from_the_planned_time() -> None:
    result = result_of()
    assert (result.ttft_ms, result.schedule_ttft_ms) == (10, 12)
    assert (result.e2e_ms, result.schedule_e2e_ms) == (20, 22)
    assert result.tpot_ms == 5
    assert (result.planned_send_ns, result.sent_ns) == (1000, 2 * MS + 1000)
    assert (result.planned_dp_id, result.planned_instance_id, result.actual_dp_id) == (1, 2, None)


@pytest.mark.parametrize("output_tokens", [None, 0, 1])
def test_below_two_tokens_there_is_no_time_per_token(output_tokens: int | None) -> None:
    assert result_of(output_tokens=output_tokens).tpot_ms is None


def test_a_failed_request_keeps_what_was_measured_and_no_latency_of_the_whole() -> None:
    result = result_of(status=Status.DISCONNECTED)
    assert result.ttft_ms == 10
    assert result.e2e_ms is result.schedule_e2e_ms is result.tpot_ms is None
    assert result_of(first_token_ns=None).ttft_ms is None


def test_latencies_are_those_of_answered_requests_alone() -> None:
    slow = result_of(first_token_ns=32 * MS, finished_ns=52 * MS)
    row = row_of(result_of(), slow, result_of(status=Status.TIMEOUT, first_token_ns=19 * MS))
    assert row["ttft_ms"] == {
        "mean": 20,
        "p50": 20,
        "p90": pytest.approx(28),
        "p95": pytest.approx(29),
        "p99": pytest.approx(29.8),
        "min": 10,
        "max": 30,
        "count": 2,
    }
    assert row["requests"] == {
        "planned": 9,
        "sent": 3,
        "succeeded": 2,
        "failed": 1,
        "timed_out": 1,
        "not_sent": 0,
        "retried": 0,
    }
    assert row["success_rate"] == pytest.approx(2 / 3)
    assert row["timeout_rate"] == pytest.approx(1 / 3)


def test_rates_are_over_the_time_from_first_sending_to_last_end() -> None:
    late = result_of(sent_ns=12 * MS, finished_ns=102 * MS, prompt_tokens=50)
    row = row_of(result_of(prompt_tokens=30), late)
    assert row["duration_s"] == pytest.approx(0.1)
    assert row["qps"] == row["request_throughput"] == pytest.approx(20)
    assert row["input_token_throughput"] == pytest.approx(800)
    assert row["output_token_throughput"] == pytest.approx(60)
    assert row["concurrency"]["achieved_mean"] == pytest.approx((20 + 90) / 100)
    assert row["concurrency"]["configured"] == 4
    assert row["concurrency"]["achieved_max"] == 3


def test_gaps_are_the_time_between_pieces() -> None:
    row = row_of(result_of(), gaps_ns=(2 * MS, 4 * MS))
    assert (row["itl_ms"]["mean"], row["itl_ms"]["count"]) == (3, 2)


def test_what_was_not_measured_is_null_with_a_reason() -> None:
    row = row_of(result_of(first_token_ns=None, output_tokens=None))
    for name in ("ttft_ms", "tpot_ms", "itl_ms"):
        assert row[name]["mean"] is None
        assert row["not_measured"][name]
    assert row["input_token_throughput"] is row["output_token_throughput"] is None
    assert "input_token_throughput" in row["not_measured"]
    assert "e2e_ms" not in row["not_measured"]


def test_one_answer_without_usage_leaves_no_token_throughput() -> None:
    row = row_of(result_of(prompt_tokens=30), result_of(prompt_tokens=None))
    assert row["input_token_throughput"] is None


def test_a_phase_in_which_nothing_was_sent() -> None:
    row = row_of()
    assert row["duration_s"] is row["success_rate"] is row["qps"] is None
    assert row["not_measured"] == {"all": "no request was sent"}


def test_a_row_is_on_disk_as_soon_as_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    with RowWriter(path) as writer:
        writer.write(result_of())
        (line,) = path.read_bytes().splitlines()
        assert orjson.loads(line)["status"] == "ok"
