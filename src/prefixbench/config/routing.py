"""Which instance and DP rank serves a request, and how far a cached prefix reaches (RFC 2.7)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Any

from pydantic import Field

from prefixbench.config.base import Count, Flag, Name, NonNegative, Section
from prefixbench.core.errors import ConfigProblem
from prefixbench.core.records import CacheScope


class RoutingPolicy(StrEnum):
    """How requests find their (instance, DP rank).

    `bound`: each group has one, dealt out in the plan; `sticky`: where the group's first request
    went; `round_robin`: in turn, request by request; `hash`: by a hash of the group's name;
    `explicit`: as `routing.bindings` says.
    """

    BOUND = "bound"
    STICKY = "sticky"
    ROUND_ROBIN = "round_robin"
    HASH = "hash"
    EXPLICIT = "explicit"


_KEEPS_GROUP_TOGETHER = frozenset(RoutingPolicy) - {RoutingPolicy.ROUND_ROBIN}
_BINDS_IN_THE_PLAN = frozenset({RoutingPolicy.BOUND, RoutingPolicy.EXPLICIT})


class RoutingConfig(Section):
    """Planned routing."""

    cache_scope: CacheScope = Field(
        default=CacheScope.GLOBAL, description="How far a cached prefix is visible."
    )
    instances: Count = Field(default=1, description="Server processes, each with an address.")
    dp_size: Count = Field(default=1, description="DP ranks in each instance.")
    policy: RoutingPolicy = Field(
        default=RoutingPolicy.BOUND,
        description="How requests find their rank. Unless given, the two flags below decide:"
        " `sticky` with sticky_routing alone, `round_robin` where none is true and one is false.",
    )
    bindings: dict[Name, NonNegative] = Field(
        default_factory=dict,
        description="For policy explicit: group name to rank, where rank = instance * dp_size"
        " + DP rank.",
    )
    sticky_routing: Flag | None = Field(
        default=None, description="A group stays on the rank of its first request."
    )
    bind_prefix_group_to_dp: Flag | None = Field(
        default=None, description="Each group has its rank in the plan."
    )

    @property
    def rank_count(self) -> int:
        return self.instances * self.dp_size

    def dependent_defaults(self) -> dict[str, Any]:
        bound, sticky = self.bind_prefix_group_to_dp, self.sticky_routing
        if bound or (bound is None and sticky is None):
            return {"policy": RoutingPolicy.BOUND}
        return {"policy": RoutingPolicy.STICKY if sticky else RoutingPolicy.ROUND_ROBIN}

    def disagreements(self) -> Iterator[ConfigProblem]:
        yield from self._flag_disagreements()
        yield from self._binding_disagreements()

    def _flag_disagreements(self) -> Iterator[ConfigProblem]:
        for flag, keeping in (
            ("sticky_routing", _KEEPS_GROUP_TOGETHER),
            ("bind_prefix_group_to_dp", _BINDS_IN_THE_PLAN),
        ):
            if getattr(self, flag) and self.policy not in keeping:
                yield ConfigProblem(
                    path=flag,
                    message=f"contradicts policy: {self.policy}",
                    given="true",
                    allowed=f"false, or policy: {' / '.join(sorted(keeping))}",
                )

    def _binding_disagreements(self) -> Iterator[ConfigProblem]:
        if self.policy is RoutingPolicy.EXPLICIT and not self.bindings:
            yield ConfigProblem(
                path="bindings",
                message="is required with policy: explicit",
                allowed="{group: rank} for every group",
            )
        if self.policy is not RoutingPolicy.EXPLICIT and self.bindings:
            yield ConfigProblem(
                path="bindings",
                message="is only used with policy: explicit",
                allowed="policy: explicit beside it",
            )
        for name, rank in self.bindings.items():
            if rank >= self.rank_count:
                yield ConfigProblem(
                    path=f"bindings.{name}",
                    message=f"is no rank of {self.instances} x {self.dp_size}",
                    given=str(rank),
                    allowed=f"0..{self.rank_count - 1}",
                )
