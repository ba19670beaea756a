"""The nodes of a tree of prefixes that lie above each group."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

from prefixbench.config.prefix import PrefixGroupConfig

#: Nodes from the root on, each with the token, counted from token 0, at which it ends.
NodePath = tuple[tuple[str, int], ...]


def nodes_above(prefix: PrefixGroupConfig, head_len: int) -> Mapping[str, NodePath]:
    """The nodes that each group shares with others; empty where groups are no leaves of a tree."""
    *above, leaves = prefix.node_ids or ((),)
    lengths = (level.length for level in prefix.tree[:-1] if level.length is not None)
    ends = [head_len + end for end in accumulate(lengths)]
    paths = [()] * len(leaves) if not above else _paths(above, ends)
    siblings = len(leaves) // len(paths) if paths else 1
    return {group: paths[leaf // siblings] for leaf, group in enumerate(leaves)}


def _paths(levels: list[tuple[str, ...]], ends: list[int]) -> list[NodePath]:
    """The path down to each node of the last of these levels."""
    width = len(levels[-1])
    return [
        tuple(
            (names[place * len(names) // width], end)
            for names, end in zip(levels, ends, strict=True)
        )
        for place in range(width)
    ]
