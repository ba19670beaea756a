"""A pool of cache blocks: who holds them, which content they carry, which goes next.

The rules are those of vLLM v1's block pool (read in 0.9 to 0.33, executed 0.18 to 0.33):

- a block that nobody holds stays findable until it is handed out anew; then its key is lost;
- blocks are handed out from the head of one ordered queue. All blocks that never held anything
  stand first; a freed block with a key goes to the tail; one without a key to the head (0.24 on)
  or to the tail (up to 0.23);
- a request's blocks are freed last to first, so the tail of a chain is lost before its head;
- several blocks may carry the same key; a look-up finds the oldest of them (nano-vLLM: the
  latest; the others are lost to look-ups from then on).

Which block is which never matters, only what it carries. So a block without a key is a mere
count, and a block that carries a key is named by it; a further one with the same key gets a name
of its own.
"""

from __future__ import annotations

import sys
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from itertools import count, islice

from prefixbench.simulator.block_keys import Key

#: A key, or a negative number: a further block of a key, or (in the queue only) one without key.
Block = int
#: A block without a key, where blocks stand in a row.
KEYLESS: Block = 0


class BlockPool:
    """`capacity_blocks` blocks (None: without limit) and what is found in them.

    The null block that vLLM keeps is not among them: usable blocks = `num_gpu_blocks` - 1.
    """

    def __init__(
        self,
        capacity_blocks: int | None,
        *,
        keyless_to_front: bool = True,
        latest_copy_wins: bool = False,
        remembers_lost_keys: bool = False,
    ) -> None:
        self.size = sys.maxsize if capacity_blocks is None else capacity_blocks
        self.evicted_blocks = 0
        self.evicted_keys = 0
        #: Keys that were evicted, for a tier below that takes them; None where there is none.
        self.lost_keys: list[Key] | None = [] if remembers_lost_keys else None
        self._keyless_to_front = keyless_to_front
        self._latest_copy_wins = latest_copy_wins
        # Free blocks: keyless ones that are handed out before all others, then the queue.
        self._blank_count = self.size
        self._queue: OrderedDict[Block, None] = OrderedDict()
        self._own_names = count(-1, -1)
        # All findable blocks, held or free, and the holders of a block beyond its first one.
        self._carriers: set[Block] = set()
        self._sharers: dict[Block, int] = {}
        # Findable blocks of keys of which there was more than one block; the first one is found.
        # An empty list: the key's namesake still exists, but look-ups have lost it.
        self._copies: dict[Key, list[Block]] = {}
        self._key_of_copy: dict[Block, Key] = {}

    # Looking: changes nothing.

    def find(self, keys: Sequence[Key]) -> list[Block]:
        """The blocks that carry the leading keys, up to the first that no block carries."""
        if self._copies:
            return self._find_among_copies(keys)
        carriers = self._carriers
        depth = 0
        for key in keys:
            if key not in carriers:
                break
            depth += 1
        return list(keys[:depth])

    def _find_among_copies(self, keys: Iterable[Key]) -> list[Block]:
        blocks: list[Block] = []
        for key in keys:
            findable = self._copies.get(key, (key,))
            if not findable or findable[0] not in self._carriers:
                break
            blocks.append(findable[0])
        return blocks

    def idle_count(self, blocks: Iterable[Block]) -> int:
        """How many of these blocks nobody holds, so that holding them takes them off the queue."""
        queue = self._queue
        return sum(block in queue for block in blocks)

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, findable or not."""
        return self._blank_count + len(self._queue)

    @property
    def held_blocks(self) -> int:
        return self.size - self.free_blocks

    @property
    def cached_blocks(self) -> int:
        """Blocks that a look-up can find."""
        return len(self._carriers)

    @property
    def cached_keys(self) -> int:
        """Different keys among the findable blocks."""
        return len(self.keys())

    def keys(self) -> set[Key]:
        """Different keys among the findable blocks."""
        return {self._key_of_copy.get(block, block) for block in self._carriers}

    @property
    def blank_blocks(self) -> int | None:
        """Keyless blocks that are handed out before all others; None: without end."""
        return None if self.size == sys.maxsize else self._blank_count

    def queue(self) -> list[Key | None]:
        """The other free blocks, the next to be handed out first: keys a look-up finds, or None."""
        return [
            self._key_of_copy.get(block, block) if block in self._carriers else None
            for block in self._queue
        ]

    # Changing.

    def hold(self, blocks: Iterable[Block]) -> None:
        """Take one reference on each found block."""
        queue, sharers = self._queue, self._sharers
        for block in blocks:
            if block in queue:
                del queue[block]
            else:
                sharers[block] = sharers.get(block, 0) + 1

    def take(self, wanted: int) -> None:
        """Hand out keyless blocks, at most `free_blocks`. Keys that they carried are lost."""
        blank = min(wanted, self._blank_count)
        self._blank_count -= blank
        if wanted == blank:
            return
        pop = self._queue.popitem
        oldest = [pop(last=False)[0] for _ in range(wanted - blank)]
        if self._copies or not self._keyless_to_front:
            for block in oldest:
                self._forget(block)
        else:
            self._carriers.difference_update(oldest)
            self.evicted_blocks += len(oldest)
            self.evicted_keys += len(oldest)
            if self.lost_keys is not None:
                self.lost_keys += oldest

    def _forget(self, block: Block) -> None:
        """A block is handed out anew; an eviction if a look-up could have found it."""
        key = self._key_of_copy.pop(block, block)
        copies = self._copies.get(key)
        if block in self._carriers:
            self._carriers.remove(block)
            self.evicted_blocks += 1
            if copies is not None:
                copies.remove(block)
            if not copies:
                self.evicted_keys += 1
                if self.lost_keys is not None:
                    self.lost_keys.append(key)
        namesake_is_gone = block == key or not self._latest_copy_wins
        if copies is not None and not copies and namesake_is_gone:
            del self._copies[key]

    def publish(self, keys: Sequence[Key]) -> list[Block]:
        """Let keyless blocks carry these keys; returns their names from now on."""
        if self._carriers.isdisjoint(keys) and self._copies.keys().isdisjoint(keys):
            self._carriers.update(keys)
            return list(keys)
        return [self._publish_one(key) for key in keys]

    def _publish_one(self, key: Key) -> Block:
        if key not in self._carriers and key not in self._copies:
            self._carriers.add(key)
            return key
        copy = next(self._own_names)
        copies = self._copies.setdefault(key, [key])
        if self._latest_copy_wins:
            self._carriers.difference_update(copies)
            copies.clear()
        copies.append(copy)
        self._carriers.add(copy)
        self._key_of_copy[copy] = key
        return copy

    def release(self, blocks: Sequence[Block], keyless_blocks: int) -> None:
        """Give up one reference on each block that has a name, and blocks without a key."""
        self._release_keyless(keyless_blocks)
        queue, sharers = self._queue, self._sharers
        for block in reversed(blocks):
            if block not in sharers:
                queue[block] = None
            elif sharers[block] == 1:
                del sharers[block]
            else:
                sharers[block] -= 1

    def release_row(self, row: Sequence[Block | None]) -> None:
        """As `release`, last to first, where blocks without a key stand among the others."""
        for block in reversed(row):
            if block == KEYLESS:
                self._release_keyless(1)
            elif block is not None:
                self.release((block,), 0)

    def _release_keyless(self, count: int) -> None:
        if self._keyless_to_front:
            self._blank_count += count
        else:
            self._queue.update(dict.fromkeys(islice(self._own_names, count)))

    def forget_all(self) -> bool:
        """Drop every key (vLLM's reset_prefix_cache); refused while a block is held."""
        if self.held_blocks:
            return False
        # Without keys the order of free blocks makes no difference.
        self._blank_count = self.size
        for names in (self._queue, self._carriers, self._copies, self._key_of_copy):
            names.clear()
        return True

    def check_integrity(self, holders: Iterable[tuple[Sequence[Block], int]]) -> None:
        """Every block is held or free, once, and what is findable is one of them.

        `holders`: for each unfinished request its named blocks and the number of its others.
        """
        held: Counter[Block] = Counter()
        keyless = 0
        for blocks, keyless_blocks in holders:
            assert len(set(blocks)) == len(blocks), "a request holds a block twice"
            held.update(blocks)
            keyless += keyless_blocks
        assert not held.keys() & self._queue.keys(), "a held block is free"
        assert {block: uses - 1 for block, uses in held.items() if uses > 1} == self._sharers
        assert self._blank_count + len(self._queue) + len(held) + keyless == self.size
        assert self._blank_count >= 0
        named = held.keys() | self._queue.keys()
        assert named >= self._carriers, "a findable block does not exist"
        assert self._latest_copy_wins or held.keys() <= self._carriers
        for key, copies in self._copies.items():
            assert self._carriers.issuperset(copies)
            assert all(self._key_of_copy.get(copy, copy) == key for copy in copies)
