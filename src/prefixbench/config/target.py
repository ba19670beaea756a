"""The hit ratio a data set shall have (RFC 3.3.5, 3.3.8)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from fractions import Fraction

from pydantic import Field

from prefixbench.config.base import Name, Ratio, Section, duplicates
from prefixbench.core.errors import ConfigProblem


def exact(ratio: float) -> Fraction:
    """A ratio as the decimal the user wrote.

    >>> exact(0.1)
    Fraction(1, 10)
    """
    return Fraction(repr(ratio))


class TargetScope(StrEnum):
    """Whom a target binds."""

    GLOBAL = "global"
    PER_GROUP = "per_group"


class TargetSemantics(StrEnum):
    """What a target counts.

    `order_aware_global`: all hits over all input tokens, in planned order, from a cold cache.
    `static_prefix_ratio`: the share of each request that is shared prefix, warmed beforehand.
    """

    ORDER_AWARE_GLOBAL = "order_aware_global"
    STATIC_PREFIX_RATIO = "static_prefix_ratio"


class GroupTarget(Section):
    """The target of one prefix group."""

    id: Name = Field(description="The group's name.")
    hit_ratio: Ratio = Field(description="Its hit ratio, 0..1.")


class TargetHitRateConfig(Section):
    """What is asked of the plan."""

    scope: TargetScope = Field(
        default=TargetScope.GLOBAL,
        description="One target for all requests, or one for each group.",
    )
    hit_ratio: Ratio | None = Field(default=None, description="The target of scope global, 0..1.")
    semantics: TargetSemantics = Field(
        default=TargetSemantics.ORDER_AWARE_GLOBAL,
        description="What the ratio counts; static_prefix_ratio where only a warmed"
        " `execution.mode` is given.",
    )
    groups: tuple[GroupTarget, ...] = Field(
        default=(), description="The targets of scope per_group, one for each prefix group."
    )

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.scope is TargetScope.GLOBAL:
            yield from self._global_disagreements()
        else:
            yield from self._per_group_disagreements()

    def _global_disagreements(self) -> Iterator[ConfigProblem]:
        if self.hit_ratio is None:
            yield ConfigProblem(
                path="hit_ratio", message="is required with scope: global", allowed="0..1"
            )
        if self.groups:
            yield ConfigProblem(
                path="groups",
                message="cannot be used with scope: global",
                allowed="scope: per_group, or hit_ratio alone",
            )

    def _per_group_disagreements(self) -> Iterator[ConfigProblem]:
        if self.hit_ratio is not None:
            yield ConfigProblem(
                path="hit_ratio",
                message="cannot be used with scope: per_group",
                given=str(self.hit_ratio),
                allowed="groups: [{id, hit_ratio}]",
            )
        if not self.groups:
            yield ConfigProblem(
                path="groups",
                message="is required with scope: per_group",
                allowed="a list of {id, hit_ratio}",
            )
        for name in duplicates(target.id for target in self.groups):
            yield ConfigProblem(
                path="groups", message="names a group twice", given=name, allowed="each group once"
            )
