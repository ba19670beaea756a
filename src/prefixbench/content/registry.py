"""What blocks were seen so far: incremental, and bounded however many requests pass through.

Two memories. *First blocks* (the block in which a request leaves the shared prefix) must be unique
and are all kept, as one 64-bit hash a request. *Windows* and single blocks further behind only
serve diagnosis; their hashes live in a table of fixed size in which newer ones displace older ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np
import numpy.typing as npt

from prefixbench.content.tape import Ids
from prefixbench.core.seeds import mixed, stream

Hashes = npt.NDArray[np.uint64]

#: Hashes that a registry keeps for diagnosis.
WINDOW_CAPACITY = 1 << 20

#: Tokens whose hash decides whether a content-defined chunk ends behind them.
_CHUNK_WINDOW = 4

_HASH_KEY = stream("block_registry")


class BlockRegistry:
    """Blocks of the requests of one group, or of all requests that share no prefix.

    `master_prefix` is the whole shared sequence, head included; a request shares with it what its
    tokens have in common with it.
    """

    def __init__(
        self,
        block_size: int,
        master_prefix: Sequence[int] | Ids = (),
        *,
        window_capacity: int = WINDOW_CAPACITY,
    ) -> None:
        self.block_size = block_size
        self.checked = 0
        self._master: Ids = np.asarray(master_prefix, dtype=np.uint32)
        self._first_blocks: set[int] = set()
        self._windows = np.zeros(1 << (max(window_capacity, 2) - 1).bit_length(), dtype=np.uint64)

    def __len__(self) -> int:
        """Requests whose first block is kept."""
        return len(self._first_blocks)

    def shared_len(self, tokens: Ids) -> int:
        """Tokens that a request has in common with the master prefix."""
        size = min(len(tokens), len(self._master))
        differs = np.flatnonzero(tokens[:size] != self._master[:size])
        return int(differs[0]) if len(differs) else size

    def first_block(self, tokens: Ids, shared_len: int) -> int | None:
        """Hash of the first block that is not shared in full, of its place and of what precedes it
        in it; None if the request ends inside it (no cache ever holds it)."""
        start = shared_len // self.block_size * self.block_size
        block = tokens[start : start + self.block_size]
        if len(block) < self.block_size:
            return None
        digest = blake2b(block.tobytes(), digest_size=8, salt=start.to_bytes(8, "little"))
        return int.from_bytes(digest.digest(), "little")

    def is_known(self, first_block: int) -> bool:
        return first_block in self._first_blocks

    def keep(self, first_block: int) -> None:
        self._first_blocks.add(first_block)

    def were_seen(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of these were remembered lately."""
        known: npt.NDArray[np.bool_] = self._windows[self._slots(hashes)] == hashes
        return known

    def remember(self, hashes: Hashes) -> None:
        self._windows[self._slots(hashes)] = hashes

    def _slots(self, hashes: Hashes) -> Hashes:
        return hashes & np.uint64(len(self._windows) - 1)


def block_hashes(tokens: Ids, block_size: int) -> Hashes:
    """One hash for each whole block, of its content alone."""
    count = len(tokens) // block_size
    blocks = tokens[: count * block_size].reshape(count, block_size)
    return _row_hashes(blocks)


def window_hashes(hashes: Hashes, window_blocks: int) -> Hashes:
    """One hash for each run of so many neighbouring blocks."""
    count = len(hashes) - window_blocks + 1
    if count < 1:
        return hashes[:0]
    places = np.arange(count)[:, None] + np.arange(window_blocks)
    return _row_hashes(hashes[places])


def chunk_hashes(tokens: Ids, mean_len: int) -> tuple[Hashes, npt.NDArray[np.int64]]:
    """Hashes and lengths of content-defined chunks of about `mean_len` tokens.

    A chunk ends where the hash of the last few tokens is a multiple of the mean length, so equal
    texts give equal chunks wherever they begin.
    """
    if len(tokens) < _CHUNK_WINDOW:
        return np.empty(0, dtype=np.uint64), np.empty(0, dtype=np.int64)
    rolling = window_hashes(tokens.astype(np.uint64), _CHUNK_WINDOW)
    ends = np.flatnonzero(rolling % np.uint64(mean_len) == 0) + _CHUNK_WINDOW
    starts = np.concatenate([[0], ends[:-1]]) if len(ends) else ends
    terms = mixed(_HASH_KEY, tokens.astype(np.uint64)) * _powers(len(tokens))
    sums = np.concatenate([[np.uint64(0)], np.cumsum(terms, dtype=np.uint64)])
    # Multiplying by the inverse power makes the hash independent of where the chunk begins.
    inverse = _powers(len(tokens) + 1, inverse=True)
    return (sums[ends] - sums[starts]) * inverse[starts], ends - starts


def _row_hashes(rows: npt.NDArray[np.uint32] | Hashes) -> Hashes:
    width = rows.shape[1]
    scrambled = mixed(_HASH_KEY, rows.astype(np.uint64))
    hashes: Hashes = mixed(_HASH_KEY, (scrambled * _powers(width)).sum(axis=1, dtype=np.uint64))
    return hashes


_BASE = 0x9E37_79B9_7F4A_7C15  # odd, hence invertible modulo 2^64


def _powers(count: int, *, inverse: bool = False) -> Hashes:
    base = np.uint64(pow(_BASE, -1, 1 << 64) if inverse else _BASE)
    powers = np.full(count, base, dtype=np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)
