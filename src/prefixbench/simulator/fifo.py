"""First in, first out: a trace's hits where a hit does not renew a block's stay.

True when requests are looked up one after the other and hits are the leading run of cached blocks.
Afterwards the blocks that are missing come in one at a time, from the head on; what is there stays
where it is, so a block can outlive its parent. Blocks are numbered as they come in, and the cache
is simply the last so many numbers. FIFO is no stack algorithm: every capacity is a run of its own.

Blocks that came in together are one stretch. If its first block has left, then storing that one
again pushes out the second just before its turn, and so on: a stretch is found whole or stored
whole again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from prefixbench.simulator.prefix_tree import Path

_NEVER = 0


class _Stretch(NamedTuple):
    """Blocks [begin, end) of a chain that came in one after the other; the first one's number."""

    begin: int
    end: int
    number: int

    def part(self, begin: int, end: int) -> _Stretch:
        number = self.number + begin - self.begin if self.number else _NEVER
        return _Stretch(begin, end, number)

    def continues(self, other: _Stretch) -> bool:
        return self == other.part(other.end, self.end)


class FifoCache:
    """A FIFO cache of blocks; a request costs the stretches that lie on its chains.

    >>> cache = FifoCache(4)
    >>> [cache.serve(path) for path in [((1, 2),), ((2, 2),), ((1, 2),), ((3, 2),), ((1, 2),)]]
    [0, 0, 2, 0, 0]
    """

    def __init__(self, capacity_blocks: int) -> None:
        self._capacity = capacity_blocks
        self._came_in = 0
        self._stored: defaultdict[int, list[_Stretch]] = defaultdict(list)

    def serve(self, path: Path) -> int:
        """Blocks of the path that are found; then the missing ones are stored."""
        hits, before = 0, self._came_in
        for chain, depth in path:
            stored = self._stored[chain]
            deeper = [one.part(max(one.begin, depth), one.end) for one in stored if one.end > depth]
            row: list[_Stretch] = []
            for stretch in _covering(stored, depth):
                if not self._holds(stretch):
                    stretch = self._store(stretch)
                elif self._came_in == before:
                    hits += stretch.end - stretch.begin
                _append(row, stretch)
            self._stored[chain] = row + [one for one in deeper if self._holds(one)]
        return hits

    def _holds(self, stretch: _Stretch) -> bool:
        return stretch.number > max(self._came_in - self._capacity, _NEVER)

    def _store(self, stretch: _Stretch) -> _Stretch:
        first = self._came_in + 1
        self._came_in += stretch.end - stretch.begin
        return stretch._replace(number=first)


def _covering(stored: list[_Stretch], depth: int) -> Iterator[_Stretch]:
    """[0, depth) as stored stretches, which ascend, and what lies between them."""
    begin = 0
    for stretch in stored:
        if stretch.begin >= depth:
            break
        if stretch.begin > begin:
            yield _Stretch(begin, stretch.begin, _NEVER)
        begin = min(stretch.end, depth)
        yield stretch.part(stretch.begin, begin)
    if begin < depth:
        yield _Stretch(begin, depth, _NEVER)


def _append(row: list[_Stretch], stretch: _Stretch) -> None:
    if row and stretch.continues(row[-1]):
        row[-1] = _Stretch(row[-1].begin, stretch.end, row[-1].number)
    else:
        row.append(stretch)


def fifo_hits(paths: Iterable[Path], capacity_blocks: int) -> list[int]:
    """Hit blocks of every request in a FIFO cache of this capacity."""
    cache = FifoCache(capacity_blocks)
    return [cache.serve(path) for path in paths]
