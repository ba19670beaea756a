"""An unlimited cache that knows blocks or chunks by their content alone, wherever they stand.

It counts what the theory of such caches adds to a plan: tokens behind the planned hit that stand in
a piece which an earlier request had. The last token of a request is never found.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from hashlib import blake2b

from prefixbench.config.suffix import CacheMatchSemantics
from prefixbench.content.registry import chunk_hashes
from prefixbench.content.tape import Ids
from prefixbench.core.blocks import longest_hit


class ContentWalk:
    """Pieces are known by their ids; a root separates caches, models, salts."""

    def __init__(self, block: int, semantics: CacheMatchSemantics) -> None:
        self._block = block
        self._is_chunk = semantics is CacheMatchSemantics.CONTENT_DEFINED_CHUNK
        self._known: defaultdict[Hashable, set[bytes]] = defaultdict(set)

    def serve(self, root: Hashable, ids: Ids, planned: int) -> int:
        """Tokens found behind the planned hit; afterwards every piece is cached."""
        known, found = self._known[root], 0
        last = longest_hit(len(ids), 1 if self._is_chunk else self._block)
        pieces = []
        for start, stop in self._bounds(ids):
            piece = blake2b(ids[start:stop].tobytes(), digest_size=16).digest()
            if piece in known and stop <= last:
                found += max(stop - max(start, planned), 0)
            pieces.append(piece)
        known.update(pieces)
        return found

    def _bounds(self, ids: Ids) -> Iterator[tuple[int, int]]:
        if not self._is_chunk:
            ends = range(self._block, len(ids) + 1, self._block)
            yield from ((end - self._block, end) for end in ends)
            return
        start = 0
        for length in chunk_hashes(ids, self._block)[1].tolist():
            yield start, start + length
            start += length
