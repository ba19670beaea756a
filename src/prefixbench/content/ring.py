"""A corpus on a tape, laid in a ring: any stretch between two boundaries keeps its ids.

Positions count atoms and are *unrolled*: position `p + len(ring)` is the same place one turn
later, so a stretch may be longer than the corpus.

    sample 0          sample 1                 ... sample n-1
    | atom atom atom  | atom atom atom atom    ... | atom atom |  -> back to sample 0
    0                 3                                        N = len(ring)

Where samples are parted by a newline, a stretch may begin or end at a line boundary. Then `entry`
stands before it (a word and the separator) and `exit` behind it (a capitalised word of one token),
so that what surrounds a stretch only ever meets word boundaries.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from prefixbench.content.tape import Ids, Positions, Stretch, Tape, offsets_of

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class TextRing:
    """Samples of a corpus and the places where they may be cut.

    The pieces of `tape` are atoms; `line_starts` says of each whether it begins behind a newline;
    `sample_starts` are atoms, with one more at the end; `sample_ids` are rows of the corpus;
    `entry` and `exit` are tapes of one piece.
    """

    tape: Tape
    line_starts: Flags
    sample_starts: Positions
    sample_ids: Positions
    entry: Tape
    exit: Tape

    def __len__(self) -> int:
        """Atoms in one turn."""
        return len(self.tape)

    @property
    def sample_count(self) -> int:
        return len(self.sample_ids)

    @property
    def token_count(self) -> int:
        """Tokens in one turn."""
        return len(self.tape.ids)

    @property
    def all_ids(self) -> Ids:
        """Every id that a stretch of this ring can bring into a prompt, repeats included."""
        return np.concatenate([self.tape.ids, self.entry.ids, self.exit.ids])

    @cached_property
    def sample_tokens(self) -> Positions:
        """Tokens before each sample; one more entry for the end."""
        return self.tape.token_at[self.sample_starts]

    @cached_property
    def _tokens_if_cut(self) -> Positions:
        """Tokens of the turn up to each atom, with the exit that a cut before it needs."""
        return self.tape.token_at[:-1] + np.where(self.line_starts, len(self.exit.ids), 0)

    def tokens_before(self, position: Any) -> Any:
        """Unrolled tokens before an unrolled position (an int or an array of them)."""
        turns, atom = np.divmod(position, len(self))
        return turns * self.token_count + self.tape.token_at[atom]

    def last_cut(self, start: Any, budget: Any) -> Any:
        """The farthest position so that the stretch from `start` fits the budget of tokens.

        Entry and exit are counted in; `start` itself if nothing fits. Takes ints or arrays.
        """
        reach = self.tokens_before(start) + budget - self._entry_len(start)
        turns, rest = np.divmod(reach, self.token_count)
        place = np.searchsorted(self._tokens_if_cut, rest, side="right") - 1
        return np.maximum(turns * len(self) + place, start)

    def stretch_len(self, start: Any, stop: Any) -> Any:
        """Tokens of the stretch, with entry and exit; 0 for an empty one. Ints or arrays."""
        inside = self.tokens_before(stop) - self.tokens_before(start)
        around = self._entry_len(start) + self._exit_len(stop)
        return np.where(inside > 0, inside + around, 0)

    def starts_line(self, position: Any) -> Any:
        """Whether the boundary at an unrolled position is a line boundary. Ints or arrays."""
        return self.line_starts[position % len(self)]

    def _entry_len(self, position: Any) -> Any:
        return np.where(self.starts_line(position), len(self.entry.ids), 0)

    def _exit_len(self, position: Any) -> Any:
        return np.where(self.starts_line(position), len(self.exit.ids), 0)

    def first_sample_from(self, tokens: Any) -> Any:
        """The first unrolled sample that begins at or behind so many unrolled tokens."""
        turns, rest = np.divmod(tokens, self.token_count)
        place = np.searchsorted(self.sample_tokens[:-1], rest, side="left")
        return turns * self.sample_count + place

    def sample_position(self, sample: Any) -> Any:
        """The unrolled position at which an unrolled sample begins."""
        turns, number = np.divmod(sample, self.sample_count)
        return turns * len(self) + self.sample_starts[number]

    def stretches(self, start: int, stop: int) -> list[Stretch]:
        """The stretch from start to stop, with its entry and exit; nothing for an empty one."""
        if start >= stop:
            return []
        size = self.tape.size
        stretches = self.tape.run(start, stop - start)
        if self._line_start_at(start % size):
            stretches.insert(0, self.entry.piece(0))
        if self._line_start_at(stop % size):
            stretches.append(self.exit.piece(0))
        return stretches

    def rows_in(self, starts: Positions, stops: Positions) -> list[bytes]:
        """Rows of the corpus that stretches touch, in order; again if one comes there again.

        JSON numbers, each with a comma behind it, since prompts name dozens of rows.
        """
        rows, _ = self._sample_rows
        turn = len(rows)
        first, last = self._row_bounds(starts)[0], self._row_bounds(stops - 1)[1]
        last = np.where(stops > starts, last, first) - first // turn * turn
        bounds = zip((first % turn).tolist(), last.tolist(), strict=True)
        return [
            rows[low:high] if high <= turn else _unrolled(rows, low, high) for low, high in bounds
        ]

    def _row_bounds(self, positions: Positions) -> tuple[Positions, Positions]:
        """Where the rows of the samples at unrolled positions begin and end, unrolled too."""
        rows, row_at = self._sample_rows
        turns, atoms = np.divmod(positions, len(self))
        samples = np.searchsorted(self.sample_starts, atoms, side="right") - 1
        return turns * len(rows) + row_at[samples], turns * len(rows) + row_at[samples + 1]

    @cached_property
    def _sample_rows(self) -> tuple[bytes, Positions]:
        """Rows of the samples as text, and where each begins there."""
        words = [b"%d," % row for row in self.sample_ids.tolist()]
        return b"".join(words), offsets_of([len(word) for word in words])

    @cached_property
    def _line_start_at(self) -> Callable[[int], int]:
        """As `line_starts`, one atom at a time; a bytes object answers faster than an array."""
        return self.line_starts.tobytes().__getitem__

    def select(self, samples: Sequence[int] | Positions) -> TextRing:
        """The ring of these samples (numbers in this ring, not rows), in the given order."""
        atoms = _ranges(self.sample_starts, samples)
        tokens = _ranges(self.sample_tokens, samples)
        places = self.tape.byte_at[self.sample_starts].tolist()
        view, _ = self.tape.text_view
        return TextRing(
            tape=Tape(
                ids=self.tape.ids[tokens],
                text=b"".join([view[places[sample] : places[sample + 1]] for sample in samples]),
                token_at=offsets_of(np.diff(self.tape.token_at)[atoms]),
                byte_at=offsets_of(np.diff(self.tape.byte_at)[atoms]),
            ),
            line_starts=self.line_starts[atoms],
            sample_starts=offsets_of(np.diff(self.sample_starts)[samples]),
            sample_ids=self.sample_ids[samples],
            entry=self.entry,
            exit=self.exit,
        )


def _unrolled(text: bytes, start: int, stop: int) -> bytes:
    """Text [start, stop) of endless repeats of a text."""
    return (text * (stop // len(text) + 1))[start:stop]


def _ranges(starts: Positions, samples: Sequence[int] | Positions) -> Positions:
    """The numbers inside the samples' ranges, one range after the other."""
    return np.concatenate([np.arange(starts[sample], starts[sample + 1]) for sample in samples])
