"""Reading of fault words; what each fault does is in the end-to-end tests."""

from __future__ import annotations

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.server.faults import FAULT_RULES, Fault, parse_faults


def test_every_fault_has_a_row() -> None:
    assert set(FAULT_RULES) == set(Fault)


def test_values_are_read() -> None:
    faults = parse_faults(["http_error=0.5", "block_size_label=128", "timeout", "metrics_404"])
    assert faults.values == {
        Fault.HTTP_ERROR: 0.5,
        Fault.BLOCK_SIZE_LABEL: 128.0,
        Fault.TIMEOUT: None,
        Fault.METRICS_404: None,
    }
    assert faults.count(Fault.BLOCK_SIZE_LABEL) == 128
    assert faults.count(Fault.COUNTER_RESET) is None


@pytest.mark.parametrize(
    "word",
    [
        "metrics_404=1",
        "block_size_label",
        "block_size_label=0",
        "block_size_label=1.5",
        "counter_reset=x",
        "http_error=0",
        "http_error=1.5",
        "http_error=-1",
        "http_error=inf",
        "http_error=nan",
    ],
)
def test_values_that_a_fault_does_not_take_are_refused(word: str) -> None:
    with pytest.raises(ConfigError, match=word.partition("=")[0]):
        parse_faults([word])


def test_all_wrong_words_are_reported_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_faults(["http_eror", "timeout", "counter_reset"])
    names = [(problem.given, problem.nearest) for problem in refusal.value.problems]
    assert names == [("http_eror", "http_error"), ("", None)]


def test_shares_strike_about_as_many_and_counts_exactly() -> None:
    share, count, always = (
        parse_faults([word]) for word in ("http_error=0.2", "http_error=3", "http_error")
    )
    struck = [n for n in range(1000) if share.strikes(Fault.HTTP_ERROR, n)]
    assert 150 < len(struck) < 250
    assert [n for n in range(10) if count.strikes(Fault.HTTP_ERROR, n)] == [0, 1, 2]
    assert all(always.strikes(Fault.HTTP_ERROR, n) for n in range(10))
    assert not any(always.strikes(Fault.TIMEOUT, n) for n in range(10))
