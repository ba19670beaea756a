"""In which order requests are sent (RFC 3.3.9)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Literal

from pydantic import Field

from prefixbench.config.base import Count, Flag, Section
from prefixbench.core.errors import ConfigProblem

if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig


class OrderWord(StrEnum):
    """The nine words of the RFC, and `lag_robust` for the axis across groups."""

    SEQUENTIAL = "sequential"
    SHUFFLE = "shuffle"
    GROUPED = "grouped"
    INTERLEAVE = "interleave"
    WEIGHTED_INTERLEAVE = "weighted_interleave"
    INPUT_LEN_ASC = "input_len_asc"
    INPUT_LEN_DESC = "input_len_desc"
    PREFIX_LEN_ASC = "prefix_len_asc"
    PREFIX_LEN_DESC = "prefix_len_desc"
    LAG_ROBUST = "lag_robust"


_RfcWord = Literal[
    OrderWord.SEQUENTIAL,
    OrderWord.SHUFFLE,
    OrderWord.GROUPED,
    OrderWord.INTERLEAVE,
    OrderWord.WEIGHTED_INTERLEAVE,
    OrderWord.INPUT_LEN_ASC,
    OrderWord.INPUT_LEN_DESC,
    OrderWord.PREFIX_LEN_ASC,
    OrderWord.PREFIX_LEN_DESC,
]


class Leaders(StrEnum):
    """Whether the request with the largest prefix of each group goes before all others."""

    NONE = "none"
    FIRST = "first"
    BARRIER = "barrier"


class RequestOrderConfig(Section):
    """The order of sending; an order given here always wins and is never changed."""

    mode: _RfcWord | None = Field(
        default=None, description="One word for both axes; not together with an axis."
    )
    within_group: _RfcWord | None = Field(
        default=None,
        description="Order inside a group; `input_len_asc` from a cold cache,"
        " `sequential` from a warmed one.",
    )
    across_group: OrderWord | None = Field(
        default=None, description="How groups alternate; `lag_robust` unless given."
    )
    reuse_distance: Count | None = Field(
        default=None,
        description="Requests from one request of a group to the group's next one, where the"
        " groups' sizes allow it; instead of `across_group`.",
    )
    leaders: Leaders | None = Field(
        default=None,
        description="first: the request with the largest prefix of each group goes before the"
        " others; barrier: the others also wait until it has finished. `first` where the cache is"
        " warmed and no order inside a group is given, else `none`.",
    )
    preserve_group_dependency: Flag = Field(
        default=False,
        description="A request is sent only after the first token of its predecessor in the group.",
    )

    def disagreements(self) -> Iterator[ConfigProblem]:
        across = self.mode or self.across_group
        if self.reuse_distance is not None and across is not None:
            yield ConfigProblem(
                path="reuse_distance",
                message="says how groups alternate, and so does an order across groups",
                given=str(self.reuse_distance),
                allowed="within_group beside it, without mode and across_group",
            )
        if self.mode is None:
            return
        for axis in ("within_group", "across_group"):
            word = getattr(self, axis)
            if word is not None:
                yield ConfigProblem(
                    path=axis,
                    message="cannot be used together with mode, which sets both axes",
                    given=str(word),
                    allowed="either mode, or within_group and across_group",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedOrder:
    """The order with every default filled in; a reuse distance stands above `across`."""

    within: OrderWord
    across: OrderWord
    leaders: Leaders
    reuse_distance: int | None = None


def resolve_order(config: PrefixCacheDatasetConfig) -> ResolvedOrder:
    """The order of a data set; its defaults depend on whether the cache is warmed."""
    order, warmed = config.request_order, config.execution.mode.is_warmed
    unordered = order.mode is None and order.within_group is None
    default_within = OrderWord.SEQUENTIAL if warmed else OrderWord.INPUT_LEN_ASC
    default_leaders = Leaders.FIRST if warmed and unordered else Leaders.NONE
    return ResolvedOrder(
        within=order.mode or order.within_group or default_within,
        across=order.mode or order.across_group or OrderWord.LAG_ROBUST,
        leaders=order.leaders or default_leaders,
        reuse_distance=order.reuse_distance,
    )
