"""Blocks of tokens as numbers that say nothing of their content.

A block is known by a keyed hash of everything up to its end. The key is drawn anew each time and
thrown away, and only the order of first appearance comes out: nobody can test a guessed text
against a written trace.
"""

from __future__ import annotations

import secrets
from array import array
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import count

_DIGEST_BYTES = 16


class BlockNumbers:
    """Numbers blocks as they first appear; equal numbers mean equal tokens from the root on.

    >>> numbers = BlockNumbers(2)
    >>> numbers.of([7, 7, 8]), numbers.of([7, 7, 9]), numbers.of([7, 7])
    ([0, 1], [0, 2], [0])
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._key = secrets.token_bytes(_DIGEST_BYTES)
        self._fresh = count()
        self._number_of: dict[bytes, int] = {}

    def of(self, tokens: Sequence[int], namespace: str = "") -> list[int]:
        """One number a block, the last one for what is left; namespaces share nothing."""
        numbers = []
        for digest in self._digests(tokens, namespace):
            if digest not in self._number_of:
                self._number_of[digest] = next(self._fresh)
            numbers.append(self._number_of[digest])
        return numbers

    def _digests(self, tokens: Sequence[int], namespace: str) -> Iterator[bytes]:
        content = array("I", tokens)
        key = blake2b(namespace.encode(), key=self._key, digest_size=_DIGEST_BYTES).digest()
        so_far = blake2b(key=key, digest_size=_DIGEST_BYTES)
        for start in range(0, len(content), self._block_size):
            so_far.update(content[start : start + self._block_size])
            yield so_far.digest()
