"""What a configuration asks for, in whole hit blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from prefixbench.config.target import TargetHitRateConfig, TargetScope, exact
from prefixbench.workload.columns import Workload


@dataclass(frozen=True, kw_only=True)
class Targets:
    """The wanted hits, in blocks: of the whole run, and of each group where groups have targets.

    `rounding` is how far whole blocks are from what is asked: of all input tokens, or of those of
    the group where it is largest.
    """

    ratio: Fraction
    total: int
    rounding: Fraction
    by_group: tuple[int, ...] | None = None
    group_ratios: tuple[Fraction, ...] | None = None


def target_blocks(ratio: Fraction, input_tokens: int, granularity: int) -> int:
    """The whole number of hit blocks nearest to a ratio, halves up."""
    wanted = ratio * input_tokens / granularity + Fraction(1, 2)
    return wanted.numerator // wanted.denominator


def resolve_targets(config: TargetHitRateConfig, workload: Workload, granularity: int) -> Targets:
    """Round the target, or every group's, to blocks of `granularity` tokens."""
    if config.scope is TargetScope.GLOBAL:
        assert config.hit_ratio is not None
        ratio = exact(config.hit_ratio)
        total = target_blocks(ratio, workload.input_tokens, granularity)
        rounding = _rounding(ratio, total * granularity, workload.input_tokens)
        return Targets(ratio=ratio, total=total, rounding=rounding)
    ratios = group_ratios(config, workload.group_ids)
    tokens = workload.group_input_tokens.tolist()
    by_group = tuple(
        target_blocks(ratio, count, granularity)
        for ratio, count in zip(ratios, tokens, strict=True)
    )
    wanted = sum((r * count for r, count in zip(ratios, tokens, strict=True)), Fraction(0))
    return Targets(
        ratio=wanted / workload.input_tokens,
        total=sum(by_group),
        rounding=max(
            _rounding(ratio, blocks * granularity, count)
            for ratio, blocks, count in zip(ratios, by_group, tokens, strict=True)
        ),
        by_group=by_group,
        group_ratios=ratios,
    )


def _rounding(ratio: Fraction, wanted_tokens: int, input_tokens: int) -> Fraction:
    """Distance of a target from its whole blocks; 0 for a group without requests."""
    return abs(ratio - Fraction(wanted_tokens, input_tokens)) if input_tokens else Fraction(0)


def group_ratios(config: TargetHitRateConfig, group_ids: tuple[str, ...]) -> tuple[Fraction, ...]:
    """Each group's own target; the common one where a group names none."""
    own: Mapping[str, float] = {group.id: group.hit_ratio for group in config.groups}
    common = config.hit_ratio if config.hit_ratio is not None else 0.0
    return tuple(exact(own.get(name, common)) for name in group_ids)
