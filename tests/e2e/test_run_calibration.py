"""The client measured against a server of known timing."""

from __future__ import annotations

from pathlib import Path

from prefixbench.core.clock import RealClock
from prefixbench.run.calibration import calibrate, calibration_endpoint
from prefixbench.run.client import Client
from prefixbench.run.runner import run_dataset_async
from prefixbench.server.app import ServeOptions, running_server
from run_samples import STATIC, document, options, sample


async def test_the_endpoint_answers_in_so_many_pieces_after_its_delay() -> None:
    async with (
        calibration_endpoint(chunks=7, delay_ms=30) as url,
        Client(RealClock(), timeout_s=10) as client,
    ):
        got = await client.complete(url + "/v1/completions", b"{}")
    assert got.first_token_ns is not None
    assert got.first_token_ns - got.sent_ns >= 30_000_000
    assert (len(got.gaps_ns), got.output_tokens) == (6, 7)


async def test_the_clients_own_share_is_small_and_above_nothing() -> None:
    found = await calibrate(RealClock(), concurrency=4)
    assert found.requests == 50
    assert 0 < found.ttft_bias_ms_mean < 15
    assert 0 < found.cpu_ms_per_request < 15


async def test_a_run_states_its_calibration_only_when_asked(tmp_path: Path) -> None:
    dataset = sample(STATIC, request_count=4)
    async with running_server(ServeOptions(time_scale=0)) as url:
        await run_dataset_async(options(dataset, tmp_path / "plain", url))
        await run_dataset_async(options(dataset, tmp_path / "run", url, calibrate=True))
    assert document(tmp_path / "plain", "run")["calibration"] is None
    assert document(tmp_path / "run", "run")["calibration"]["requests"] == 50
