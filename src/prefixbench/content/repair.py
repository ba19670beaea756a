"""The search for collisions in a whole data set, and their repair by drawing requests anew.

Requests that begin their unique part with markers are judged all at once by their markers; those
that begin with natural text, one by one by the ids of the block. A retry takes another divergence
block and other samples, later also markers in front of natural text (RFC 3.3.15).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.config.suffix import (
    CacheMatchSemantics,
    CollisionDetectionConfig,
    OnCollision,
)
from prefixbench.content.collide import CollisionStatus, repeats_behind
from prefixbench.content.compose import Composer
from prefixbench.content.divergence import numberings
from prefixbench.content.registry import BlockRegistry
from prefixbench.content.tape import Ids, Positions
from prefixbench.core.blocks import align_down, longest_hit
from prefixbench.core.errors import CollisionError, ErrorContext, Stage
from prefixbench.core.seeds import mixed, stream

#: Requests whose windows are looked at for diagnosis, spread evenly over the data set.
DIAGNOSED_REQUESTS = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollisionReport:
    """What was found in a data set and what was done about it.

    `accidental_hit_lens` gives tokens a request would find beyond the plan: of unrepaired
    collisions, or of equal blocks under semantics that know no chain.
    """

    checked: int
    statuses: list[CollisionStatus]
    retries: Positions
    warnings: tuple[str, ...]
    accidental_hit_lens: dict[int, int]
    diagnosed_requests: int
    repeated_windows: int

    @property
    def repaired(self) -> int:
        return self.statuses.count(CollisionStatus.REPAIRED)

    def to_json(self) -> dict[str, Any]:
        """The manifest's `collision`."""
        return {
            "checked": self.checked,
            "repaired": self.repaired,
            "retries": int(self.retries.sum()),
            "warnings": list(self.warnings),
            "accidental_hit_tokens": sum(self.accidental_hit_lens.values()),
            "diagnosed_requests": self.diagnosed_requests,
            "repeated_windows": self.repeated_windows,
        }


def resolve_collisions(
    composer: Composer,
    block_size: int,
    config: CollisionDetectionConfig,
    *,
    name_of: Callable[[int], str] = str,
) -> tuple[Composer, CollisionReport]:
    """Draw colliding requests anew until none is left or the retries are used up.

    Then `on_collision` decides: CollisionError, or the composer as it is and a report that says
    so. `name_of` gives a request's id for messages.
    """
    if not config.enabled:
        return composer, _unchecked(composer)
    retries = composer.retries.copy()
    collisions = _collisions(composer, block_size, config)
    for _ in range(config.max_retries):
        if not collisions:
            break
        retries[list(collisions)] += 1
        composer = composer.with_retries(retries)
        collisions = _collisions(composer, block_size, config)
    if collisions and config.on_collision is OnCollision.ERROR:
        raise _exhausted(composer, min(collisions), len(collisions), name_of)
    return composer, _report(composer, block_size, config, collisions)


def _collisions(
    composer: Composer, block_size: int, config: CollisionDetectionConfig
) -> dict[int, int | None]:
    """Requests whose first block is not unique, with the request they repeat (None: the prefix)."""
    if not config.first_non_shared_block_unique:
        return {}
    marked = composer.recipes.column("marker_count") > 0
    natural = np.flatnonzero(~marked)
    return _equal_markers(composer, block_size, np.flatnonzero(marked)) | _equal_blocks(
        composer, block_size, natural
    )


def _full_first_block(composer: Composer, block_size: int) -> Any:
    columns = composer.columns
    start = columns.planned_prefix_len // block_size * block_size
    return start + block_size <= columns.input_len


def _equal_markers(
    composer: Composer, block_size: int, requests: Positions
) -> dict[int, int | None]:
    """Two blocks with markers are equal only if place and markers are: a marker occurs neither in
    a prefix nor in any other text."""
    requests = requests[_full_first_block(composer, block_size)[requests]]
    table, columns = composer.recipes, composer.columns
    prefix = columns.planned_prefix_len
    inside = np.minimum(table.column("marker_count"), block_size - prefix % block_size)
    key: Any = stream("first_block")
    parts = (
        numberings(columns.group, prefix > composer.frame.head_len),
        prefix,
        table.column("first_marker"),
        np.where(inside > 1, table.column("second_marker"), -1),
    )
    for part in parts:
        key = mixed(key, part[requests].astype(np.uint64))
    if not _has_repeats(key):
        return {}
    _, first_places, inverse = np.unique(key, return_index=True, return_inverse=True)
    twins = requests[first_places][inverse]
    return {
        int(request): int(twin)
        for request, twin in zip(requests, twins, strict=True)
        if request != twin
    }


def _has_repeats(keys: Any) -> bool:
    """Whether any value occurs twice; costs a sort, far less than finding out which."""
    ordered = np.sort(keys)
    return bool((ordered[1:] == ordered[:-1]).any())


def _equal_blocks(
    composer: Composer, block_size: int, requests: Positions
) -> dict[int, int | None]:
    """Judge requests by the ids of their first block, in the order of their numbers."""
    found: dict[int, int | None] = {}
    columns = composer.columns
    prefix_len = columns.planned_prefix_len
    numbering = numberings(columns.group, prefix_len > composer.frame.head_len).tolist()
    registries: dict[int, _FirstBlocks] = {}
    pairs = zip(requests.tolist(), composer.each_ids(requests), strict=True)
    for request, tokens in pairs:
        name = numbering[request]
        if name not in registries:
            master = composer.master_ids(name) if name >= 0 else composer.head_ids
            registries[name] = _FirstBlocks(block_size, master)
        registries[name].judge(request, tokens, int(prefix_len[request]), found)
    return found


