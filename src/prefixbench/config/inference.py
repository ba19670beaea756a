"""Defaults that follow from another section: semantics from the mode, the mode from semantics.

They are filled in before validation, on what the user gave, so that a section is judged by the
mode it will have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from prefixbench.config.execution import ExecutionMode
from prefixbench.config.target import TargetSemantics


def infer_across_sections(given: Mapping[str, Any]) -> dict[str, Any]:
    """What was given, with the semantics or the mode that the other of the two implies."""
    values = dict(given)
    semantics = _setting(values.get("target"), "semantics")
    mode = _setting(values.get("execution"), "mode")
    if semantics is None and mode in tuple(ExecutionMode) and ExecutionMode(mode).is_warmed:
        _set(values, "target", {"semantics": TargetSemantics.STATIC_PREFIX_RATIO})
    if mode is None and semantics == TargetSemantics.STATIC_PREFIX_RATIO:
        _set(values, "execution", {"mode": ExecutionMode.WARMUP})
    return values


def _setting(section: Any, name: str) -> Any:
    """What the user set, in a mapping or in a section that was built already; else None."""
    if isinstance(section, BaseModel):
        return getattr(section, name) if name in section.model_fields_set else None
    return section.get(name) if isinstance(section, Mapping) else None


def _set(values: dict[str, Any], name: str, setting: dict[str, Any]) -> None:
    section = values.get(name)
    if isinstance(section, BaseModel):
        section = section.model_dump(exclude_unset=True)
    if section is None or isinstance(section, Mapping):
        values[name] = {**(section or {}), **setting}
