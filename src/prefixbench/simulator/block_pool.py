"""A pool of cache blocks: who holds them, which content they carry, who goes next.

The rules are those of vLLM v1's block pool (read in 0.9 to 0.33, executed 0.18 to 0.33):

- a block that nobody holds stays findable until it is handed out anew; then its key is lost;
- blocks are handed out from the head of one ordered queue. All blocks that never held anything
  stand first; a freed block with a key goes to the tail; one without a key to the head (0.24 on)
  or to the tail (up to 0.23);
- a request's blocks are freed last to first, so the tail of a chain is lost before its head;
- several blocks may carry the same key; a look-up finds the oldest of them.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence

from prefixbench.simulator.block_keys import Key

Block = int


class BlockPool:
    """`capacity_blocks` blocks (None: without limit) and an index from key to block.

    The null block that vLLM keeps is not among them: usable blocks = `num_gpu_blocks` - 1.
    """

    def __init__(self, capacity_blocks: int | None, *, keyless_to_front: bool = True) -> None:
        self.capacity_blocks = capacity_blocks
        self.evicted_blocks = 0
        self.evicted_keys = 0
        self._keyless_to_front = keyless_to_front
        self._unused = 0 if capacity_blocks is None else capacity_blocks
        self._size = 0
        # The queue of free blocks: first the stack of keyless ones, then the ordered rest.
        self._stack: list[Block] = []
        self._queue: OrderedDict[Block, None] = OrderedDict()
        # Holders of a block beyond the first one; most blocks have one holder or none.
        self._sharers: dict[Block, int] = {}
        self._key_of: dict[Block, Key] = {}
        self._oldest: dict[Key, Block] = {}
        self._copies: dict[Key, list[Block]] = {}

    # Looking: changes nothing.

    def find(self, keys: Iterable[Key]) -> list[Block]:
        """The blocks that carry the leading keys, up to the first that no block carries."""
        found: list[Block] = []
        oldest = self._oldest
        for key in keys:
            block = oldest.get(key)
            if block is None:
                break
            found.append(block)
        return found

    def idle_count(self, blocks: Iterable[Block]) -> int:
        """How many of these blocks nobody holds, so that holding them takes them off the queue."""
        queue = self._queue
        return sum(block in queue for block in blocks)

    @property
    def free_blocks(self) -> int:
        """Blocks that nobody holds, findable or not; of a pool without limit, those used before."""
        return self._unused + len(self._stack) + len(self._queue)

    def has_room(self, count: int) -> bool:
        return self.capacity_blocks is None or count <= self.free_blocks

    @property
    def held_blocks(self) -> int:
        return self._size - len(self._stack) - len(self._queue)

    @property
    def cached_blocks(self) -> int:
        """Blocks that carry a key."""
        return len(self._key_of)

    @property
    def cached_keys(self) -> int:
        """Different keys that a look-up finds."""
        return len(self._oldest)

    def keys(self) -> Iterable[Key]:
        return self._oldest.keys()

    # Changing.

    def hold(self, blocks: Iterable[Block]) -> None:
        """Take one reference on each found block."""
        queue, sharers = self._queue, self._sharers
        for block in blocks:
            if block in queue:
                del queue[block]
            else:
                sharers[block] = sharers.get(block, 0) + 1

    def take(self, count: int) -> list[Block]:
        """Hand out blocks; the caller has asked `has_room`. Keys that they carried are lost."""
        stack = self._stack
        if count <= len(stack):
            split = len(stack) - count
            blocks = stack[split:]
            del stack[split:]
            return blocks
        blocks = stack[:]
        stack.clear()
        return blocks + self._take_beyond_stack(count - len(blocks))

    def _take_beyond_stack(self, count: int) -> list[Block]:
        new = count if self.capacity_blocks is None else min(count, self._unused)
        if self.capacity_blocks is not None:
            self._unused -= new
        blocks = list(range(self._size, self._size + new))
        self._size += new
        pop = self._queue.popitem
        oldest = [pop(last=False)[0] for _ in range(count - new)]
        self._forget_keys(oldest)
        return blocks + oldest

    def _forget_keys(self, blocks: Iterable[Block]) -> None:
        for block in blocks:
            key = self._key_of.pop(block, None)
            if key is None:
                continue
            self.evicted_blocks += 1
            if key in self._copies:
                self._forget_copy(key, block)
            else:
                del self._oldest[key]
                self.evicted_keys += 1

    def _forget_copy(self, key: Key, block: Block) -> None:
        copies = self._copies[key]
        if self._oldest[key] == block:
            self._oldest[key] = copies.pop(0)
        else:
            copies.remove(block)
        if not copies:
            del self._copies[key]

    def publish(self, blocks: Sequence[Block], keys: Sequence[Key]) -> None:
        """Make blocks findable under their keys; a key in use gets one more copy."""
        self._key_of.update(zip(blocks, keys, strict=True))
        if self._oldest.keys().isdisjoint(keys):
            self._oldest.update(zip(keys, blocks, strict=True))
            return
        for key, block in zip(keys, blocks, strict=True):
            if self._oldest.setdefault(key, block) != block:
                self._copies.setdefault(key, []).append(block)

    def release(self, blocks: Sequence[Block], published: int) -> None:
        """Give up one reference on each block; the first `published` of them carry keys."""
        keyless = blocks[published:]
        if self._keyless_to_front:
            self._stack += keyless
        else:
            self._queue.update(dict.fromkeys(reversed(keyless)))
        queue, sharers = self._queue, self._sharers
        for block in reversed(blocks[:published]):
            if block not in sharers:
                queue[block] = None
            elif sharers[block] == 1:
                del sharers[block]
            else:
                sharers[block] -= 1

    def forget_all(self) -> bool:
        """Drop every key (vLLM's reset_prefix_cache); refused while a block is held."""
        if self.held_blocks:
            return False
        self._key_of.clear()
        self._oldest.clear()
        self._copies.clear()
        return True

    def check_integrity(self, holders: Iterable[Sequence[Block]]) -> None:
        """Every block is held or free, once; every key points at blocks that carry it."""
        held = Counter(block for blocks in holders for block in blocks)
        free = Counter(self._stack) + Counter(self._queue.keys())
        assert set(free.values()) <= {1}, "a block is free twice"
        assert not held.keys() & free.keys(), "a held block is free"
        assert len(held) + len(free) == self._size, "a block is neither held nor free"
        assert {block: count - 1 for block, count in held.items() if count > 1} == self._sharers
        if self.capacity_blocks is not None:
            assert self._size + self._unused == self.capacity_blocks
        carried = Counter(self._key_of.values())
        assert carried.keys() == self._oldest.keys()
        for key, block in self._oldest.items():
            copies = [block, *self._copies.get(key, ())]
            assert len(set(copies)) == len(copies) == carried[key]
            assert all(self._key_of[copy] == key for copy in copies)
        assert not self._key_of.keys() & set(self._stack), "a keyless block carries a key"