class _FirstBlocks:
    """First blocks of one numbering, and which request brought each."""

    def __init__(self, block_size: int, master: Ids) -> None:
        self._registry = BlockRegistry(block_size, master, window_capacity=2)
        self._owners: dict[int, int] = {}

    def judge(self, request: int, tokens: Ids, prefix: int, found: dict[int, int | None]) -> None:
        block = self._registry.first_block(tokens, prefix)
        if block is None:
            return
        size = self._registry.block_size
        if self._registry.shared_len(tokens) >= align_down(prefix, size) + size:
            found[request] = None
        elif block in self._owners:
            found[request] = self._owners[block]
        else:
            self._owners[block] = request


def _exhausted(
    composer: Composer, request: int, count: int, name_of: Callable[[int], str]
) -> CollisionError:
    group = int(composer.columns.group[request])
    return CollisionError(
        f"{count} requests still repeat a block of another one after all retries",
        context=ErrorContext(
            stage=Stage.COLLISION,
            dataset_id=composer.labels.dataset_id,
            request_id=name_of(request),
            prefix_group_id=composer.columns.group_ids[group],
            retry=int(composer.retries[request]),
            field="suffix.collision_detection",
        ),
        hint="use divergence_block: true, a larger corpus, or longer requests; or on_collision:"
        " accept_with_warning",
    )


def _unchecked(composer: Composer) -> CollisionReport:
    return CollisionReport(
        checked=0,
        statuses=[CollisionStatus.NOT_CHECKED] * len(composer),
        retries=composer.retries,
        warnings=(),
        accidental_hit_lens={},
        diagnosed_requests=0,
        repeated_windows=0,
    )


def _report(
    composer: Composer,
    block_size: int,
    config: CollisionDetectionConfig,
    collisions: dict[int, int | None],
) -> CollisionReport:
    diagnosed, repeated, accidental = _diagnose(composer, block_size, config)
    for request, twin in collisions.items():
        accidental[request] = _hit_beyond_plan(composer, block_size, request, twin)
    return CollisionReport(
        checked=len(composer),
        statuses=_statuses(composer, block_size, collisions),
        retries=composer.retries,
        warnings=tuple(_warnings(composer, collisions, accidental)),
        accidental_hit_lens={request: hit for request, hit in accidental.items() if hit},
        diagnosed_requests=diagnosed,
        repeated_windows=repeated,
    )


def _statuses(
    composer: Composer, block_size: int, collisions: dict[int, int | None]
) -> list[CollisionStatus]:
    full = _full_first_block(composer, block_size)
    words = [CollisionStatus.OK] * len(composer)
    for request in np.flatnonzero(composer.retries > 0).tolist():
        words[request] = CollisionStatus.REPAIRED
    for request in np.flatnonzero(~full).tolist():
        words[request] = CollisionStatus.NO_FULL_BLOCK
    for request in collisions:
        words[request] = CollisionStatus.COLLIDES
    return words


def _warnings(
    composer: Composer, collisions: dict[int, int | None], accidental: dict[int, int]
) -> Iterator[str]:
    if collisions:
        yield f"{len(collisions)} requests repeat the first unshared block of another request"
    accidental_hits = sum(accidental.values())
    if accidental_hits:
        yield f"{accidental_hits} tokens would be found by accident"
    if composer.exhausted_count:
        yield (
            f"{composer.exhausted_count} requests repeat samples: the corpus has no more text"
            " than that"
        )
    heads = [composer.recipes.masters[group].markers[0] for group in composer.groups_with_prefix]
    if len(set(heads)) < len(heads):
        yield (
            f"{len(heads)} groups share {len(set(heads))} first tokens; a cache of single tokens"
            " finds one token more than planned"
        )


def _diagnose(
    composer: Composer, block_size: int, config: CollisionDetectionConfig
) -> tuple[int, int, dict[int, int]]:
    """Requests looked at, repeats in their unshared parts, and accidental hits by request.

    Without a chain every request counts; with it a sample shows how much the texts repeat.
    """
    is_chained = config.cache_match_semantics is CacheMatchSemantics.CHAINED_PREFIX
    step = -(-len(composer) // DIAGNOSED_REQUESTS) if is_chained and len(composer) else 1
    registry = BlockRegistry(block_size)
    requests = np.arange(0, len(composer), step)
    starts = composer.columns.planned_prefix_len[requests] // block_size
    repeated = 0
    accidental = {}
    pairs = zip(requests.tolist(), starts.tolist(), composer.each_ids(requests), strict=True)
    for request, start, tokens in pairs:
        found, hit = repeats_behind(tokens, start, registry, config)
        repeated += found
        accidental[request] = hit
    return len(requests), repeated, accidental


def _hit_beyond_plan(composer: Composer, block_size: int, request: int, twin: int | None) -> int:
    """Tokens of whole blocks that a request has in common with its twin beyond its prefix."""
    tokens = composer.prompt_ids(request)
    group = int(composer.columns.group[request])
    other = composer.master_ids(group) if twin is None else composer.prompt_ids(twin)
    shared = BlockRegistry(block_size, other, window_capacity=2).shared_len(tokens)
    hit = min(align_down(shared, block_size), longest_hit(len(tokens), block_size))
    planned = align_down(int(composer.columns.planned_prefix_len[request]), block_size)
    return max(hit - planned, 0)
