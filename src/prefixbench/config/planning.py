"""How the plan is searched for, and under which assumptions it shall hold."""

from __future__ import annotations

from enum import StrEnum

from pydantic import Field

from prefixbench.config.base import Count, Flag, Section


class BaseRatioSearch(StrEnum):
    """Words for the search; the exact algorithm is used under either."""

    EXACT = "exact"
    BINARY_SEARCH = "binary_search"


class PlanProfile(StrEnum):
    """How the cumulative hit ratio grows over the run."""

    PROPORTIONAL = "proportional"
    MONOTONE = "monotone"
    RAMP = "ramp"


class BudgetPolicy(StrEnum):
    """How a global target is split between groups; the split is not unique (RFC 4.11).

    `global_ratio`: one planning ratio for all requests. `proportional`: hit tokens in proportion
    to each group's input tokens, within what the group can reach (RFC 3.3.8).
    """

    GLOBAL_RATIO = "global_ratio"
    PROPORTIONAL = "proportional"


class PlanningConfig(Section):
    """Switches of the planner."""

    reachability_check: Flag = Field(
        default=True,
        description="Give reasons and suggestions when the target is unreachable; it is never"
        " faked either way.",
    )
    base_ratio_search: BaseRatioSearch = Field(
        default=BaseRatioSearch.EXACT,
        description="Accepted for the RFC's sake; the search is exact.",
    )
    block_residual_calibration: Flag = Field(
        default=True, description="False: the RFC's plain floor formula, for comparison."
    )
    max_iterations: Count = Field(
        default=1000, description="Upper bound of search steps; the exact search never meets it."
    )
    profile: PlanProfile = Field(
        default=PlanProfile.PROPORTIONAL, description="How the hit ratio grows over the run."
    )
    concurrency: Count = Field(
        default=1,
        description="Requests in flight the plan shall allow for: each sees only older ones.",
    )
    capacity_blocks: Count | None = Field(
        default=None,
        description="Cache capacity the plan shall allow for, in blocks; else unlimited.",
    )
    budget_policy: BudgetPolicy = Field(
        default=BudgetPolicy.GLOBAL_RATIO,
        description="How a global target is split between groups.",
    )
