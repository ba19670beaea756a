"""Unplanned equal blocks: how they are found, repaired, or reported."""

from __future__ import annotations

from itertools import count
from typing import Any

import numpy as np
import pytest

from content_samples import LABELS, builtin_pool, columns_of, text_frame
from oracles import BlockCache
from prefixbench.config.suffix import CollisionDetectionConfig
from prefixbench.content import recipes
from prefixbench.content.accidents import Sending
from prefixbench.content.collide import CollisionStatus, validate_block_collisions
from prefixbench.content.compose import Composer
from prefixbench.content.divergence import draw_divergences, number_requests
from prefixbench.content.registry import BlockRegistry, chunk_hashes
from prefixbench.content.repair import CollisionReport, resolve_collisions
from prefixbench.content.suffix import SuffixStarts
from prefixbench.core.errors import CollisionError

BLOCK = 4
MASTER = list(range(100, 140))


def check(registry: BlockRegistry, tokens: list[int], **settings: Any) -> Any:
    return validate_block_collisions(tokens, registry, CollisionDetectionConfig(**settings))


def composer_of(rows: list[tuple[int, int, int]], **more: Any) -> Composer:
    frame = text_frame()
    return Composer(builtin_pool(), frame, columns_of(rows, frame, **more), LABELS)


def resolve(
    composer: Composer,
    order: list[int] | None = None,
    cache: list[int] | None = None,
    name_of: Any = str,
    **settings: Any,
) -> tuple[Composer, CollisionReport]:
    """With requests sent in this order, planned hits by the watermarks of their groups."""
    count = len(composer)
    order = order or list(range(count))
    caches = np.array(cache or [0] * count)
    planned = np.zeros(count, dtype=np.int64)
    depths: dict[tuple[int, int], int] = {}
    prefixes = composer.columns.planned_prefix_len // 16 * 16
    for request in order:
        domain = (int(caches[request]), int(composer.columns.group[request]))
        planned[request] = min(depths.get(domain, 0), int(prefixes[request]))
        depths[domain] = max(depths.get(domain, 0), int(prefixes[request]))
    sending = Sending(
        place=np.argsort(np.array(order)), cache=caches, planned_hits=planned, warmed=False
    )
    config = CollisionDetectionConfig(**settings)
    return resolve_collisions(composer, 16, config, sending, name_of=name_of)


def test_a_second_request_with_the_same_first_block_collides() -> None:
    registry = BlockRegistry(BLOCK, MASTER)
    first = [*MASTER[:10], 1, 2, 3, 4, 5, 6]
    assert check(registry, first).status is CollisionStatus.OK
    again = check(registry, [*MASTER[:10], 1, 2, 9, 9, 9, 9])
    assert (again.collides, again.shared_len, len(registry)) == (True, 10, 1)
    assert not check(registry, [*MASTER[:10], 1, 3, 9, 9]).collides
    assert len(registry) == 2


def test_the_same_block_at_another_place_is_no_chained_collision() -> None:
    registry = BlockRegistry(BLOCK, MASTER)
    for shared in (0, 4, 8):
        assert not check(registry, [*MASTER[:shared], 1, 2, 3, 4]).collides


def test_a_request_that_ends_inside_the_block_has_none() -> None:
    result = check(BlockRegistry(BLOCK, MASTER), [*MASTER[:10], 1])
    assert result.status is CollisionStatus.NO_FULL_BLOCK


def test_detection_can_be_switched_off() -> None:
    registry = BlockRegistry(BLOCK, MASTER)
    for _ in range(2):
        result = check(registry, [1, 2, 3, 4], enabled=False)
        assert result.status is CollisionStatus.NOT_CHECKED
        assert not check(registry, [5, 5, 5, 5], first_non_shared_block_unique=False).collides


def test_windows_that_come_again_are_counted_but_allowed() -> None:
    registry = BlockRegistry(BLOCK)
    tail = [7, 7, 7, 8, 9, 9, 9, 8, 6, 5, 4, 3]
    assert check(registry, [1, 1, 1, 1, *tail]).repeated_windows == 0
    result = check(registry, [2, 2, 2, 2, *tail])
    assert (result.collides, result.repeated_windows, result.accidental_hit_len) == (False, 2, 0)


def test_independent_blocks_are_accidental_hits_wherever_they_stand() -> None:
    registry = BlockRegistry(BLOCK)
    settings = {"cache_match_semantics": "independent_block"}
    assert check(registry, [1, 1, 1, 1, 5, 6, 7, 8, 2, 2, 2, 2], **settings).repeated_windows == 0
    result = check(registry, [3, 3, 3, 3, 4, 4, 4, 4, 5, 6, 7, 8], **settings)
    assert result.accidental_hit_len == 4
    within = check(registry, [9, 9, 9, 1, 0, 0, 0, 0, 0, 0, 0, 0], **settings)
    assert (within.accidental_hit_len, within.repeated_windows) == (0, 1)


def test_content_defined_chunks_are_found_at_any_offset() -> None:
    text = np.random.default_rng(3).integers(0, 50_000, 600).astype(np.uint32).tolist()
    settings = {"cache_match_semantics": "content_defined_chunk"}
    registry = BlockRegistry(16)
    assert check(registry, [1, *text], **settings).accidental_hit_len == 0
    shifted = check(registry, [2, 3, 4, 5, 6, *text], **settings)
    assert 450 < shifted.accidental_hit_len <= 600
    chunks, lengths = chunk_hashes(np.array(text, dtype=np.uint32), 16)
    assert len(set(chunks.tolist())) == len(chunks) > 15
    assert lengths.sum() <= 600


