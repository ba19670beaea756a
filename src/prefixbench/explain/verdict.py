"""How far a run may be from its design, and whether it was.

Classes and thresholds are the RFC's table (3.3.21) in the contract's reading (section 4); the
thresholds are advice for a scenario, not a law for an engine (RFC, same section).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from typing import Any

from prefixbench.core.records import ValidationStatus
from prefixbench.explain.wording import pick


class ScenarioClass(StrEnum):
    """What kind of run this was, from the easiest to predict to the hardest."""

    FIXED_SINGLE_PREFIX = "fixed_length_single_prefix"
    FIXED_MULTI_PREFIX = "fixed_length_multi_prefix"
    VARIABLE_LENGTH = "variable_length"
    MULTI_INSTANCE = "multi_instance"
    TRAFFIC_OR_PRESSURE = "real_traffic_or_capacity_pressure"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Percentage points above which a runtime deviation warns, and above which it fails."""

    warn: float
    fail: float | None

    def judge(self, deviation: Fraction) -> ValidationStatus:
        """Both limits are inclusive, like those of the construction deviation."""
        distance = abs(deviation) * 100
        if distance <= Fraction(self.warn):
            return ValidationStatus.PASS
        if self.fail is None or distance <= Fraction(self.fail):
            return ValidationStatus.PASS_WITH_WARNING
        return ValidationStatus.FAIL

    @property
    def first(self) -> Fraction:
        """The deviation beyond which a run warns, a fraction."""
        return Fraction(self.warn) / 100

    @property
    def last(self) -> Fraction:
        """The deviation beyond which a run fails, unless its causes are found; a fraction."""
        return self.first if self.fail is None else Fraction(self.fail) / 100

    def to_json(self) -> dict[str, float | None]:
        return {"warn": self.warn, "fail": self.fail}


THRESHOLDS: Mapping[ScenarioClass, Threshold] = {
    ScenarioClass.FIXED_SINGLE_PREFIX: Threshold(5, 5),
    ScenarioClass.FIXED_MULTI_PREFIX: Threshold(2, 5),
    ScenarioClass.VARIABLE_LENGTH: Threshold(3, 5),
    ScenarioClass.MULTI_INSTANCE: Threshold(5, 10),
    ScenarioClass.TRAFFIC_OR_PRESSURE: Threshold(10, None),
}

_SEVERITY = (ValidationStatus.PASS, ValidationStatus.PASS_WITH_WARNING, ValidationStatus.FAIL)


def scenario_class(
    manifest: Mapping[str, Any], *, caches: int, under_pressure: bool
) -> ScenarioClass:
    """The first class, from the hardest down, that the run belongs to.

    `caches` are the instances and ranks that served it; `under_pressure` says that planned hits
    may be evicted before they happen, or that requests were preempted.
    """
    if under_pressure:
        return ScenarioClass.TRAFFIC_OR_PRESSURE
    if caches > 1:
        return ScenarioClass.MULTI_INSTANCE
    lengths = manifest.get("input_length_statistics", {})
    if lengths.get("min") != lengths.get("max"):
        return ScenarioClass.VARIABLE_LENGTH
    if pick(manifest, "prefix", "mode") == "single_prefix" or len(manifest["groups"]) == 1:
        return ScenarioClass.FIXED_SINGLE_PREFIX
    return ScenarioClass.FIXED_MULTI_PREFIX


def overall_status(
    construction: ValidationStatus, runtime: ValidationStatus | None
) -> ValidationStatus:
    """The worse of both. A run whose rate was not measured never passes without a warning."""
    return worst((construction, runtime or ValidationStatus.PASS_WITH_WARNING))


def worst(statuses: Iterable[ValidationStatus]) -> ValidationStatus:
    """The most severe status; PASS without any."""
    return max(statuses, key=_SEVERITY.index, default=ValidationStatus.PASS)
