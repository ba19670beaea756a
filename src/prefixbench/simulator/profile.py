"""The table of engine profiles: one row a version range, each value with its source."""

from __future__ import annotations

import re
from dataclasses import replace
from difflib import get_close_matches

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.other_profiles import IDEAL, OTHER_ROWS
from prefixbench.simulator.rules import (
    DEVICE_BLOCK,
    EngineProfile,
    KVGroup,
    Lookahead,
    Role,
    StateNaming,
    TierRules,
    TierWrite,
    next_row,
)
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

    Beside the rows of the table: `vllm-0.N` for every N from 9 to 33, `NAME:prefill` and
    `NAME:decode`, and engines with a feature, `NAME+FEATURE`:

    - `lmcache`: that tier below the cache (`lmcache` alone is one); `hostN`: host memory of N
      blocks, written through; `spillN`: the same, written with what the cache above loses. Several
      stand in order, the nearest first;
    - `eagle`, `eagleN`: speculative decoding with 1 or N draft tokens (EAGLE, MTP);
    - `windowW`, `NxwindowW`: a model with 1 or N groups of layers that attend to the last W tokens,
      beside one group of full attention; `mamba`, `Nxmamba`: with recurrent layers.

    >>> get_profile("vllm-0.26").counting.value
    'at every look-up'
    >>> get_profile("vllm-0.33:decode").role.value
    "decode: the prompt's KV is handed over"
    >>> str(get_profile("vllm-0.26+lmcache").tiers[0])
    'external: units of 256 tokens, written when it was computed'
    >>> str(get_profile("vllm-0.33+spill500").tiers[0])
    "host: 500 blocks of the device's size, written when the cache above loses it"
    >>> get_profile("vllm-0.33+eagle").draft_tokens
    1
    >>> [str(group) for group in get_profile("vllm-0.33+2xwindow128").groups]
    ['full', 'window 128', 'window 128']
    """
    base_name, _, role = name.partition(":")
    engine_name, *features = base_name.split("+")
    row = _vllm_row(engine_name) or next((row for row in _ROWS if row.name == engine_name), None)
    for feature in features:
        row = row and _with_feature(row, feature)
    if row is None or role not in _ROLES:
        raise _unknown(name)
    return replace(row, name=name, role=_ROLES[role])


def _with_feature(row: EngineProfile, feature: str) -> EngineProfile | None:
    """The row of an engine that has the feature, too; None for a word that names none."""
    if feature == "lmcache":
        return next_row(row, LMCACHE_NOTES, tiers=(*row.tiers, LMCACHE))
    if match := re.fullmatch(r"(host|spill)([1-9]\d*)", feature):
        write = TierWrite.THROUGH if match[1] == "host" else TierWrite.ON_EVICTION
        host = TierRules(
            name="host", unit_len=DEVICE_BLOCK, write=write, capacity_units=int(match[2])
        )
        return replace(row, tiers=(*row.tiers, host))
    if match := re.fullmatch(r"eagle([1-9]\d*)?", feature):
        _refuse_unless(row.lookahead is not Lookahead.NONE, row, feature)
        return replace(row, draft_tokens=int(match[1] or 1))
    if match := re.fullmatch(r"(?:([1-9]\d*)x)?(?:window([1-9]\d*)|mamba)", feature):
        group = KVGroup(window=int(match[2])) if match[2] else KVGroup(recurrent=True)
        knows_states = row.state_naming is not StateNaming.NOT_SIMULATED
        _refuse_unless(row.engine == "vLLM" and (knows_states or not group.recurrent), row, feature)
        groups = (*(row.groups or (KVGroup(),)), *(group,) * int(match[1] or 1))
        return replace(row, groups=groups)
    return None


def _refuse_unless(has_rule: bool, row: EngineProfile, feature: str) -> None:
    if not has_rule:
        raise ConfigError(
            f"profile {row.name} has no rule for {feature}",
            context=ErrorContext(stage=Stage.CONFIG, field="engine_profile"),
            hint="vLLM's profiles have one (mamba: 0.32 and 0.33), and for eagle SGLang's",
        )


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
