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
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prefixbench.config.suffix import CacheMatchSemantics, CollisionDetectionConfig
from prefixbench.content.registry import (
    BlockRegistry,
    Hashes,
    block_hashes,
    chunk_hashes,
    window_hashes,
)
from prefixbench.content.tape import Ids, Positions


class CollisionStatus(StrEnum):
    """What the search says of one request."""

    OK = "ok"
    REPAIRED = "repaired"
    COLLIDES = "collides"
    REPEATS_MARKER = "repeats_marker"
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


class RepeatCount(NamedTuple):
    """How alike unshared parts are: windows that come again, of all windows."""

    repeated: int
    windows: int


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
    unshared = tokens[start * group_registry.block_size :]
    accidental = _accidental_hit_len(unshared, group_registry, semantics)
    return CollisionValidationResult(
        status=status,
        semantics=semantics,
        shared_len=shared_len,
        first_block_index=start,
        repeated_windows=count_repeats(unshared, group_registry, config).repeated,
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


def count_repeats(
    unshared: Ids, registry: BlockRegistry, config: CollisionDetectionConfig
) -> RepeatCount:
    """Windows (without a chain: blocks or chunks) that come again, in here or of late elsewhere."""
    size, semantics = registry.block_size, config.cache_match_semantics
    if semantics is CacheMatchSemantics.CHAINED_PREFIX:
        hashes = window_hashes(block_hashes(unshared, size), config.window_blocks)
    else:
        hashes, _ = pieces_of(unshared, size, semantics)
    repeated = int((registry.were_seen(hashes) | _come_again(hashes)).sum())
    registry.remember(hashes)
    return RepeatCount(repeated, len(hashes))


def _accidental_hit_len(
    unshared: Ids, registry: BlockRegistry, semantics: CacheMatchSemantics
) -> int:
    """Tokens of blocks or chunks that the registry remembers of earlier requests."""
    if semantics is CacheMatchSemantics.CHAINED_PREFIX:
        return 0
    hashes, lengths = pieces_of(unshared, registry.block_size, semantics)
    return int(lengths[registry.were_seen(hashes)].sum())


def pieces_of(
    tokens: Ids, block_size: int, semantics: CacheMatchSemantics
) -> tuple[Hashes, Positions]:
    """Hashes and lengths of what a cache without a chain keeps of a sequence."""
    if semantics is CacheMatchSemantics.CONTENT_DEFINED_CHUNK:
        return chunk_hashes(tokens, block_size)
    hashes = block_hashes(tokens, block_size)
    return hashes, np.full(len(hashes), block_size)


def _come_again(hashes: Hashes) -> npt.NDArray[np.bool_]:
    """Which of these stand earlier in the array too."""
    _, first_places = np.unique(hashes, return_index=True)
    again = np.ones(len(hashes), dtype=np.bool_)
    again[first_places] = False
    return again
