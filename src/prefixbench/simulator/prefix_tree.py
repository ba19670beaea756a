"""The tree of all paths of a trace, cut into chains.

A block is told by its id and its parent, so content ids and prefix ids are both safe: prefix ids
say their parent anyway. The first request to come along makes a chain; a request that leaves it
starts another chain at that depth. A path is then a few hops, each a chain and the depth to which
it follows it, however many blocks that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

#: A request's blocks, root first: chain, and how many of its blocks from its beginning.
Path = tuple[tuple[int, int], ...]


class _Chain:
    """Blocks in a row: their ids as runs, and the chains that leave it, by depth and first id."""

    __slots__ = ("branches", "label", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.label: list[range] = []
        self.branches: dict[tuple[int, int], _Chain] = {}

    def extend(self, run: range) -> None:
        if self.label and self.label[-1].stop == run.start:
            self.label[-1] = range(self.label[-1].start, run.stop)
        else:
            self.label.append(run)


class PrefixTree:
    """Gives every path its hops; a step costs one id run or one branching, whichever is next.

    >>> tree = PrefixTree()
    >>> tree.insert([range(1, 5)]), tree.insert([range(1, 3), range(7, 9)])
    (((0, 4),), ((0, 2), (1, 2)))
    """

    def __init__(self) -> None:
        self._root = _Chain(0)
        self._chains = [self._root]

    def __len__(self) -> int:
        """Distinct blocks."""
        return sum(map(len, self._runs()))

    def insert(self, runs: Iterable[range]) -> Path:
        """Add a path, given as runs of ids; return its hops."""
        hops: list[tuple[int, int]] = []
        chain, depth = self._root, 0
        # The block of the chain that comes next: a run of its label, and an offset in it.
        place = offset = 0
        ahead = list(reversed(list(runs)))
        while ahead:
            run = ahead.pop()
            if not run:
                continue
            if place == len(chain.label):
                chain.extend(run)
                depth, place, offset = depth + len(run), len(chain.label), 0
            elif place < len(chain.label) and chain.label[place].start + offset == run.start:
                left = len(chain.label[place]) - offset
                taken = min(left, len(run))
                depth += taken
                place, offset = (place + 1, 0) if taken == left else (place, offset + taken)
                ahead.append(run[taken:])
            else:
                if depth:
                    hops.append((chain.number, depth))
                chain = self._branch(chain, (depth, run.start))
                depth = place = offset = 0
                ahead.append(run)
        return (*hops, (chain.number, depth)) if depth else ()

    def _branch(self, chain: _Chain, where: tuple[int, int]) -> _Chain:
        branch = chain.branches.get(where)
        if branch is None:
            branch = chain.branches[where] = _Chain(len(self._chains))
            self._chains.append(branch)
        return branch

    def repeated_ids(self) -> int:
        """How many blocks carry an id that another block has too; none if ids name prefixes."""
        runs = sorted((run.start, run.stop) for run in self._runs())
        distinct, reached = 0, runs[0][0] if runs else 0
        for start, stop in runs:
            distinct += max(stop - max(start, reached), 0)
            reached = max(reached, stop)
        return len(self) - distinct

    def _runs(self) -> Iterator[range]:
        return (run for chain in self._chains for run in chain.label)
