"""The loops of the simulator as plain Python, or compiled where numba is installed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from extras import needs
from prefixbench.simulator import compiled, compiled_play, play

PLAIN, NUMBA = "plain", "numba"
BOTH = (PLAIN, pytest.param(NUMBA, marks=pytest.mark.extras))


def take_loops(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let compiled paths run as they are, or skip the test where nothing can be compiled."""
    if kind == NUMBA:
        needs("numba")
        return
    monkeypatch.setattr(compiled, "_compiled", _as_it_is)
    monkeypatch.setattr(compiled_play, "_compile", _as_it_is)
    monkeypatch.setattr(play, "can_compile", lambda: True)


def _as_it_is(loop: Callable[..., Any]) -> Callable[..., Any]:
    return loop
