"""Prefix groups: how many, who belongs to which, what their master prefix is made of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import product
from math import prod
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from prefixbench.config.base import (
    Count,
    Flag,
    Name,
    NonNegative,
    Positive,
    Section,
    Text,
    Weight,
    broken_rule,
    duplicates,
)
from prefixbench.config.suffix import SourceName
from prefixbench.core.errors import ConfigProblem

#: Leaves of a tree of prefixes at most; each has a name.
_MOST_LEAVES = 1_000_000


class PrefixMode(StrEnum):
    """One shared prefix for all requests, or one for each group."""

    SINGLE_PREFIX = "single_prefix"
    MULTI_PREFIX = "multi_prefix"


class Carrier(StrEnum):
    """The message of a chat that holds the planned prefix."""

    USER = "user"
    SYSTEM = "system"


class GroupConfig(Section):
    """One prefix group and its share of the requests."""

    id: Name = Field(description="The group's name.")
    request_weight: Positive | None = Field(
        default=None,
        description="Share of the requests, relative to the other groups;"
        " made whole by largest remainder.",
    )
    request_count: Count | None = Field(default=None, description="Number of requests.")
    model: Name | None = Field(
        default=None, description="Model or LoRA adapter the group asks for; part of the cache key."
    )
    cache_salt: Text | None = Field(
        default=None, description="Salt the group sends; part of the cache key.", min_length=1
    )


class PopularityMode(StrEnum):
    """How requests spread over groups that are not named one by one."""

    ZIPF = "zipf"


class PopularityConfig(Section):
    """Shares of the requests by rank: group k of `group_count` weighs k ** -exponent."""

    mode: PopularityMode = Field(
        default=PopularityMode.ZIPF, description="zipf: the k-th group weighs k ** -exponent."
    )
    exponent: Weight = Field(
        description="0: all groups are equal; about 1: as words in a language, or pages visited."
    )


class TreeLevelConfig(Section):
    """One level of a tree of prefixes: its nodes follow the text of the node above them."""

    name: Name = Field(description="What the level holds: system, tenant, documents, …")
    count: Count = Field(
        default=1, description="Nodes of this level under each node of the level above."
    )
    length: Count | None = Field(
        default=None,
        description="Tokens of each node; only the last level may be as long as the plan needs.",
    )
    popularity: PopularityConfig | None = Field(
        default=None, description="Unequal shares for the nodes under one node above."
    )


def _has_depths(levels: tuple[TreeLevelConfig, ...]) -> tuple[TreeLevelConfig, ...]:
    endless = [level.name for level in levels[:-1] if level.length is None]
    if endless:
        raise broken_rule(
            f"has levels without a length above the last one: {', '.join(endless)}",
            allowed="length in every level but the last",
        )
    for name in duplicates(level.name for level in levels):
        raise broken_rule(f"has two levels named {name}", allowed="each name once")
    if prod(level.count for level in levels) > _MOST_LEAVES:
        raise broken_rule(
            "has too many leaves, the product of the counts",
            allowed=f"at most {_MOST_LEAVES}",
        )
    return levels


TreeLevels = Annotated[tuple[TreeLevelConfig, ...], AfterValidator(_has_depths)]


class PrefixGroupConfig(Section):
    """The prefix groups of a data set (RFC 3.3.2)."""

    mode: PrefixMode = Field(
        default=PrefixMode.SINGLE_PREFIX,
        description="One group or several; multi_prefix where only groups are given.",
    )
    nested_prefix: Flag = Field(
        default=True,
        description="True: members take the head of one master prefix. False: every request of"
        " a group takes the same length, the largest that fits all.",
    )
    minimum_non_shared_length: NonNegative | None = Field(
        default=None, description="Tokens kept unshared in every request; one block unless given."
    )
    source: SourceName | None = Field(
        default=None,
        description="What master prefixes are made of; as `suffix.source` unless given.",
    )
    path: Text | None = Field(
        default=None,
        description="File of samples for `source` text or gsm8k; as `suffix.path` unless given.",
    )
    sample_ids: tuple[NonNegative, ...] = Field(
        default=(),
        description="Rows of the corpus (from 0) the master prefixes begin with, in order.",
    )
    group_count: Count | None = Field(
        default=None, description="Number of groups of even size, named group_0, group_1, …"
    )
    popularity: PopularityConfig | None = Field(
        default=None,
        description="Unequal shares for the groups of group_count; made whole by largest"
        " remainder. Equal shares unless given.",
    )
    tree: TreeLevels = Field(
        default=(),
        description="Prefixes as a tree, level by level from the root; every leaf is a group."
        " Instead of group_count and groups.",
    )
    groups: tuple[GroupConfig, ...] = Field(default=(), description="The groups by name.")
    carrier: Carrier = Field(
        default=Carrier.USER,
        description="With prompt_format: chat, the message that holds the planned prefix. system:"
        " a system prompt of the group, which ends with the request's divergence block; the"
        " natural text is the user's message.",
    )
    assignment: tuple[Name, ...] = Field(
        default=(), description="The group of each request, in generation order."
    )

    def namespaces(self, group_ids: Iterable[str]) -> list[int]:
        """A number for the model and salt of each group: both are part of the cache key."""
        keys = {group.id: (group.model, group.cache_salt) for group in self.groups}
        numbers: dict[tuple[str | None, str | None], int] = {}
        return [
            numbers.setdefault(keys.get(name, (None, None)), len(numbers)) for name in group_ids
        ]

    @property
    def group_ids(self) -> tuple[str, ...]:
        """Names of the groups, in the order of the configuration."""
        if self.groups:
            return tuple(group.id for group in self.groups)
        if self.tree:
            return self.node_ids[-1]
        if self.assignment:
            return tuple(dict.fromkeys(self.assignment))
        count = self.group_count or 1
        width = len(str(count - 1))
        return tuple(f"group_{index:0{width}d}" for index in range(count))

    @property
    def node_ids(self) -> tuple[tuple[str, ...], ...]:
        """Names of the nodes of each level of the tree; those of the last one are the groups'."""
        own = [[f"{level.name}_{k}" for k in range(level.count)] for level in self.tree]
        return tuple(
            tuple("/".join(path) for path in product(*own[: depth + 1]))
            for depth in range(len(own))
        )

    def dependent_defaults(self) -> dict[str, Any]:
        several = len(self.group_ids) > 1
        return {"mode": PrefixMode.MULTI_PREFIX if several else PrefixMode.SINGLE_PREFIX}

    def disagreements(self) -> Iterator[ConfigProblem]:
        yield from self._mode_disagreements()
        yield from self._tree_disagreements()
        yield from self._naming_disagreements()
        yield from self._share_disagreements()

    def _mode_disagreements(self) -> Iterator[ConfigProblem]:
        count = len(self.group_ids)
        if self.mode is PrefixMode.SINGLE_PREFIX and count > 1:
            yield ConfigProblem(
                path="mode",
                message=f"does not go with {count} groups",
                given=str(self.mode),
                allowed=str(PrefixMode.MULTI_PREFIX),
            )
        named = self.groups or self.assignment or self.group_count or self.tree
        if self.mode is PrefixMode.MULTI_PREFIX and not named:
            yield ConfigProblem(
                path="mode",
                message="needs its groups",
                given=str(self.mode),
                allowed="group_count, groups, tree or assignment beside it",
            )

    def _tree_disagreements(self) -> Iterator[ConfigProblem]:
        if not self.tree:
            return
        for key in ("group_count", "groups", "assignment", "popularity"):
            if getattr(self, key):
                yield ConfigProblem(
                    path="tree",
                    message=f"cannot be used together with {key}: its leaves are the groups",
                    allowed="one of the two",
                )
        if not self.nested_prefix:
            yield ConfigProblem(
                path="tree",
                message="needs nested prefixes: requests leave it at depths of their own",
                allowed="nested_prefix: true",
            )

    def _naming_disagreements(self) -> Iterator[ConfigProblem]:
        if self.group_count is not None and (self.groups or self.assignment):
            yield ConfigProblem(
                path="group_count",
                message="cannot be used together with groups or assignment",
                given=str(self.group_count),
                allowed="one of the two",
            )
        if self.popularity is not None and self.group_count is None:
            yield ConfigProblem(
                path="popularity",
                message="goes with group_count alone: named groups have shares of their own",
                allowed="group_count beside it, or request_weight in each of groups",
            )
        for name in duplicates(group.id for group in self.groups):
            yield ConfigProblem(
                path="groups", message="uses an id twice", given=name, allowed="each id once"
            )

    def _share_disagreements(self) -> Iterator[ConfigProblem]:
        for index, group in enumerate(self.groups):
            if group.request_weight is not None and group.request_count is not None:
                yield ConfigProblem(
                    path=f"groups.{index}",
                    message="has both request_weight and request_count",
                    allowed="one of the two",
                )
        shareless = [
            index
            for index, group in enumerate(self.groups)
            if group.request_weight is None and group.request_count is None
        ]
        if 0 < len(shareless) < len(self.groups):
            for index in shareless:
                yield ConfigProblem(
                    path=f"groups.{index}",
                    message="has no share of the requests while other groups have one",
                    allowed="request_weight or request_count in every group, or in none",
                )
