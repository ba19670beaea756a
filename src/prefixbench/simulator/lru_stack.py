"""Where a trace's blocks stand in the order of last use: LRU hits at every capacity in one pass.

True when requests are looked up one after the other: the whole look-up happens before anything is
stored, hits are the leading run of cached blocks, afterwards the request's blocks are the most
recent ones. LRU is a stack algorithm (Mattson, Gecsei, Slutz, Traiger: Evaluation techniques for
storage hierarchies, IBM Systems Journal 1970): a block is found from the capacity on that equals
its place in the order, and with the head more recent than the tail, places only rise with depth.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from prefixbench.simulator.prefix_tree import Path
from prefixbench.simulator.stack_distance import CapacityCurve
from prefixbench.simulator.tail_sums import TailSums
from prefixbench.simulator.touches import LastTouches, Touch


class TouchOrder(StrEnum):
    """Which block of a request is the most recent one afterwards.

    `head_recent`: the first; the tail goes before the head (vLLM v1 frees a request's blocks from
    its last to its first). `head_oldest`: the last; blocks are used one at a time from the first
    on, each stored at once, as a plain LRU of single blocks does.
    """

    HEAD_RECENT = "head_recent"
    HEAD_OLDEST = "head_oldest"


class Stretch(NamedTuple):
    """Blocks of a request, in a row, that one earlier request touched last.

    `place` of the first one in the order of last use, from 1; the others stand behind it one after
    the other, or, where blocks are used one at a time, find themselves at the same place.
    """

    place: int
    blocks: int
    toucher: int
    in_a_row: bool

    def found(self, capacity_blocks: int) -> int:
        """How many are still there in a cache of this capacity."""
        within = capacity_blocks - self.place + 1
        if within <= 0:
            return 0
        return min(within, self.blocks) if self.in_a_row else self.blocks


def lru_stretches(
    paths: Sequence[Path], *, lag: int = 1, order: TouchOrder = TouchOrder.HEAD_RECENT
) -> Iterator[list[Stretch]]:
    """For each request its stored blocks, root first, with their places.

    With a lag of W a request sees only the requests W or more positions earlier.
    """
    in_a_row = order is TouchOrder.HEAD_RECENT
    if lag != 1 and not in_a_row:
        raise ValueError("blocks that are used one at a time know no lag")
    stack = _Stack(in_a_row)
    for number, path in enumerate(paths):
        if number >= lag:
            stack.store(number - lag, paths[number - lag])
        yield stack.look_up(path)


class _Stack:
    """All stored blocks in the order of last use, weighed by who used them last."""

    def __init__(self, in_a_row: bool) -> None:
        self._in_a_row = in_a_row
        self._touches = LastTouches()
        self._weights = TailSums()

    def look_up(self, path: Path) -> list[Stretch]:
        return [self._stretch(touch) for touch in self._touches.of(path)]

    def _stretch(self, touch: Touch) -> Stretch:
        toucher, blocks = touch
        if self._in_a_row:
            place = self._weights.behind(toucher) + 1
        else:  # the toucher's deeper blocks were used later
            place = self._weights.behind(toucher - 1)
        return Stretch(place, blocks, toucher, self._in_a_row)

    def store(self, number: int, path: Path) -> None:
        for toucher, blocks in self._touches.of(path):
            self._weights.add(toucher, -blocks)
        self._touches.touch(path, number)
        self._weights.append(sum(depth for _chain, depth in path))


def found_blocks(stretches: Iterable[Stretch], capacity_blocks: int | None) -> int:
    """Hit blocks of one request at a capacity; None is without limit."""
    if capacity_blocks is None:
        return sum(stretch.blocks for stretch in stretches)
    return sum(stretch.found(capacity_blocks) for stretch in stretches)


@dataclass(frozen=True, slots=True)
class ReuseDistances:
    """How many accesses found their block at each place of the order of last use.

    The place is the number of different blocks used since, the block itself included: the reuse
    distance. Held as steps: at a place, how many more than one place nearer.
    """

    steps: dict[int, int]

    @classmethod
    def of(cls, stretches: Iterable[Stretch]) -> ReuseDistances:
        steps: defaultdict[int, int] = defaultdict(int)
        for place, blocks, _toucher, in_a_row in stretches:
            steps[place] += 1 if in_a_row else blocks
            steps[place + (blocks if in_a_row else 1)] -= 1 if in_a_row else blocks
        return cls(dict(steps))

    def curve(self, blocks: int) -> CapacityCurve:
        """Hits at every capacity, out of so many block accesses in all."""
        return CapacityCurve.from_steps(blocks, self.steps)
