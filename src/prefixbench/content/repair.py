"""The search for collisions in a whole data set, and their repair by drawing requests anew.

A retry takes other samples, later also markers in front of natural text (RFC 3.3.15). Divergence
blocks are unique while there are markers; where more requests diverge at one place, and blocks are
so small that markers repeat, no draw helps: those hits are counted instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from prefixbench.config.suffix import (
    CacheMatchSemantics,
    CollisionDetectionConfig,
    OnCollision,
)
from prefixbench.content.accidents import Sending, chained_accidents, unchained_accidents
from prefixbench.content.collide import CollisionStatus, RepeatCount, count_repeats
from prefixbench.content.compose import Composer
from prefixbench.content.equal_blocks import (
    classes_of_equal_heads,
    classes_of_equal_markers,
    find_equal_texts,
    has_full_first_block,
)
from prefixbench.content.registry import BlockRegistry
from prefixbench.content.tape import Positions
from prefixbench.core.errors import CollisionError, ErrorContext, Stage

#: Requests whose windows are looked at for diagnosis, spread evenly over the data set.
DIAGNOSED_REQUESTS = 256


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CollisionReport:
    """What was found in a data set and what was done about it.

    `accidental_hit_lens` gives the tokens that a request finds beyond the plan and that belong to
    the theory, `uncounted` those of collisions that are only told.
    """

    checked: int
    statuses: list[CollisionStatus]
    retries: Positions
    warnings: tuple[str, ...]
    accidental_hit_lens: dict[int, int]
    uncounted: dict[int, int]
    diagnosed_requests: int
    repeats: RepeatCount

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
            "uncounted_hit_tokens": sum(self.uncounted.values()),
            "diagnosed_requests": self.diagnosed_requests,
            "diagnosed_windows": self.repeats.windows,
            "repeated_windows": self.repeats.repeated,
        }


@dataclass(frozen=True, slots=True)
class _Equal:
    """Classes of requests with equal blocks; those `redrawn` can be told apart by another draw."""

    by_text: list[Positions]
    by_marker: list[Positions]
    redrawn: list[int]


def resolve_collisions(
    composer: Composer,
    block_size: int,
    config: CollisionDetectionConfig,
    sending: Sending,
    *,
    name_of: Callable[[int], str] = str,
) -> tuple[Composer, CollisionReport]:
    """Draw colliding requests anew until none is left or the retries are used up.

    Then `on_collision` decides: CollisionError, or the composer as it is and a report that says
    so. `name_of` gives a request's id for messages.
    """
    if not config.enabled:
        return composer, _unchecked(composer)
    equal = _equal_blocks(composer, block_size, config)
    for _ in range(config.max_retries):
        if not equal.redrawn:
            break
        retries = composer.retries.copy()
        retries[equal.redrawn] += 1
        composer = composer.with_retries(retries)
        equal = _equal_blocks(composer, block_size, config)
    if equal.redrawn and config.on_collision is OnCollision.ERROR:
        raise _exhausted(composer, min(equal.redrawn), len(equal.redrawn), name_of)
    return composer, _report(composer, block_size, config, sending, equal)


def _equal_blocks(composer: Composer, block_size: int, config: CollisionDetectionConfig) -> _Equal:
    by_marker = classes_of_equal_markers(composer, block_size)
    texts = find_equal_texts(composer, block_size)
    is_natural = composer.columns.divergence_len == 0
    again = chain.from_iterable(members[1:].tolist() for members in by_marker)
    redrawn = {*texts.redrawn, *(request for request in again if is_natural[request])}
    unwanted = sorted(redrawn) if config.first_non_shared_block_unique else []
    return _Equal(texts.classes, by_marker, unwanted)


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
        uncounted={},
        diagnosed_requests=0,
        repeats=RepeatCount(0, 0),
    )


def _report(
    composer: Composer,
    block_size: int,
    config: CollisionDetectionConfig,
    sending: Sending,
    equal: _Equal,
) -> CollisionReport:
    heads = classes_of_equal_heads(
        composer, block_size, np.argsort(sending.place, kind="stable"), sending.cache
    )
    by_marker = chained_accidents(composer, block_size, sending, [*equal.by_marker, *heads])
    by_text = chained_accidents(composer, block_size, sending, equal.by_text)
    statuses = _statuses(composer, block_size)
    for request in by_marker:
        statuses[request] = CollisionStatus.REPEATS_MARKER
    for request in by_text:
        statuses[request] = CollisionStatus.COLLIDES
    counted, uncounted = by_marker | by_text, {}
    if config.cache_match_semantics is not CacheMatchSemantics.CHAINED_PREFIX:
        counted = unchained_accidents(composer, block_size, sending, config.cache_match_semantics)
    elif config.on_collision is not OnCollision.ACCEPT_WITH_WARNING:
        counted, uncounted = by_marker, by_text
    diagnosed, repeats = _diagnose(composer, block_size, config)
    return CollisionReport(
        checked=len(composer),
        statuses=statuses,
        retries=composer.retries,
        warnings=tuple(_warnings(composer, by_text, by_marker, counted)),
        accidental_hit_lens=counted,
        uncounted=uncounted,
        diagnosed_requests=diagnosed,
        repeats=repeats,
    )


def _statuses(composer: Composer, block_size: int) -> list[CollisionStatus]:
    words = [CollisionStatus.OK] * len(composer)
    for request in np.flatnonzero(composer.retries > 0).tolist():
        words[request] = CollisionStatus.REPAIRED
    for request in np.flatnonzero(~has_full_first_block(composer, block_size)).tolist():
        words[request] = CollisionStatus.NO_FULL_BLOCK
    return words


def _warnings(
    composer: Composer,
    by_text: dict[int, int],
    by_marker: dict[int, int],
    counted: dict[int, int],
) -> Iterator[str]:
    if by_text:
        yield f"{len(by_text)} requests repeat the first unshared block of another request"
    if by_marker:
        markers = len(composer.pool.words.request_markers)
        yield (
            f"{len(by_marker)} requests begin their own part as another one does, since the"
            f" vocabulary has no more than {markers} markers for it"
        )
    if counted:
        yield (
            f"{sum(counted.values())} tokens are found by accident; the designed ratio counts them"
        )
    if composer.repeating_count:
        yield (
            f"{composer.repeating_count} requests repeat samples: the corpus has no more text"
            " than that"
        )


def _diagnose(
    composer: Composer, block_size: int, config: CollisionDetectionConfig
) -> tuple[int, RepeatCount]:
    """Requests of a sample, and how alike their unshared parts are."""
    step = max(-(-len(composer) // DIAGNOSED_REQUESTS), 1)
    registry = BlockRegistry(block_size)
    requests = np.arange(0, len(composer), step)
    starts = composer.columns.planned_prefix_len[requests] // block_size * block_size
    counts = [
        count_repeats(tokens[start:], registry, config)
        for start, tokens in zip(starts.tolist(), composer.each_ids(requests), strict=True)
    ]
    return len(requests), RepeatCount(*(sum(column) for column in zip(*counts, strict=True)))
