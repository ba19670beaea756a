"""Collisions: equal blocks that the plan does not know of.

Under `chained_prefix` (vLLM, SGLang: a block's identity includes all before it) only one thing
counts: the first block that is not shared must be unique among the requests that share what
precedes it. Repeats further behind are a diagnosis there. Under `independent_block` and
`content_defined_chunk` every equal block or chunk would be a hit, wherever it stands; they are
counted as accidental hits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np

from prefixbench.config.suffix import CacheMatchSemantics, CollisionDetectionConfig
from prefixbench.content.registry import (
    BlockRegistry,
    block_hashes,
    chunk_hashes,
    window_hashes,
)
from prefixbench.content.tape import Ids


class CollisionStatus(StrEnum):
    """What the search says of one request."""

    OK = "ok"
    REPAIRED = "repaired"
    COLLIDES = "collides"
    NO_FULL_BLOCK = "no_full_block"
    NOT_CHECKED = "not_checked"


@dataclass(frozen=True, slots=True, kw_only=True)
class CollisionValidationResult:
    """What was found in one request; token counts, windows and blocks of its unshared part."""

    status: CollisionStatus
    semantics: CacheMatchSemantics
    shared_len: int
    first_block_index: int | None = None
    repeated_windows: int = 0
    accidental_hit_len: int = 0

    @property
    def collides(self) -> bool:
        return self.status is CollisionStatus.COLLIDES


def validate_block_collisions(
    request_tokens: Sequence[int] | Ids,
    group_registry: BlockRegistry,
    config: CollisionDetectionConfig,
) -> CollisionValidationResult:
    """Look at one request and remember it, unless it collides (RFC 3.5.2).

    The registry holds the master prefix of the group; requests come one after the other. A request
    that collides leaves the registry as it was, so that its next draw can be judged.
    """
    semantics = config.cache_match_semantics
    tokens = np.asarray(request_tokens, dtype=np.uint32)
    shared_len = group_registry.shared_len(tokens)
    if not config.enabled:
        return CollisionValidationResult(
            status=CollisionStatus.NOT_CHECKED, semantics=semantics, shared_len=shared_len
        )
    group_registry.checked += 1
    first_block = group_registry.first_block(tokens, shared_len)
    status = _status_of(first_block, group_registry, config)
    if status is CollisionStatus.COLLIDES or first_block is None:
        return CollisionValidationResult(status=status, semantics=semantics, shared_len=shared_len)
    group_registry.keep(first_block)
    start = shared_len // group_registry.block_size
    repeated, accidental = repeats_behind(tokens, start, group_registry, config)
    return CollisionValidationResult(
        status=status,
        semantics=semantics,
        shared_len=shared_len,
        first_block_index=start,
        repeated_windows=repeated,
        accidental_hit_len=accidental,
    )


def _status_of(
    first_block: int | None, registry: BlockRegistry, config: CollisionDetectionConfig
) -> CollisionStatus:
    if first_block is None:
        return CollisionStatus.NO_FULL_BLOCK
    if config.first_non_shared_block_unique and registry.is_known(first_block):
        return CollisionStatus.COLLIDES
    return CollisionStatus.OK


def repeats_behind(
    tokens: Ids, first_block: int, registry: BlockRegistry, config: CollisionDetectionConfig
) -> tuple[int, int]:
    """Repeated windows, and tokens that a cache of these semantics would find by accident."""
    size = registry.block_size
    unshared = tokens[first_block * size :]
    hashes = block_hashes(unshared, size)
    match config.cache_match_semantics:
        case CacheMatchSemantics.CHAINED_PREFIX:
            windows = window_hashes(hashes, config.window_blocks)
            return int(registry.repeats(windows).sum()), 0
        case CacheMatchSemantics.INDEPENDENT_BLOCK:
            repeats = registry.repeats(hashes)
            return int(repeats.sum()), int(repeats.sum()) * size
        case CacheMatchSemantics.CONTENT_DEFINED_CHUNK:
            chunks, lengths = chunk_hashes(unshared, size)
            repeats = registry.repeats(chunks)
            return int(repeats.sum()), int(lengths[repeats].sum())
        case other:
            assert_never(other)
