"""What is drawn for the nodes of master prefixes: markers, fillers, and where they read.

A node reads the ring clear of the nodes above it, so that no prompt repeats a sample; where the
ring has no room left for that, it follows right behind them. What a path has read is kept as one
arc of the ring, the largest gap between its nodes left out:

    ring   |--------| parent |------------| child |-----|
                    [        arc                 )        the gap behind the child is larger
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixbench.content.draws import ContentLabels, Permutation
from prefixbench.content.master import MasterDraw, group_markers
from prefixbench.content.passages import Passage
from prefixbench.content.suffix import PrefixReach
from prefixbench.content.tape import Positions
from prefixbench.content.tree import MasterTree
from prefixbench.content.words import Words
from prefixbench.core.seeds import below


@dataclass(frozen=True, slots=True)
class _Arc:
    """Tokens of the ring that the nodes of a path may read, from an unrolled place on."""

    begin: int
    tokens: int

    @property
    def end(self) -> int:
        return self.begin + self.tokens


@dataclass(frozen=True, slots=True, eq=False)
class DrawnNodes:
    """The draws of all nodes, and what the prefixes of each group may read of the ring."""

    draws: list[MasterDraw]
    reach: PrefixReach


def draw_nodes(
    tree: MasterTree, lengths: Positions, words: Words, passage: Passage, labels: ContentLabels
) -> DrawnNodes:
    """Draw each node; `lengths` are the tokens of each that prompts hold at most."""
    count = len(words.group_markers)
    permutation = Permutation.draw(count, labels.key("group_markers"))
    draws: list[MasterDraw] = []
    arcs: list[_Arc] = []
    rows = zip(
        tree.names, tree.parent.tolist(), tree.sibling.tolist(), lengths.tolist(), strict=True
    )
    for name, parent, sibling, length in rows:
        key = labels.key("master", group=name)
        above = arcs[parent] if parent >= 0 else None
        sample = _draw_sample(passage, length, above, key)
        arcs.append(_extended(passage, above, sample, length))
        place = permutation(sibling % count) + sibling // count * count
        draws.append(
            MasterDraw(
                markers=group_markers(place, count),
                filler_start=below(len(words.fillers), key, 1),
                sample=sample,
            )
        )
    leaves = tree.paths[:, -1].tolist()
    reach = PrefixReach(
        begins=np.array([arcs[leaf].begin for leaf in leaves], dtype=np.int64),
        tokens=np.array([arcs[leaf].tokens for leaf in leaves], dtype=np.int64),
    )
    return DrawnNodes(draws, reach)


def _draw_sample(passage: Passage, length: int, above: _Arc | None, key: int) -> int:
    """An unrolled sample from which a node of this length reads, clear of what is above it."""
    ring = passage.ring
    if above is None:
        return 0 if passage.starts_at_first else below(ring.sample_count, key, 0)
    first = int(ring.first_sample_from(above.end))
    last = int(ring.first_sample_from(above.begin + ring.token_count - length + 1)) - 1
    if passage.starts_at_first or last < first:
        return first
    return first + below(last - first + 1, key, 0)


def _extended(passage: Passage, above: _Arc | None, sample: int, length: int) -> _Arc:
    """The arc of a path with one more node, read from a sample on."""
    ring = passage.ring
    begin = int(ring.tokens_before(ring.sample_position(sample)))
    if above is None:
        return _Arc(begin, length)
    gap_before = begin - above.end
    gap_behind = above.begin + ring.token_count - (begin + length)
    if gap_before > gap_behind:
        return _Arc(begin, ring.token_count - gap_before)
    return _Arc(above.begin, begin + length - above.begin)
