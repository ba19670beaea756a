"""An unlimited cache of whole blocks over the ids that a server sees, one request after the other.

It knows nothing of groups or plans, so it also finds blocks that requests share by accident.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from prefixbench.core.blocks import longest_hit


class BlockWalk:
    """Blocks are known by their parent and their ids; a root separates caches, models, salts."""

    def __init__(self, block: int) -> None:
        self._block = block
        self._numbers: dict[tuple[Hashable, tuple[int, ...]], int] = {}
        self._cached: set[int] = set()

    def store(self, root: Hashable, ids: Sequence[int]) -> None:
        """Cache every full block of a sequence."""
        self._cached.update(self._chain(root, ids))

    def serve(self, root: Hashable, ids: Sequence[int]) -> int:
        """Tokens found cached, never the last one; afterwards every full block is cached."""
        chain = self._chain(root, ids)
        found = 0
        for number in chain[: longest_hit(len(ids), self._block) // self._block]:
            if number not in self._cached:
                break
            found += self._block
        self._cached.update(chain)
        return found

    def _chain(self, root: Hashable, ids: Sequence[int]) -> list[int]:
        numbers = self._numbers
        parent: Hashable = ("root", root)
        chain = []
        for end in range(self._block, len(ids) + 1, self._block):
            key = (parent, tuple(ids[end - self._block : end]))
            number = numbers.setdefault(key, len(numbers))
            chain.append(number)
            parent = number
        return chain
