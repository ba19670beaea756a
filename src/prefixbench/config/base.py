"""What every section of the configuration shares: strict scalars and how rules are broken.

Values are taken as written: no text becomes a number, a bool is not an integer, NaN and the
infinities are refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, Strict, model_validator
from pydantic_core import PydanticCustomError

from prefixbench.core.errors import ConfigProblem

#: Error type of `broken`; `problems.py` unpacks the problems it carries.
BROKEN_RULES = "broken_rules"

_LONGEST_NAME = 200

#: No count and no length is larger, so that columns of integers hold sums of them.
LARGEST_COUNT = 2**31 - 1


def broken(problems: Iterable[ConfigProblem]) -> PydanticCustomError:
    """An error that carries problems; their paths begin where it is raised."""
    return PydanticCustomError(
        BROKEN_RULES, "the settings do not agree", {"problems": tuple(problems)}
    )


def broken_rule(message: str, *, allowed: str, given: str | None = None) -> PydanticCustomError:
    """An error about the very value that is being validated, shown as it is unless `given`."""
    return broken([ConfigProblem(path="", message=message, allowed=allowed, given=given)])


def _within_unit(ratio: float) -> float:
    if not 0 <= ratio <= 1:  # NaN fails this as well
        raise broken_rule("must lie between 0 and 1", allowed="0..1, both included")
    return ratio


def _within_64_bits(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise broken_rule("does not fit into 64 bits", allowed="-2^63 to 2^63 - 1")
    return number


def _nameable(name: str) -> str:
    if not name.isprintable() or not 0 < len(name.strip()) <= _LONGEST_NAME:
        raise broken_rule(
            "cannot be used as a name", allowed=f"1 to {_LONGEST_NAME} printable characters"
        )
    return name


def _not_empty(values: tuple[int, ...]) -> tuple[int, ...]:
    if not values:
        raise broken_rule("is empty", allowed="at least one entry")
    return values


Whole = Annotated[int, Strict(), AfterValidator(_within_64_bits)]
NonNegative = Annotated[int, Strict(), Field(ge=0, le=LARGEST_COUNT)]
Count = Annotated[int, Strict(), Field(gt=0, le=LARGEST_COUNT)]
Counts = Annotated[tuple[Count, ...], AfterValidator(_not_empty)]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
Positive = Annotated[float, Strict(), Field(gt=0, allow_inf_nan=False)]
Weight = Annotated[float, Strict(), Field(ge=0, allow_inf_nan=False)]
Ratio = Annotated[float, Strict(), AfterValidator(_within_unit)]
Flag = Annotated[bool, Strict()]
Text = Annotated[str, Strict()]
Name = Annotated[str, Strict(), AfterValidator(_nameable)]


class Section(BaseModel):
    """One mapping of the configuration: frozen, and without room for unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    @classmethod
    def model_for(cls, _given: dict[str, Any]) -> type[Section]:
        """The class whose keys this mapping may use."""
        return cls

    def disagreements(self) -> Iterator[ConfigProblem]:
        """Settings of this section that contradict each other; paths begin at the section."""
        yield from ()

    def dependent_defaults(self) -> dict[str, Any]:
        """Defaults that follow from other settings of the section, where the user set none."""
        return {}

    @model_validator(mode="after")
    def _settle(self) -> Self:
        for name, value in self.dependent_defaults().items():
            if name not in self.model_fields_set:
                self.__dict__[name] = value  # the only moment a frozen section changes
        problems = tuple(self.disagreements())
        if problems:
            raise broken(problems)
        return self


def duplicates(values: Iterable[str]) -> list[str]:
    """The values that occur more than once, in order of their second occurrence."""
    seen: set[str] = set()
    repeated: dict[str, None] = {}
    for value in values:
        if value in seen:
            repeated[value] = None
        seen.add(value)
    return list(repeated)
