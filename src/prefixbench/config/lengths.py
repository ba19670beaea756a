"""Lengths of requests in tokens: five distributions under one name (RFC 2.3, 3.2.2)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import Field, PlainValidator, SerializeAsAny, ValidationInfo, field_validator

from prefixbench.config.base import (
    Count,
    Counts,
    NonNegative,
    Number,
    Section,
    Text,
    Weight,
    broken,
    broken_rule,
)
from prefixbench.core.errors import ConfigProblem

_MODE = "Which distribution the lengths come from."


class LengthMode(StrEnum):
    """The distributions a length can come from."""

    FIXED = "fixed"
    EXPLICIT = "explicit"
    TRUNCATED_NORMAL = "truncated_normal"
    HISTOGRAM = "histogram"
    EMPIRICAL = "empirical"


class OutOfRange(StrEnum):
    """What becomes of a drawn length that is out of range."""

    RESAMPLE = "resample"
    CLIP = "clip"
    ERROR = "error"


class LengthDistributionConfig(Section):
    """A length distribution; constructing it with a `mode` gives that distribution's class.

    >>> type(LengthDistributionConfig(mode="fixed", value=4096)).__name__
    'FixedLength'
    """

    _by_mode: ClassVar[dict[str, type[LengthDistributionConfig]]] = {}

    mode: LengthMode = Field(description=_MODE)

    if TYPE_CHECKING:  # the arguments are those of the class that `mode` names

        def __init__(self, **values: Any) -> None: ...

    def __new__(cls, **values: Any) -> LengthDistributionConfig:
        """An empty object of the class that `mode` names."""
        return super().__new__(cls.model_for(values))

    def __init_subclass__(cls, *, mode: LengthMode, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._by_mode[mode] = cls

    @classmethod
    def model_for(cls, given: dict[str, Any]) -> type[LengthDistributionConfig]:
        if cls is not LengthDistributionConfig:
            return cls
        return cls._by_mode.get(str(given.get("mode")), cls)

    def model_post_init(self, _context: Any) -> None:
        """Without its mode, what was set could not be read again."""
        self.model_fields_set.add("mode")

    @property
    def longest(self) -> int | None:
        """The largest length that can occur, in tokens; None where a file decides."""
        raise NotImplementedError

    @property
    def stated(self) -> tuple[int, ...]:
        """The lengths the user wrote down one by one."""
        return ()


class FixedLength(LengthDistributionConfig, mode=LengthMode.FIXED):
    """Every request has the same length."""

    mode: Literal[LengthMode.FIXED] = Field(default=LengthMode.FIXED, description=_MODE)
    value: Count = Field(description="Length of every request, in tokens.")

    @property
    def longest(self) -> int:
        return self.value

    @property
    def stated(self) -> tuple[int, ...]:
        return (self.value,)


class ExplicitLength(LengthDistributionConfig, mode=LengthMode.EXPLICIT):
    """The user names the length of each request."""

    mode: Literal[LengthMode.EXPLICIT] = Field(default=LengthMode.EXPLICIT, description=_MODE)
    values: Counts = Field(description="One length a request, in tokens, in generation order.")

    @property
    def longest(self) -> int:
        return max(self.values)

    @property
    def stated(self) -> tuple[int, ...]:
        return self.values


class TruncatedNormalLength(LengthDistributionConfig, mode=LengthMode.TRUNCATED_NORMAL):
    """Normal around a mean; what falls outside is drawn again."""

    mode: Literal[LengthMode.TRUNCATED_NORMAL] = Field(
        default=LengthMode.TRUNCATED_NORMAL, description=_MODE
    )
    min: Count = Field(description="Shortest length, in tokens, included.")
    max: Count = Field(description="Longest length, in tokens, included.")
    mean: Number = Field(description="Centre of the normal distribution, in tokens.")
    std: Number = Field(description="Its standard deviation, in tokens.", gt=0)
    out_of_range: OutOfRange = Field(
        default=OutOfRange.RESAMPLE,
        description="A draw outside [min, max]: draw again, move to the edge, or stop.",
    )

    @field_validator("max")
    @classmethod
    def _max_is_not_below_min(cls, longest: int, info: ValidationInfo) -> int:
        shortest = info.data.get("min")
        if shortest is not None and longest < shortest:
            raise broken_rule(f"is below min ({shortest})", allowed=f"at least {shortest}")
        return longest

    @field_validator("mean")
    @classmethod
    def _mean_lies_within(cls, mean: float, info: ValidationInfo) -> float:
        shortest, longest = info.data.get("min"), info.data.get("max")
        if shortest is None or longest is None:
            return mean
        if not shortest <= mean <= longest:
            raise broken_rule(
                f"lies outside [min, max] = [{shortest}, {longest}]",
                allowed=f"{shortest}..{longest}",
            )
        return mean

    @property
    def longest(self) -> int:
        return self.max


class HistogramBin(Section):
    """Lengths in [lo, hi), all equally likely."""

    range: tuple[NonNegative, Count] = Field(
        description="Lower edge (included) and upper edge (excluded), in tokens."
    )
    weight: Weight = Field(description="Share of the requests, relative to the other bins.")

    @field_validator("range")
    @classmethod
    def _edges_ascend(cls, edges: tuple[int, int]) -> tuple[int, int]:
        if edges[0] >= edges[1]:
            raise broken_rule("holds no length", allowed="[lo, hi] with lo < hi")
        return edges


class HistogramLength(LengthDistributionConfig, mode=LengthMode.HISTOGRAM):
    """Bins with weights, as counted in real traffic."""

    mode: Literal[LengthMode.HISTOGRAM] = Field(default=LengthMode.HISTOGRAM, description=_MODE)
    bins: tuple[HistogramBin, ...] = Field(description="The bins.")

    @field_validator("bins")
    @classmethod
    def _some_bin_has_weight(cls, bins: tuple[HistogramBin, ...]) -> tuple[HistogramBin, ...]:
        if not any(one.weight > 0 for one in bins):
            raise broken_rule("holds no requests", allowed="at least one bin of weight above 0")
        return bins

    @property
    def longest(self) -> int:
        return max(one.range[1] for one in self.bins if one.weight > 0) - 1


class EmpiricalLength(LengthDistributionConfig, mode=LengthMode.EMPIRICAL):
    """Lengths drawn with replacement from samples of real traffic."""

    mode: Literal[LengthMode.EMPIRICAL] = Field(default=LengthMode.EMPIRICAL, description=_MODE)
    path: Text | None = Field(
        default=None, description="File of samples: one length a line, a JSON list, or JSON lines."
    )
    values: Counts | None = Field(default=None, description="The samples themselves, in tokens.")
    out_of_range: OutOfRange = Field(
        default=OutOfRange.RESAMPLE,
        description="A sample shorter than the shortest possible request: leave it out,"
        " lengthen it, or stop.",
    )

    def disagreements(self) -> Iterator[ConfigProblem]:
        if (self.path is None) == (self.values is None):
            yield ConfigProblem(
                path="",
                message="takes its samples from one place",
                allowed="either path or values",
            )

    @property
    def longest(self) -> int | None:
        return max(self.values) if self.values else None


def parse_length(given: Any) -> LengthDistributionConfig:
    """A distribution out of a mapping with a `mode`, or out of a bare number of tokens."""
    if isinstance(given, LengthDistributionConfig):
        return given
    if not isinstance(given, dict):
        return FixedLength.model_validate({"value": given})
    if "mode" not in given:
        modes = " / ".join(LengthMode)
        raise broken([ConfigProblem(path="mode", message="is required", allowed=modes)])
    return LengthDistributionConfig.model_for(given).model_validate(given)


#: A field that takes any distribution, or a bare number for a fixed length.
LengthField = Annotated[LengthDistributionConfig, PlainValidator(parse_length), SerializeAsAny()]
