"""Master prefixes: what the requests of a group begin with, cut wherever the plan wants it.

A node of a master prefix begins with a group marker and two drawn fillers (so that data sets and
siblings part at once), then follows the corpus. Where a planned cut falls inside an atom, the atom
moves behind the cut and fillers take its place; one layout serves all requests below the node.

    content tokens   0        1               3                    cut             cut
                     | marker | filler filler | atoms ... fillers | atoms ... |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from prefixbench.content.passages import Passage
from prefixbench.content.ring import TextRing
from prefixbench.content.tape import Ids, Stretch, join_ids, join_text, unescape
from prefixbench.content.words import Words

#: Drawn fillers behind the group's markers: with them two data sets part inside a block of four.
LEAD_FILLERS = 2

#: Pieces of fewer tokens may stay all fillers; no atom is passed over for their sake.
_SHORTEST_READ = 3

_CUT_BYTES = 300  # about what one entry of the table of cuts takes


@dataclass(frozen=True, slots=True)
class MasterDraw:
    """What was drawn for a node: its markers, where its fillers start, its first sample."""

    markers: tuple[int, ...]
    filler_start: int
    sample: int


@dataclass(frozen=True, slots=True)
class Cut:
    """A place where a master prefix may end: how far its text goes, and how far it has read."""

    text_bytes: int
    characters: int
    opening_stop: int
    ring_stop: int
    reading: Reading


@dataclass(frozen=True, slots=True)
class Reading:
    """What a node reads: from where in the ring, behind which rows of the nodes above it."""

    ring_start: int
    rows_before: bytes = b""


@dataclass(frozen=True, eq=False)
class MasterPrefix:
    """The content of a master prefix, or of one node of it, with its cuts by length in tokens."""

    ids: Ids
    text: bytes
    cuts: dict[int, Cut]

    @cached_property
    def view(self) -> memoryview:
        return memoryview(self.text)

    @property
    def size_bytes(self) -> int:
        return len(self.text) + self.ids.nbytes + _CUT_BYTES * len(self.cuts)


def group_markers(place: int, marker_count: int) -> tuple[int, ...]:
    """Markers of the node with this number: one, or two where siblings outnumber markers."""
    if place < marker_count:
        return (place,)
    return (place % marker_count, place // marker_count % marker_count)


def lay_master(
    draw: MasterDraw, cuts: Iterable[int], passage: Passage, words: Words
) -> MasterPrefix:
    """Lay a master prefix so that it may end at each of the cuts (content tokens)."""
    lead = _lead(draw, words)
    reader = _Reader(passage, draw.sample)
    reading = Reading(reader.ring_stop)
    stretches: list[Stretch] = []
    at = {0: Cut(0, 0, 0, reader.ring_stop, reading)}
    length = text_bytes = characters = 0
    for cut in sorted(set(cuts) - {0}):
        piece, lead = lead[: cut - length], lead[cut - length :]
        free = cut - length - len(piece)
        read, used = reader.read(free)
        piece += read
        piece += words.fillers.run(draw.filler_start + LEAD_FILLERS + length, free - used)
        text = join_text(piece)
        stretches += piece
        length = cut
        text_bytes += len(text)
        characters += len(unescape(text))
        at[cut] = Cut(text_bytes, characters, reader.opening_stop, reader.ring_stop, reading)
    return MasterPrefix(join_ids(stretches), join_text(stretches), at)


def join_masters(nodes: Sequence[MasterPrefix], rows_of: Callable[[Cut], bytes]) -> MasterPrefix:
    """The nodes of a path one after the other; `rows_of` gives the rows of a cut as JSON."""
    at: dict[int, Cut] = {}
    length = text_bytes = characters = 0
    rows = b""
    for node in nodes:
        reading = Reading(node.cuts[0].reading.ring_start, rows)
        for cut, where in node.cuts.items():
            at.setdefault(
                length + cut,
                Cut(
                    text_bytes + where.text_bytes,
                    characters + where.characters,
                    where.opening_stop,
                    where.ring_stop,
                    reading,
                ),
            )
        last = node.cuts[len(node.ids)]
        length += len(node.ids)
        text_bytes += last.text_bytes
        characters += last.characters
        rows += rows_of(last)
    ids = np.concatenate([node.ids for node in nodes])
    return MasterPrefix(ids, b"".join(node.text for node in nodes), at)


def _lead(draw: MasterDraw, words: Words) -> list[Stretch]:
    """Markers and first fillers, one token a stretch."""
    markers = [words.group_markers.piece(number) for number in draw.markers]
    fillers = [words.fillers.run(draw.filler_start + place, 1)[0] for place in range(LEAD_FILLERS)]
    return markers + fillers


class _Reader:
    """Reads a passage once, piece by piece; what is too long for a whole piece is left out."""

    def __init__(self, passage: Passage, sample: int) -> None:
        self._passage = passage
        self.opening_stop = 0
        self.ring_stop = int(passage.ring.sample_position(sample))

    def read(self, budget: int) -> tuple[list[Stretch], int]:
        """What comes next and fits the budget of tokens; its stretches and tokens."""
        stretches: list[Stretch] = []
        used = 0
        opening, ring = self._passage.opening, self._passage.ring
        if opening is not None and self.opening_stop < len(opening):
            start, stop = _next_stretch(opening, self.opening_stop, budget, len(opening))
            stretches = opening.stretches(start, stop)
            used = int(opening.stretch_len(start, stop))
            self.opening_stop = stop
            if stop < len(opening):
                return stretches, used
        farthest = self.ring_stop + len(ring)
        start, stop = _next_stretch(ring, self.ring_stop, budget - used, farthest)
        self.ring_stop = stop
        stretches += ring.stretches(start, stop)
        return stretches, used + int(ring.stretch_len(start, stop))


def _next_stretch(ring: TextRing, start: int, budget: int, farthest: int) -> tuple[int, int]:
    """The longest stretch within the budget from the first atom on that fits it.

    Atoms that do not fit are passed over, else a long one would hold up the text for good.
    """
    first = start
    while first < farthest:
        stop = min(int(ring.last_cut(first, budget)), farthest)
        if stop > first:
            return first, stop
        if budget < _SHORTEST_READ:
            break
        first += 1
    return start, start
