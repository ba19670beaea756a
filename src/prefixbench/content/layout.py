"""What follows the shared prefix, laid out for many prompts at once.

    markers | fillers | boundary of two messages | opening samples, if named | ring | fillers

A *slot* is one such part in all prompts of a batch: the same tape, another stretch in each. Texts
and ids are both cut from slots, so they cannot disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from prefixbench.content.passages import Passage
from prefixbench.content.recipes import Recipes
from prefixbench.content.ring import TextRing
from prefixbench.content.tape import Ids, Positions, Tape
from prefixbench.content.words import Words

#: One part of many texts, an entry a text.
TextPart = Sequence[bytes | memoryview]

#: Texts up to so many bytes are copied; a view of more costs less than its copy.
_COPIED_BYTES = 512


class Slot(NamedTuple):
    """Pieces [starts, stops) of a tape, one stretch a prompt; equal ends for an empty one."""

    tape: Tape
    starts: Positions
    stops: Positions

    def texts(self) -> TextPart:
        """JSON-escaped texts, without quotes."""
        byte_at = self.tape.byte_at
        starts, stops = byte_at[self.starts], byte_at[self.stops]
        is_short = (stops - starts).max(initial=0) <= _COPIED_BYTES
        source: Any = self.tape.text if is_short else memoryview(self.tape.text)
        bounds = zip(starts.tolist(), stops.tolist(), strict=True)
        return [source[start:stop] for start, stop in bounds]

    def ids(self) -> list[Ids]:
        token_at, ids = self.tape.token_at, self.tape.ids
        bounds = zip(token_at[self.starts].tolist(), token_at[self.stops].tolist(), strict=True)
        return [ids[start:stop] for start, stop in bounds]


def lay_unique_parts(
    recipes: Recipes, words: Words, passage: Passage, boundary: Tape | None = None
) -> list[Slot]:
    """The slots of these prompts from their prefix to the tail, in order; no empty ones.

    A `boundary` of one piece stands before the natural text.
    """
    slots = _slots(recipes, words, passage, boundary)
    return [slot for slot in slots if (slot.stops > slot.starts).any()]


def _slots(
    recipes: Recipes, words: Words, passage: Passage, boundary: Tape | None
) -> Iterator[Slot]:
    filler_start, filler_count = recipes.filler_start, recipes.filler_count
    markers = words.request_markers
    yield Slot(markers, recipes.first_marker, recipes.first_marker + (recipes.marker_count > 0))
    yield Slot(markers, recipes.second_marker, recipes.second_marker + (recipes.marker_count > 1))
    yield from _run(words.fillers, filler_start, filler_count)
    if boundary is not None:
        none = np.zeros_like(filler_start)
        yield Slot(boundary, none, none + 1)
    yield from _opening(passage, recipes.opening_stop)
    yield from _ring_stretch(passage.ring, recipes.ring_start, recipes.ring_stop)
    yield from _run(words.fillers, filler_start + filler_count, recipes.last_filler_count)


def _run(tape: Tape, starts: Positions, counts: Positions) -> Iterator[Slot]:
    """`counts` pieces from `starts` on; behind the end the tape begins anew."""
    starts = starts % len(tape)
    while True:
        stops = np.minimum(starts + counts, len(tape))
        yield Slot(tape, starts, stops)
        counts = counts - (stops - starts)
        if not counts.any():
            return
        starts = np.zeros_like(starts)


def _opening(passage: Passage, stops: Positions) -> Iterator[Slot]:
    if passage.opening is not None:
        yield from _ring_stretch(passage.opening, np.zeros_like(stops), stops)


def _ring_stretch(ring: TextRing, starts: Positions, stops: Positions) -> Iterator[Slot]:
    """As `TextRing.stretches`: entry and exit stand where a stretch begins or ends at a line."""
    is_filled = stops > starts
    none = np.zeros_like(starts)
    yield Slot(ring.entry, none, none + (is_filled & ring.starts_line(starts)))
    yield from _run(ring.tape, starts, stops - starts)
    yield Slot(ring.exit, none, none + (is_filled & ring.starts_line(stops)))