def test_a_full_registry_forgets_windows_but_not_first_blocks() -> None:
    registry = BlockRegistry(BLOCK, window_capacity=4)
    for number in range(500):
        assert not check(registry, [number, 0, 0, 0, number, 1, 1, 1, number, 2, 2, 2]).collides
    assert len(registry) == 500
    assert check(registry, [3, 0, 0, 0]).collides


def test_alike_suffixes_are_told_apart_from_unlike_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """The share of windows that come again says how alike they are."""
    rows = [(0, 300, 32) for _ in range(8)]
    _, unlike = resolve(composer_of(rows))
    choose = recipes.choose_starts

    def choose_same(*args: Any, **more: Any) -> Any:
        starts = choose(*args, **more)
        return SuffixStarts(np.full_like(starts.positions, 1_000), starts.exhausted)

    monkeypatch.setattr(recipes, "choose_starts", choose_same)
    _, alike = resolve(composer_of(rows))
    assert unlike.repeats.windows == alike.repeats.windows == 8 * (268 // 16 - 1)
    assert unlike.repeats.repeated == 0
    assert alike.repeats.repeated > 0.8 * alike.repeats.windows


def test_a_planned_data_set_needs_no_repair() -> None:
    rows = [(request % 3, 60 + request, [0, 16, 20][request % 3]) for request in range(90)]
    composer = composer_of(rows)
    same, report = resolve(composer)
    assert same is composer
    assert (report.checked, report.repaired, report.warnings) == (90, 0, ())
    assert report.to_json()["retries"] == 0
    assert report.diagnosed_requests == 90
    assert set(report.statuses) == {CollisionStatus.OK}


def test_markers_are_unique_for_as_many_requests_as_pairs() -> None:
    markers = 37
    numbering = np.zeros(markers**2, dtype=np.int64)
    drawn = draw_divergences(
        numbering,
        number_requests(numbering, numbering, None, np.zeros_like(numbering)),
        labels=LABELS,
        node_names=["a"],
        marker_count=markers,
        filler_count=100,
    )
    pairs = set(zip(drawn.first.tolist(), drawn.second.tolist(), strict=True))
    assert len(pairs) == markers**2
    assert len(set(drawn.first[:markers].tolist())) == markers


def test_numbers_of_retries_are_taken_by_no_other_request() -> None:
    numbering = np.array([0, 1, 0, 0, 1], dtype=np.int64)
    retries = np.arange(4)[:, None] * np.ones(5, dtype=np.int64)
    places = np.array([5, 5, 3, 5, 4], dtype=np.int64)
    taken = [number_requests(numbering, places, None, row) for row in retries]
    for name in (0, 1):
        numbers = np.concatenate([row[numbering == name] for row in taken])
        assert len(set(numbers.tolist())) == len(numbers)


def collide_on_first_draw(monkeypatch: pytest.MonkeyPatch, until_retry: int) -> None:
    """Let every request begin to read the corpus at one place until it was drawn so often."""
    choose = recipes.choose_starts

    def choose_same(*args: Any, **more: Any) -> Any:
        starts = choose(*args, **more)
        retries = args[2].indices >> 40
        positions = np.where(retries < until_retry, 1_000, starts.positions)
        return SuffixStarts(positions, starts.exhausted)

    monkeypatch.setattr(recipes, "choose_starts", choose_same)


def test_colliding_natural_text_is_drawn_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    collide_on_first_draw(monkeypatch, until_retry=1)
    rows = [(request % 2, 90, 32) for request in range(6)]
    composer, report = resolve(composer_of(rows, natural=True))
    assert report.repaired == 4
    assert report.statuses.count(CollisionStatus.OK) == 2
    cache = BlockCache(16)
    hits = [cache.serve(composer.prompt_ids(request).tolist()) for request in range(6)]
    assert hits == [0, 0, 32, 32, 32, 32]


def test_natural_text_that_keeps_colliding_gets_markers(monkeypatch: pytest.MonkeyPatch) -> None:
    collide_on_first_draw(monkeypatch, until_retry=99)
    rows = [(0, 90, 32) for _ in range(5)]
    composer, report = resolve(composer_of(rows, natural=True))
    assert report.repaired == 4
    assert composer.retries.tolist() == [0, 3, 3, 3, 3]
    assert len({int(composer.prompt_ids(request)[32]) for request in range(5)}) == 5


@pytest.mark.parametrize("policy", ["warn", "accept_with_warning"])
def test_collisions_that_stay_are_reported(monkeypatch: pytest.MonkeyPatch, policy: str) -> None:
    collide_on_first_draw(monkeypatch, until_retry=99)
    rows = [(0, 90, 32), (0, 90, 32)]
    composer, report = resolve(composer_of(rows, natural=True), on_collision=policy, max_retries=2)
    assert report.statuses == [CollisionStatus.OK, CollisionStatus.COLLIDES]
    cache = BlockCache(16)
    hits = [cache.serve(composer.prompt_ids(request).tolist()) for request in range(2)]
    accepted = policy == "accept_with_warning"
    assert report.accidental_hit_lens == ({1: hits[1] - 32} if accepted else {})
    assert report.uncounted == ({} if accepted else {1: hits[1] - 32})
    assert hits[1] > 32
    assert "1 requests repeat" in report.warnings[0]


def test_collisions_that_stay_are_an_error_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    collide_on_first_draw(monkeypatch, until_retry=99)
    rows = [(0, 90, 32), (0, 90, 32)]
    names = count(10)
    with pytest.raises(CollisionError) as caught:
        resolve(
            composer_of(rows, natural=True),
            max_retries=1,
            name_of=lambda request: f"request-{request}-{next(names)}",
        )
    context = caught.value.context
    assert (context.request_id, context.prefix_group_id, context.retry) == (
        "request-1-10",
        "group_0",
        1,
    )
    assert caught.value.exit_code == 4
