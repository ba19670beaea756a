"""Which blocks hit, and which are worth a name, where layers keep their KV in several groups.

Sources: vLLM's cache coordinators, executed in 0.28, 0.30, 0.32 and 0.33. Layers of full attention
need every block of a prefix; layers that attend to a window of w tokens need only the last
ceil((w - 1) / B) blocks before the position where a request goes on; recurrent layers (Mamba) need
the state at that position, which is one block. A prefix hits as far as all groups have what they
need, at a multiple of all block sizes.

One worked case, blocks of 4: full attention and a window of 6, so the window needs 2 blocks. Of a
prefix of 5 blocks the window group still has blocks 1 and 2: 12 tokens hit, not 20.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import reduce
from math import gcd, lcm

from prefixbench.simulator.block_pool import Block
from prefixbench.simulator.rules import KVGroup

#: A row of a group: its block at each place of a request, None where it needs none.
Row = list[Block | None]
#: The block of a group at a place of the request that looks up; None where none is found.
Finder = Callable[[int, int], Block | None]


class GroupLayout:
    """The KV groups of a model, and the block sizes that follow from them, in tokens."""

    def __init__(self, groups: Sequence[KVGroup], block_size: int) -> None:
        self.groups = tuple(groups)
        self.sizes = tuple(group.block_size or block_size for group in groups)
        #: Blocks are named in steps of this.
        self.name_len = reduce(gcd, self.sizes)
        #: Hits of several groups together end at multiples of this.
        self.alignment = lcm(*self.sizes)
        # Groups of the same kind are looked up together, those of full attention first.
        kinds: dict[tuple[KVGroup, int], list[int]] = {}
        for number, (group, size) in enumerate(zip(self.groups, self.sizes, strict=True)):
            kinds.setdefault((replace(group, block_size=None), size), []).append(number)
        self._kinds = sorted(kinds.values(), key=lambda members: not self.is_full(members[0]))
        self.has_states = any(group.recurrent for group in self.groups)

    def is_full(self, group: int) -> bool:
        return self.groups[group].is_full

    def _blocks_before(self, group: int) -> int:
        """Blocks that a group needs before the position where a request goes on."""
        window = self.groups[group].window
        return 1 if window is None else -(-(window - 1) // self.sizes[group])

    def unneeded_blocks(self, group: int, position: int) -> int:
        """Leading blocks that no token from this position on needs."""
        if self.is_full(group):
            return 0
        behind = (self.groups[group].window or 2) - 1
        return max(position - behind, 0) // self.sizes[group]

    # Looking up.

    def match(self, find: Finder, limit: int) -> tuple[list[Row], int, int]:
        """The rows of the longest prefix that all groups have, its length, and the longest of one.

        At most `limit` tokens match. Each kind of group shortens what the ones before it have; this
        goes round until nobody does. With full attention and one other kind one round is enough.
        """
        rows: list[Row] = [[] for _ in self.groups]
        full_len: dict[int, int] = {}
        hit_len, longest = limit, 0
        one_round = len(self._kinds) == 2 and self.is_full(self._kinds[0][0])
        while True:
            before = hit_len
            for members in self._kinds:
                first = members[0]
                if first in full_len:
                    hit_len = min(hit_len, full_len[first])
                    continue
                held = self._held(members, find, hit_len)
                hit_len = held.stop * self.sizes[first]
                longest = max(longest, hit_len)
                if self.is_full(first):
                    full_len[first] = hit_len
                for group in members:
                    rows[group] = [find(group, place) for place in held]
                    rows[group][:0] = [None] * held.start
            if hit_len >= before or one_round or len(self._kinds) == 1:
                break
        for group, size in enumerate(self.sizes):
            del rows[group][hit_len // size :]
            unneeded = self.unneeded_blocks(group, hit_len)
            rows[group][:unneeded] = [None] * min(unneeded, len(rows[group]))
        return rows, hit_len, longest

    def _held(self, members: Sequence[int], find: Finder, limit: int) -> range:
        """Places of the blocks by which these groups have a prefix of at most `limit` tokens."""
        size = self.sizes[members[0]]
        places = limit // size

        def is_found(place: int) -> bool:
            return all(find(group, place) is not None for group in members)

        if not self.is_full(members[0]):
            return self._last_run(is_found, size, places, self._blocks_before(members[0]))
        depth = next((place for place in range(places) if not is_found(place)), places)
        return range(self._aligned(depth, size))

    def _last_run(
        self, is_found: Callable[[int], bool], size: int, places: int, wanted: int
    ) -> range:
        """The last `wanted` neighbours that end aligned; fewer where they reach the start."""
        run = 0
        for place in reversed(range(places)):
            if not is_found(place):
                run = 0
            elif run or (place + 1) * size % self._hit_step(size) == 0:
                run += 1
                if run >= wanted:
                    return range(place, place + run)
        return range(self._aligned(run, size))

    def _hit_step(self, size: int) -> int:
        return self.alignment if len(self.groups) > 1 else size

    def _aligned(self, blocks: int, size: int) -> int:
        step = self._hit_step(size)
        return blocks * size // step * step // size

    # Naming.

    def nameable_len(self, length: int) -> int:
        """How much of the first `length` tokens can ever be a hit."""
        return length if len(self.groups) == 1 else length // self.alignment * self.alignment

    def worth_naming(
        self, group: int, places: range, boundaries: Sequence[int] | None
    ) -> Iterable[int]:
        """The places whose blocks can help a later request to a hit.

        `boundaries` are positions where one is expected to go on; None: anywhere (dense).
        """
        if self.is_full(group) or (self.groups[group].recurrent and boundaries is None):
            return places
        size, wanted = self.sizes[group], self._blocks_before(group)
        per_step = self.alignment // size
        if boundaries is None:
            return [place for place in places if place % per_step >= per_step - wanted]
        ends = [boundary // self.alignment * per_step for boundary in boundaries]
        return [place for place in places if any(end - wanted <= place < end for end in ends)]
