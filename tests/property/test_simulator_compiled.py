"""The compiled loops give what the readable ones give; as plain Python they always run here."""

from __future__ import annotations

from itertools import accumulate

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_paths import BOTH, take_loops
from prefixbench.simulator import compiled
from prefixbench.simulator.compiled import (
    ChainColumns,
    compiled_depths,
    compiled_hits,
    compiled_steps,
)
from prefixbench.simulator.stack_distance import (
    CapacityCurve,
    ChainRequest,
    lru_curve,
    lru_depths,
    lru_hits,
)

REQUESTS = st.lists(
    st.builds(ChainRequest, st.integers(0, 2), st.integers(0, 6), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


@pytest.fixture(autouse=True, params=BOTH)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    take_loops(request.param, monkeypatch)


def curve_of(requests: list[ChainRequest]) -> CapacityCurve:
    blocks = sum(request.blocks for request in requests)
    return CapacityCurve.from_steps(blocks, compiled_steps(ChainColumns.of(requests)))


def check_hits(requests: list[ChainRequest], capacity: int) -> None:
    found = compiled_hits(ChainColumns.of(requests), capacity)
    assert found == lru_hits(requests, capacity)
    assert all(type(hits) is int for hits in found)


def check_depths(requests: list[ChainRequest], waiting: list[int], capacity: int) -> None:
    stored_before = list(accumulate((max(row - wait, 0) for row, wait in enumerate(waiting)), max))[
        : len(requests)
    ]
    expected = list(lru_depths(requests, stored_before, capacity))
    found = compiled_depths(ChainColumns.of(requests), np.array(stored_before), capacity)
    assert found.tolist() == expected


def check_curve(requests: list[ChainRequest]) -> None:
    found, readable = curve_of(requests), lru_curve(requests)
    assert found.tally() == readable.tally()
    for capacity in range(0, 400, 7):
        assert found.tally(capacity) == readable.tally(capacity)


def test_hits_at_a_capacity() -> None:
    settings(deadline=None)(given(REQUESTS, st.integers(1, 60))(check_hits))()


def test_depths_with_requests_in_flight() -> None:
    waiting = st.lists(st.integers(0, 9), min_size=40, max_size=40)
    settings(deadline=None)(given(REQUESTS, waiting, st.integers(0, 60))(check_depths))()


def test_hits_at_every_capacity() -> None:
    settings(deadline=None)(given(REQUESTS)(check_curve))()


def test_long_inputs_are_compiled_where_numba_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    requests = [ChainRequest(0, 3, 1), ChainRequest(0, 5, 0), ChainRequest(1, 1, 2)] * 3
    expected = lru_hits(requests, 4), lru_curve(requests)
    monkeypatch.setattr(compiled, "WORTH_COMPILING", 2)
    monkeypatch.setattr(compiled, "find_spec", lambda name: name == "numba")
    assert compiled.is_worth_compiling(2)
    assert lru_hits(requests, 4) == expected[0]
    assert lru_curve(requests).tally(4) == expected[1].tally(4)
    monkeypatch.setattr(compiled, "find_spec", lambda _name: None)
    assert not compiled.is_worth_compiling(10**9)
