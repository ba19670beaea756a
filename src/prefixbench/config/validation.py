"""When a deviation from the target is acceptable (RFC 3.3.17)."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field, ValidationInfo, field_validator

from prefixbench.config.base import Ratio, Section, broken_rule


class OnFailure(StrEnum):
    """What a failed validation does to the exit code."""

    ERROR = "error"
    WARN = "warn"
    ACCEPT_WITH_WARNING = "accept_with_warning"


class ValidationConfig(Section):
    """Tolerances, as fractions, both inclusive."""

    pass_tolerance: Ratio = Field(default=0.01, description="Largest deviation that is a PASS.")
    warning_tolerance: Ratio = Field(
        default=0.02,
        description="Largest deviation that is a PASS_WITH_WARNING; above it, FAIL.",
        validate_default=True,
    )
    on_failure: OnFailure = Field(
        default=OnFailure.ERROR,
        description="error: FAIL ends with exit code 3; warn: exit 0; accept_with_warning: exit 0,"
        " and the reason stands in the report's first screen.",
    )

    @field_validator("warning_tolerance")
    @classmethod
    def _not_below_pass(cls, warning: float, info: ValidationInfo) -> float:
        passing = info.data.get("pass_tolerance")
        if passing is not None and warning < passing:
            raise broken_rule(f"is below pass_tolerance ({passing})", allowed=f"{passing}..1")
        return warning
