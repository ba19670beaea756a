"""When a client says of itself that it was too slow, and by which number."""

from __future__ import annotations

from prefixbench.run.observe import ClientVerdict, judge_client


def test_a_single_pause_is_no_lateness() -> None:
    lags_ms = [0.2] * 40 + [60.0, 30.0]
    assert judge_client(lags_ms, [0.1] * 40, cpu_s=0.1, wall_s=1) == (ClientVerdict.OK, None)


def test_small_lags_are_no_lateness_however_many() -> None:
    assert judge_client([5.0] * 500, [5.0] * 500, cpu_s=0, wall_s=1) == (ClientVerdict.OK, None)


def test_rare_lags_are_no_lateness() -> None:
    lags_ms = [0.2] * 9_990 + [60.0] * 10
    assert judge_client(lags_ms, [0.1], cpu_s=0, wall_s=1) == (ClientVerdict.OK, None)


def test_the_number_that_shows_lateness_is_named() -> None:
    late = [12.0] * 30
    assert judge_client(late, [0.1] * 30, cpu_s=0, wall_s=1) == (
        ClientVerdict.LATE,
        "p99 of its event loop's lag: 12.0 ms",
    )
    assert judge_client([0.1] * 30, late, cpu_s=0, wall_s=1) == (
        ClientVerdict.LATE,
        "p99 of its send delay: 12.0 ms",
    )


def test_a_client_short_of_processor_time_says_how_much_it_used() -> None:
    assert judge_client([], [], cpu_s=1.9, wall_s=2) == (
        ClientVerdict.BUSY,
        "1.9 s of processor time in 2.0 s",
    )
