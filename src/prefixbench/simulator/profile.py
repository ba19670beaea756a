"""The table of engine profiles: one row a version range, each value with its source."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.other_profiles import IDEAL, OTHER_ROWS
from prefixbench.simulator.rules import EngineProfile, Role, next_row
from prefixbench.simulator.vllm_profiles import (
    ASCEND_ROWS,
    LMCACHE,
    LMCACHE_NOTES,
    TIERED_ROWS,
    VLLM_ROWS,
)

__all__ = ["EngineProfile", "get_profile", "profiles"]

_ROWS = (IDEAL, *VLLM_ROWS, *ASCEND_ROWS, *TIERED_ROWS, *OTHER_ROWS)
_ROLES = {"": Role.WHOLE, "prefill": Role.PREFILL, "decode": Role.DECODE}


def profiles() -> tuple[EngineProfile, ...]:
    """All rows of the table; a vLLM row stands for every version in its range."""
    return _ROWS


def get_profile(name: str) -> EngineProfile:
    """The profile of this name.

    Beside the rows of the table: `vllm-0.N` for every N from 9 to 33, `NAME+lmcache` for an engine
    with that tier below its cache (`lmcache` is one), `NAME:prefill` and `NAME:decode`.

    >>> get_profile("vllm-0.26").counting.value
    'at every look-up'
    >>> get_profile("vllm-0.33:decode").role.value
    "decode: the prompt's KV is handed over"
    >>> str(get_profile("vllm-0.26+lmcache").tiers[0])
    'external: units of 256 tokens, written when it was computed'
    """
    base_name, _, role = name.partition(":")
    engine_name, _, tier = base_name.partition("+")
    row = _vllm_row(engine_name) or next((row for row in _ROWS if row.name == engine_name), None)
    if row is None or role not in _ROLES or tier not in ("", "lmcache"):
        raise _unknown(name)
    if tier:
        row = next_row(row, LMCACHE_NOTES, tiers=(LMCACHE,))
    return replace(row, name=name, role=_ROLES[role])


def _vllm_row(name: str) -> EngineProfile | None:
    """The newest vLLM row that is not newer than the named version."""
    minor = name.removeprefix("vllm-0.")
    if minor == name or not minor.isdecimal() or not 9 <= int(minor) <= 33:
        return None
    older = [row for row in VLLM_ROWS if int(row.name.removeprefix("vllm-0.")) <= int(minor)]
    return older[-1]


def _unknown(name: str) -> ConfigError:
    names = [row.name for row in _ROWS]
    nearest = get_close_matches(name, names, n=1)
    return ConfigError(
        f"no engine profile is named {name!r}",
        context=ErrorContext(stage=Stage.CONFIG, field="engine_profile"),
        hint=f"did you mean {nearest[0]}?" if nearest else f"one of {', '.join(names)}",
    )
