"""A paged engine with caches below it, as plain lists; it serves one request at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from cache_oracles import ListPool, Slot


@dataclass
class ListTier:
    """Stored prefixes, the least recently used first, each with the time of its last use."""

    unit: int
    capacity: int
    on_eviction: bool = False
    stores_output: bool = True
    ttl: int | None = None
    held: list[tuple[tuple[int, ...], int]] = field(default_factory=list)

    def prefixes(self) -> list[tuple[int, ...]]:
        return [prefix for prefix, _ in self.held]

    def drop_old(self, now: int) -> None:
        if self.ttl is not None:
            self.held = [row for row in self.held if row[1] + self.ttl > now]

    def put(self, prefix: tuple[int, ...], now: int) -> list[tuple[int, ...]]:
        """Store or refresh one prefix; returns what falls out."""
        self.held = [row for row in self.held if row[0] != prefix] + [(prefix, now)]
        out = self.prefixes()[: max(len(self.held) - self.capacity, 0)]
        self.held = self.held[len(out) :]
        return out

    def touch(self, tokens: list[int], now: int) -> None:
        for end in reversed(range(self.unit, len(tokens) + 1, self.unit)):
            if tuple(tokens[:end]) in self.prefixes():
                self.put(tuple(tokens[:end]), now)


@dataclass
class TieredPool(ListPool):
    """`ListPool` with tiers below."""

    tiers: list[ListTier] = field(default_factory=list)

    def serve_tiered(
        self, prompt: Sequence[int], output: Sequence[int], now: int
    ) -> tuple[int, list[int]]:
        """Tokens found on the device, and in each tier."""
        tokens = list(prompt)
        computed = [*prompt, *output][:-1]
        for tier in self.tiers:
            tier.drop_old(now)
        held = self._hit_blocks(tokens)
        found = self._found_below(tokens, len(held) * self.block_size)
        for tier in self.tiers:
            tier.touch(tokens, now)
        hit = len(held) * self.block_size
        self._take(held, computed, len(tokens), now)
        for index, tier in enumerate(self.tiers):
            if not tier.on_eviction:
                stored = computed if tier.stores_output else computed[: len(tokens)]
                self._store(index, stored, now)
        self._give_back(held)
        return hit, found

    def _found_below(self, tokens: list[int], start: int) -> list[int]:
        found = [0] * len(self.tiers)
        position = start
        while position < len(tokens) - 1:
            ends = [(position // tier.unit + 1) * tier.unit for tier in self.tiers]
            holders = [
                index
                for index, (tier, end) in enumerate(zip(self.tiers, ends, strict=True))
                if end <= len(tokens) and tuple(tokens[:end]) in tier.prefixes()
            ]
            if not holders:
                break
            end = min(ends[holders[0]], len(tokens) - 1)
            found[holders[0]] += end - position
            position = end
        return found

    def _take(self, held: list[Slot], computed: list[int], prompt_len: int, now: int) -> None:
        """Take blocks for the prompt, then token by token; a full block is published at once."""
        for slot in held:
            self.free.remove(slot)
        for length in range(min(prompt_len, len(computed)), len(computed) + 1):
            while len(held) * self.block_size < length:
                held.append(self._new_slot(now))
            for index, slot in enumerate(held):
                end = (index + 1) * self.block_size
                if slot.content is None and end <= length:
                    slot.content = tuple(computed[:end])
                    self.published.append(slot)

    def _new_slot(self, now: int) -> Slot:
        slot = self.free.pop(0)
        if slot in self.published:
            self.published.remove(slot)
            if not any(other.content == slot.content for other in self.published):
                assert slot.content is not None
                self._hand_down(0, [slot.content], now)
        slot.content = None
        return slot

    def _store(self, index: int, tokens: list[int], now: int) -> None:
        tier = self.tiers[index]
        whole = len(tokens) // tier.unit
        for units in reversed(range(1, min(whole, tier.capacity) + 1)):
            self._hand_down(index + 1, tier.put(tuple(tokens[: units * tier.unit]), now), now)

    def _hand_down(self, index: int, lost: list[tuple[int, ...]], now: int) -> None:
        if index < len(self.tiers) and self.tiers[index].on_eviction:
            for prefix in lost:
                self._hand_down(index + 1, self.tiers[index].put(prefix, now), now)
