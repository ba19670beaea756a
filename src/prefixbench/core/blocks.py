"""Arithmetic of cache blocks: full blocks, alignment, and the last-token rule."""

from __future__ import annotations


def align_down(tokens: int, block_size: int) -> int:
    """The largest multiple of the block size that is not above `tokens`.

    >>> align_down(2047, 128)
    1920
    """
    return tokens // block_size * block_size


def longest_hit(input_len: int, hit_granularity: int) -> int:
    """The most tokens a request of this length can find cached.

    At least one token is always computed, so an identical prompt of a whole number of blocks
    recomputes a block (vLLM v1 `get_computed_blocks`, engine-semantics table, row "cap").

    >>> [longest_hit(n, 1024) for n in (1024, 1025, 2047, 4096)]
    [0, 1024, 1024, 3072]
    """
    return align_down(max(input_len - 1, 0), hit_granularity)
