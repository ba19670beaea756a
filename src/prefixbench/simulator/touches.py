"""Who touched each block last: the one question all cache policies of a trace come down to.

A request touches a path from the root, so along any path the time of the last touch only falls
with depth. Each chain of the tree is therefore a stack of runs that were last touched together; a
request takes the runs it covers off the stack, cuts one, and puts its own on top. Since it covers
everything up to the root, what is left of an earlier request is always the far end of its path.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from prefixbench.simulator.prefix_tree import Path

#: So many blocks of a path were last touched by the request of this number.
Touch = tuple[int, int]


class LastTouches:
    """The last toucher of every block, by request number.

    >>> touches = LastTouches()
    >>> touches.touch(((1, 4),), 0)
    >>> touches.touch(((1, 2),), 1)
    >>> touches.of(((1, 3), (2, 5)))
    [(1, 2), (0, 1)]
    """

    def __init__(self) -> None:
        # Depth at which a run ends, and who touched it; the run nearest to the root is the last.
        self._runs: defaultdict[int, list[tuple[int, int]]] = defaultdict(list)

    def of(self, path: Path) -> list[Touch]:
        """The path's touched blocks, root first, by their last toucher; the rest is untouched."""
        touches: list[Touch] = []
        for chain, depth in path:
            begin = 0
            for end, toucher in reversed(self._runs[chain]):
                reached = min(end, depth)
                if touches and touches[-1][0] == toucher:
                    touches[-1] = (toucher, touches[-1][1] + reached - begin)
                else:
                    touches.append((toucher, reached - begin))
                begin = reached
                if begin == depth:
                    break
            if begin < depth:
                break
        return touches

    def touch(self, path: Path, number: int) -> None:
        """Let a request touch its whole path."""
        for chain, depth in path:
            runs = self._runs[chain]
            while runs and runs[-1][0] <= depth:
                runs.pop()
            runs.append((depth, number))


def next_touches(paths: Sequence[Path]) -> list[list[Touch]]:
    """For each request, root first, which later request touches its blocks next.

    Blocks that nobody touches again are left out. Backwards in time this is who touched them last.
    """
    later = LastTouches()
    found = []
    for number in reversed(range(len(paths))):
        found.append(later.of(paths[number]))
        later.touch(paths[number], number)
    return found[::-1]
