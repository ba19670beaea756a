"""Hits beyond the plan are those of a plain cache that is served in the order of sending."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content_samples import LABELS, builtin_pool, columns_of, text_frame
from oracles import BlockCache
from prefixbench.config.suffix import CacheMatchSemantics, CollisionDetectionConfig
from prefixbench.content.accidents import Sending
from prefixbench.content.collide import CollisionStatus
from prefixbench.content.compose import Composer
from prefixbench.content.pool import Pool
from prefixbench.content.registry import chunk_hashes
from prefixbench.content.repair import CollisionReport, resolve_collisions
from prefixbench.content.tape import Tape

REQUEST_MARKERS, GROUP_MARKERS = 5, 2


@cache
def scarce_pool() -> Pool:
    """The built-in pool with hardly any markers."""
    pool = builtin_pool()
    words = replace(
        pool.words,
        request_markers=_first(pool.words.request_markers, REQUEST_MARKERS),
        group_markers=_first(pool.words.group_markers, GROUP_MARKERS),
    )
    return replace(pool, words=words)


def _first(tape: Tape, count: int) -> Tape:
    return Tape(
        ids=tape.ids[: tape.token_at[count]],
        text=tape.text[: tape.byte_at[count]],
        token_at=tape.token_at[: count + 1],
        byte_at=tape.byte_at[: count + 1],
    )


class SetCache:
    """A cache that knows pieces by their tokens alone, wherever they stand."""

    def __init__(self, lengths_of: Callable[[list[int]], list[int]], step: int) -> None:
        self._lengths_of = lengths_of
        self._step = step
        self._known: set[tuple[int, ...]] = set()

    def serve(self, ids: list[int], planned: int) -> int:
        """Tokens behind the planned hit that stand in pieces of earlier requests."""
        found, start, pieces = 0, 0, []
        for length in self._lengths_of(ids):
            stop = start + length
            piece = tuple(ids[start:stop])
            if piece in self._known and stop <= (len(ids) - 1) // self._step * self._step:
                found += max(stop - max(start, planned), 0)
            pieces.append(piece)
            start = stop
        self._known.update(pieces)
        return found


def watermark_hits(composer: Composer, order: list[int], caches: list[int], block: int) -> Any:
    """What each request finds by its plan: the head once a cache, prefixes once a group."""
    head = composer.frame.head_len
    depths: dict[tuple[int, int], int] = {}
    opened: set[int] = set()
    planned = np.zeros(len(order), dtype=np.int64)
    for request in order:
        where, group = caches[request], int(composer.columns.group[request])
        prefix = int(composer.columns.planned_prefix_len[request])
        known = max(depths.get((where, group), 0), head if where in opened else 0)
        longest = int(composer.columns.input_len[request]) - 1
        planned[request] = min(prefix, known, longest) // block * block
        depths[where, group] = max(depths.get((where, group), 0), prefix)
        opened.add(where)
    return planned


def warm_ups(composer: Composer, caches: list[int]) -> dict[tuple[int, int], list[int]]:
    """The longest planned prefix of each cache and group."""
    longest: dict[tuple[int, int], list[int]] = {}
    for request, where in enumerate(caches):
        domain = (where, int(composer.columns.group[request]))
        prefix_len = int(composer.columns.planned_prefix_len[request])
        if prefix_len > len(longest.get(domain, [])):
            longest[domain] = composer.prompt_ids(request)[:prefix_len].tolist()
    return longest


def resolved(
    composer: Composer,
    order: list[int],
    caches: list[int],
    block: int,
    warmed: bool = False,
    **detection: Any,
) -> tuple[Composer, CollisionReport, Any]:
    planned = watermark_hits(composer, order, caches, block)
    if warmed:
        longest = np.minimum(composer.columns.planned_prefix_len, composer.columns.input_len - 1)
        planned = longest // block * block
    sending = Sending(
        place=np.argsort(np.array(order)),
        cache=np.array(caches),
        planned_hits=planned,
        warmed=warmed,
    )
    config = CollisionDetectionConfig(
        on_collision="accept_with_warning", max_retries=0, **detection
    )
    composer, report = resolve_collisions(composer, block, config, sending)
    return composer, report, planned


@st.composite
def sendings(draw: st.DrawFn, longest: int = 90, most: int = 40) -> Any:
    """Rows of a plan that often diverge at one place, an order, and a cache for each request."""
    lengths = st.integers(3, longest)
    row = st.tuples(st.integers(0, 5), lengths, st.sampled_from([0, 1, 2, 3, 8, 16, 17]))
    rows = [
        (group, length, min(prefix, length - 1))
        for group, length, prefix in draw(st.lists(row, min_size=2, max_size=most))
    ]
    order = draw(st.permutations(range(len(rows))))
    caches = draw(st.lists(st.integers(0, 1), min_size=len(rows), max_size=len(rows)))
    return rows, list(order), caches


@given(
    sent=sendings(),
    block=st.sampled_from([1, 2, 3, 4, 16]),
    natural=st.booleans(),
    warmed=st.booleans(),
)
@settings(deadline=None, max_examples=150)
def test_a_chain_finds_what_is_counted(sent: Any, block: int, natural: bool, warmed: bool) -> None:
    rows, order, caches = sent
    frame = text_frame()
    columns = columns_of(rows, frame, block=block, natural=natural)
    composer, report, planned = resolved(
        Composer(scarce_pool(), frame, columns, LABELS), order, caches, block, warmed
    )
    served = {number: BlockCache(block) for number in set(caches)}
    for (where, _), prefix in warm_ups(composer, caches).items() if warmed else ():
        served[where].serve(prefix)
    for request in order:
        found = served[caches[request]].serve(composer.prompt_ids(request).tolist())
        beyond = report.accidental_hit_lens.get(request, 0)
        assert found == planned[request] + beyond
        status = report.statuses[request]
        assert (beyond > 0) == (
            status in (CollisionStatus.COLLIDES, CollisionStatus.REPEATS_MARKER)
        )


@given(
    sent=sendings(longest=200),
    block=st.sampled_from([1, 4, 16]),
    semantics=st.sampled_from(["independent_block", "content_defined_chunk"]),
    warmed=st.booleans(),
)
@settings(deadline=None, max_examples=60)
def test_a_cache_without_a_chain_finds_what_is_counted(
    sent: Any, block: int, semantics: str, warmed: bool
) -> None:
    rows, order, caches = sent
    frame = text_frame()
    composer, report, planned = resolved(
        Composer(scarce_pool(), frame, columns_of(rows, frame, block=block), LABELS),
        order,
        caches,
        block,
        warmed,
        cache_match_semantics=semantics,
    )
    is_chunk = semantics == CacheMatchSemantics.CONTENT_DEFINED_CHUNK

    def lengths_of(ids: list[int]) -> list[int]:
        if is_chunk:
            return chunk_hashes(np.array(ids, dtype=np.uint32), block)[1].tolist()
        return [block] * (len(ids) // block)

    served = {number: SetCache(lengths_of, 1 if is_chunk else block) for number in set(caches)}
    for (where, _), prefix in warm_ups(composer, caches).items() if warmed else ():
        served[where].serve(prefix, len(prefix))
    found = {
        request: served[caches[request]].serve(
            composer.prompt_ids(request).tolist(), int(planned[request])
        )
        for request in order
    }
    assert report.accidental_hit_lens == {request: hit for request, hit in found.items() if hit}


def test_many_hashes_are_sorted_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is counted does not depend on when hashes leave the set for the array."""
    frame = text_frame()
    rows = [(request % 2, 150, 16) for request in range(60)]
    composer = Composer(builtin_pool(), frame, columns_of(rows, frame), LABELS)
    order, caches = list(range(60))[::-1], [0] * 60
    semantics = {"cache_match_semantics": "independent_block"}
    _, whole, _ = resolved(composer, order, caches, 2, **semantics)
    monkeypatch.setattr("prefixbench.content.accidents._RECENT_AT_MOST", 7)
    _, sorted_in, _ = resolved(composer, order, caches, 2, **semantics)
    assert whole.accidental_hit_lens == sorted_in.accidental_hit_lens != {}


@pytest.mark.parametrize("siblings", [REQUEST_MARKERS, REQUEST_MARKERS + 1, 4 * REQUEST_MARKERS])
def test_tokens_repeat_only_beyond_the_number_of_markers(siblings: int) -> None:
    frame = text_frame()
    rows = [(0, 60, 20)] * siblings + [(0, 60, 30)] * REQUEST_MARKERS
    composer = Composer(scarce_pool(), frame, columns_of(rows, frame), LABELS)
    order = list(range(len(rows)))
    _, report, _ = resolved(composer, order, [0] * len(rows), 1)
    assert sum(report.accidental_hit_lens.values()) == siblings - REQUEST_MARKERS
