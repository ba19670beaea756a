"""Naive models of caches; they share no code with the simulator and know nothing of speed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field


@dataclass
class LruBlocks:
    """An LRU cache of single blocks; the head of a request is more recent than its tail."""

    capacity: int
    blocks: OrderedDict[Hashable, None] = field(default_factory=OrderedDict)

    def serve(self, path: Sequence[Hashable]) -> int:
        """Leading blocks that are found; then the whole path is stored."""
        hits = 0
        for block in path:
            if block not in self.blocks:
                break
            hits += 1
        for block in reversed(path):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return hits


@dataclass(eq=False)
class Slot:
    """One block and what it carries: all tokens up to its end."""

    content: tuple[int, ...] | None = None


@dataclass
class ListPool:
    """A paged engine that serves one request at a time, as one list of free blocks.

    `keyless_first`: freed blocks without content go to the head of the list (vLLM 0.24 on).
    """

    block_size: int
    size: int
    keyless_first: bool = True
    free: list[Slot] = field(default_factory=list)
    published: list[Slot] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.free = [Slot() for _ in range(self.size)]

    def serve(self, prompt: Sequence[int], output: Sequence[int]) -> int:
        """Hit tokens of the prompt; generates the output and frees everything."""
        computed = [*prompt, *output][:-1]
        held = self._hit_blocks(list(prompt))
        hit = len(held) * self.block_size
        for slot in held:
            self.free.remove(slot)
        while len(held) * self.block_size < len(computed):
            slot = self.free.pop(0)
            if slot in self.published:
                self.published.remove(slot)
            slot.content = None
            held.append(slot)
        for index, slot in enumerate(held):
            end = (index + 1) * self.block_size
            if slot.content is None and end <= len(computed):
                slot.content = tuple(computed[:end])
                self.published.append(slot)
        self._give_back(held)
        return hit

    def _hit_blocks(self, prompt: list[int]) -> list[Slot]:
        found: list[Slot] = []
        for end in range(self.block_size, len(prompt), self.block_size):
            wanted = tuple(prompt[:end])
            oldest = next((slot for slot in self.published if slot.content == wanted), None)
            if oldest is None:
                break
            found.append(oldest)
        return found

    def _give_back(self, held: list[Slot]) -> None:
        tail_first = held[::-1]
        if not self.keyless_first:
            self.free += tail_first
            return
        keyless = [slot for slot in tail_first if slot.content is None]
        self.free = keyless + self.free + [slot for slot in tail_first if slot.content is not None]
