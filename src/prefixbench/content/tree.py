"""The tree of master prefixes: which text each group begins with, and with whom it shares it.

A master prefix is the text of the nodes on a group's path, one after the other. Groups that share
nothing are a tree of one level, its nodes the groups themselves.

    content tokens   0             begins[1]          begins[2]
    group a/x/p      | node a      | node a/x         | node a/x/p ...
    group a/x/q      | node a      | node a/x         | node a/x/q ...
    group a/y/p      | node a      | node a/y         | node a/y/p ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prefixbench.content.tape import Positions


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class MasterTree:
    """Nodes are numbered level by level from the root on.

    `names` are labels of what is drawn for the nodes, `parent` is the node above each (-1 for the
    first level), `sibling` numbers those below one node, `paths` has the nodes of each group (a row
    a group, a column a level), and `begins` says at which content token (behind the head) each
    level begins. The last level has no end.
    """

    names: Sequence[str]
    parent: Positions
    sibling: Positions
    paths: Positions
    begins: Positions

    @classmethod
    def of_groups(cls, group_ids: Sequence[str]) -> MasterTree:
        """Groups that share nothing."""
        groups = np.arange(len(group_ids))
        return cls(
            names=group_ids,
            parent=np.full(len(groups), -1),
            sibling=groups,
            paths=groups[:, np.newaxis],
            begins=np.zeros(1, dtype=np.int64),
        )

    @classmethod
    def of_levels(cls, names: Sequence[Sequence[str]], lengths: Sequence[int]) -> MasterTree:
        """A tree whose nodes all have as many children as the others of their level.

        `names` lists the nodes of each level in order, `lengths` the tokens of a node of each
        level above the last.
        """
        counts = [len(level) for level in names]
        firsts = np.cumsum([0, *counts[:-1]]).tolist()
        children = [count // above for count, above in zip(counts, [1, *counts], strict=False)]
        parents = [
            first + np.arange(count) // below
            for first, count, below in zip(firsts, counts[1:], children[1:], strict=False)
        ]
        leaves = np.arange(counts[-1])
        columns = [
            first + leaves // (counts[-1] // count)
            for first, count in zip(firsts, counts, strict=True)
        ]
        return cls(
            names=[name for level in names for name in level],
            parent=np.concatenate([np.full(counts[0], -1), *parents]),
            sibling=np.concatenate(
                [np.arange(count) % below for count, below in zip(counts, children, strict=True)]
            ),
            paths=np.stack(columns, axis=1),
            begins=np.cumsum([0, *lengths]),
        )

    def group_below(self, node: int) -> tuple[int, int]:
        """The first group whose path leads through a node, and the node's level."""
        first, last = self.paths[0], self.paths[-1]
        level = int(np.searchsorted(first, node, side="right")) - 1
        in_level = int(last[level] - first[level]) + 1
        return (node - int(first[level])) * (len(self.paths) // in_level), level

    def content_end(self, level: int) -> int | None:
        """The content token at which a level ends; None for the last."""
        is_last = level == len(self.begins) - 1
        return None if is_last else int(self.begins[level + 1])

    def level_of(self, prefix: Positions) -> Positions:
        """The level in which prefixes of so many content tokens end; one that ends where a level
        does belongs to it. -1 for no prefix."""
        level: Positions = np.searchsorted(self.begins, prefix, side="left") - 1
        return level

    def node_of(self, group: Positions, prefix: Positions) -> Positions:
        """The node that such a prefix leaves; -1 for no prefix. In 32 bits, as many are kept."""
        level = self.level_of(prefix)
        return np.where(level >= 0, self.paths[group, level], -1).astype(np.int32)

    def inside(self, level: int, prefix: Positions) -> Positions:
        """Tokens that such prefixes have of the nodes of a level."""
        end = self.content_end(level)
        reached = prefix if end is None else np.minimum(prefix, end)
        tokens: Positions = np.maximum(reached - self.begins[level], 0)
        return tokens
