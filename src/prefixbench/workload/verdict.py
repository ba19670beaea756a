"""PASS, PASS_WITH_WARNING or FAIL: designed ratios judged against their targets (RFC 3.3.17).

Statuses compare exact fractions, both tolerances inclusive.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Protocol

from prefixbench.config.target import exact
from prefixbench.core.records import ValidationStatus
from prefixbench.workload.planner import Plan

_SEVERITY = list(ValidationStatus)


def status_of(
    deviation: Fraction, pass_tolerance: Fraction, warning_tolerance: Fraction
) -> ValidationStatus:
    """PASS, PASS_WITH_WARNING or FAIL for a signed deviation.

    >>> status_of(Fraction(-1, 100), Fraction(1, 100), Fraction(2, 100)).value
    'PASS'
    """
    if abs(deviation) <= pass_tolerance:
        return ValidationStatus.PASS
    if abs(deviation) <= warning_tolerance:
        return ValidationStatus.PASS_WITH_WARNING
    return ValidationStatus.FAIL


def worst(statuses: list[ValidationStatus]) -> ValidationStatus:
    return max(statuses, key=_SEVERITY.index)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationReport:
    """A designed ratio judged against its target; ratios are exact."""

    target_hit_ratio: Fraction
    designed_hit_ratio: Fraction
    pass_tolerance: Fraction
    warning_tolerance: Fraction
    input_tokens: int
    expected_hit_tokens: int

    @property
    def signed_deviation(self) -> Fraction:
        return self.designed_hit_ratio - self.target_hit_ratio

    @property
    def absolute_deviation(self) -> Fraction:
        return abs(self.signed_deviation)

    @property
    def deviation_pp(self) -> Fraction:
        return 100 * self.signed_deviation

    @property
    def validation_status(self) -> ValidationStatus:
        return status_of(self.signed_deviation, self.pass_tolerance, self.warning_tolerance)

    def deviation_keys(self) -> dict[str, float]:
        """The designed ratio beside its target, as every report spells it."""
        return {
            "target_hit_ratio": float(self.target_hit_ratio),
            "designed_hit_ratio": float(self.designed_hit_ratio),
            "signed_deviation": float(self.signed_deviation),
            "absolute_deviation": float(self.absolute_deviation),
        }


class SimulatedHits(Protocol):
    """Any simulation that counted tokens."""

    @property
    def hits(self) -> int: ...

    @property
    def queries(self) -> int: ...


def validate_theoretical_hit_rate(
    simulation: SimulatedHits,
    target_hit_ratio: float,
    pass_tolerance: float,
    warning_tolerance: float,
) -> ValidationReport:
    """Judge what a simulation found (the RFC's interface, 3.5.2); an empty one designs 0."""
    ratio = Fraction(simulation.hits, simulation.queries) if simulation.queries else Fraction(0)
    return ValidationReport(
        target_hit_ratio=exact(target_hit_ratio),
        designed_hit_ratio=ratio,
        pass_tolerance=exact(pass_tolerance),
        warning_tolerance=exact(warning_tolerance),
        input_tokens=simulation.queries,
        expected_hit_tokens=simulation.hits,
    )


def verdict_on_run(plan: Plan) -> ValidationReport:
    """The headline run against the target of all groups together."""
    return _verdict(
        plan,
        target=plan.targets.ratio,
        hit_blocks=plan.hit_blocks,
        input_tokens=plan.workload.input_tokens,
    )


def verdict_on_group(plan: Plan, group: int) -> ValidationReport | None:
    """One group against its own target, or the common one; None if it has no requests."""
    tokens = int(plan.workload.group_input_tokens[group])
    if not tokens:
        return None
    ratios = plan.targets.group_ratios
    return _verdict(
        plan,
        target=plan.targets.ratio if ratios is None else ratios[group],
        hit_blocks=int(plan.group_hit_blocks[group]),
        input_tokens=tokens,
    )


def status_of_plan(plan: Plan, verdict: ValidationReport | None = None) -> ValidationStatus:
    """The worst of what is judged: the ratio, each group that has a target, reachability.

    `verdict` is the one on the ratio where more than the plan is counted in it.
    """
    ratio = verdict or verdict_on_run(plan)
    statuses = [ratio.validation_status, *_statuses_of_groups(plan)]
    if not plan.reachable:
        statuses.append(ValidationStatus.FAIL)
    return worst(statuses)


def _statuses_of_groups(plan: Plan) -> Iterator[ValidationStatus]:
    if plan.targets.by_group is None:
        return
    for group in range(len(plan.workload.group_ids)):
        verdict = verdict_on_group(plan, group)
        if verdict is not None:
            yield verdict.validation_status


def _verdict(
    plan: Plan, *, target: Fraction, hit_blocks: int, input_tokens: int
) -> ValidationReport:
    tolerances = plan.config.validation
    hit_tokens = hit_blocks * plan.geometry.granularity
    return ValidationReport(
        target_hit_ratio=target,
        designed_hit_ratio=Fraction(hit_tokens, input_tokens),
        pass_tolerance=exact(tolerances.pass_tolerance),
        warning_tolerance=exact(tolerances.warning_tolerance),
        input_tokens=input_tokens,
        expected_hit_tokens=hit_tokens,
    )
