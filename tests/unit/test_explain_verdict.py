"""Scenario classes, their thresholds, and how two statuses become one."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from prefixbench.core.records import ValidationStatus
from prefixbench.explain.verdict import (
    THRESHOLDS,
    ScenarioClass,
    overall_status,
    scenario_class,
)

PASS, WARN, FAIL = ValidationStatus


def manifest(shortest: int, longest: int, groups: int) -> dict[str, Any]:
    return {
        "input_length_statistics": {"min": shortest, "max": longest},
        "prefix": {"mode": "single_prefix" if groups == 1 else "multi_prefix"},
        "groups": [{"id": str(number)} for number in range(groups)],
    }


@pytest.mark.parametrize(
    ("document", "caches", "under_pressure", "expected"),
    [
        (manifest(9, 9, 1), 1, False, ScenarioClass.FIXED_SINGLE_PREFIX),
        (manifest(9, 9, 3), 1, False, ScenarioClass.FIXED_MULTI_PREFIX),
        (manifest(8, 9, 1), 1, False, ScenarioClass.VARIABLE_LENGTH),
        (manifest(9, 9, 1), 2, False, ScenarioClass.MULTI_INSTANCE),
        (manifest(8, 9, 3), 2, True, ScenarioClass.TRAFFIC_OR_PRESSURE),
    ],
)
def test_a_run_belongs_to_the_hardest_class_that_fits(
    document: dict[str, Any], caches: int, under_pressure: bool, expected: ScenarioClass
) -> None:
    assert scenario_class(document, caches=caches, under_pressure=under_pressure) is expected


#: Contract, section 4: warn and fail limits in points.
LIMITS = {
    ScenarioClass.FIXED_SINGLE_PREFIX: (5, 5),
    ScenarioClass.FIXED_MULTI_PREFIX: (2, 5),
    ScenarioClass.VARIABLE_LENGTH: (3, 5),
    ScenarioClass.MULTI_INSTANCE: (5, 10),
    ScenarioClass.TRAFFIC_OR_PRESSURE: (10, None),
}


@pytest.mark.parametrize("scenario", ScenarioClass)
@pytest.mark.parametrize("sign", [1, -1])
def test_limits_are_inclusive_in_both_directions(scenario: ScenarioClass, sign: int) -> None:
    warn, fail = LIMITS[scenario]
    judge = THRESHOLDS[scenario].judge
    hair = Fraction(1, 10**9)
    assert judge(sign * Fraction(warn, 100)) is PASS
    above_warn = judge(sign * (Fraction(warn, 100) + hair))
    if fail is None:
        assert above_warn is WARN
        assert judge(sign * Fraction(9, 10)) is WARN
    else:
        assert above_warn is (FAIL if warn == fail else WARN)
        assert judge(sign * Fraction(fail, 100)) is (PASS if warn == fail else WARN)
        assert judge(sign * (Fraction(fail, 100) + hair)) is FAIL


@pytest.mark.parametrize(
    ("construction", "runtime", "expected"),
    [
        (PASS, PASS, PASS),
        (PASS, WARN, WARN),
        (WARN, PASS, WARN),
        (FAIL, PASS, FAIL),
        (PASS, FAIL, FAIL),
        (PASS, None, WARN),
        (FAIL, None, FAIL),
    ],
)
def test_the_worse_status_counts_and_an_unmeasured_run_never_passes(
    construction: ValidationStatus, runtime: ValidationStatus | None, expected: ValidationStatus
) -> None:
    assert overall_status(construction, runtime) is expected
