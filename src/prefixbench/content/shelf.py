"""Master prefixes as they are asked for: nodes laid once, and joined to the paths of groups."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np

from prefixbench.content.master import Cut, MasterDraw, MasterPrefix, join_masters, lay_master
from prefixbench.content.passages import Passage
from prefixbench.content.recipes import ContentColumns
from prefixbench.content.tape import Positions
from prefixbench.content.words import Words

#: Bytes of master prefixes that a composer keeps; those beyond are laid anew when needed.
MASTER_CACHE_BYTES = 64 << 20


class MasterShelf:
    """The master prefix of each group, as far as the prompts of a data set hold it."""

    def __init__(
        self,
        draws: Sequence[MasterDraw],
        columns: ContentColumns,
        head_len: int,
        passage: Passage,
        words: Words,
    ) -> None:
        self._draws = draws
        self._columns = columns
        self._head_len = head_len
        self._passage = passage
        self._words = words
        self._tree = columns.masters
        self._nodes = _Shelf(self._lay)
        self._paths = _Shelf(self._join)

    def path(self, group: int) -> MasterPrefix:
        """The nodes of a group's path in one."""
        if len(self._tree.begins) == 1:
            return self._nodes.take(int(self._tree.paths[group, 0]))
        return self._paths.take(group)

    def _join(self, group: int) -> MasterPrefix:
        nodes = [self._nodes.take(node) for node in self._tree.paths[group].tolist()]
        return join_masters(nodes, lambda cut: rows_of_cuts(self._passage, [cut])[0])

    def _lay(self, node: int) -> MasterPrefix:
        is_root = self._tree.parent[node] < 0
        return lay_master(
            self._draws[node],
            self._cuts_by_node[node].tolist(),
            self._passage if is_root else self._passage.continued,
            self._words,
        )

    @cached_property
    def _cuts_by_node(self) -> list[Positions]:
        """The lengths at which each node is cut, in tokens of its own; 0 is not among them."""
        tree, rows = self._tree, self._columns.first_turns
        group = self._columns.group[rows]
        prefix = self._columns.planned_prefix_len[rows] - self._head_len
        cuts: list[Positions] = []
        for level in range(len(tree.begins)):
            inside = tree.inside(level, prefix)
            first, last = int(tree.paths[0, level]), int(tree.paths[-1, level])
            cuts += _distinct(tree.paths[group, level] - first, inside, last - first + 1)
        return cuts


def _distinct(node: Positions, cut: Positions, count: int) -> list[Positions]:
    """The distinct cuts above 0 of each of so many nodes."""
    span = int(cut.max(initial=0)) + 1
    pairs = np.unique((node * span + cut)[cut > 0])
    bounds = np.searchsorted(pairs, np.arange(1, count) * span)
    return [own % span for own in np.split(pairs, bounds)]


def rows_of_cuts(passage: Passage, cuts: Sequence[Cut]) -> list[bytes]:
    """Rows of the corpus that a node has read up to each cut, as JSON numbers with commas."""
    return passage.rows_in(
        np.array([cut.opening_stop for cut in cuts]),
        np.array([cut.reading.ring_start for cut in cuts]),
        np.array([cut.ring_stop for cut in cuts]),
    )


class _Shelf:
    """What was laid, by number; the least recently used leave a full shelf."""

    def __init__(self, lay: Callable[[int], MasterPrefix]) -> None:
        self._lay = lay
        self._laid: OrderedDict[int, MasterPrefix] = OrderedDict()
        self._bytes = 0

    def take(self, number: int) -> MasterPrefix:
        master = self._laid.get(number)
        if master is None:
            return self._put(number, self._lay(number))
        self._laid.move_to_end(number)
        return master

    def _put(self, number: int, master: MasterPrefix) -> MasterPrefix:
        self._laid[number] = master
        self._bytes += master.size_bytes
        while self._bytes > MASTER_CACHE_BYTES and len(self._laid) > 1:
            _, oldest = self._laid.popitem(last=False)
            self._bytes -= oldest.size_bytes
        return master
