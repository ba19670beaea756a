"""Tapes: texts whose ids are known, cut between their pieces; prompts are joined from stretches.

A tape holds pieces end to end, as ids and as JSON-escaped text. Any stretch of whole pieces keeps
its ids wherever it is put, as long as its neighbours meet it at safe boundaries (`atoms`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

Ids = npt.NDArray[np.uint32]
Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tape:
    """Pieces end to end; `token_at` and `byte_at` say where each begins and the last one ends."""

    ids: Ids
    text: bytes
    token_at: Positions
    byte_at: Positions

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]], texts: Iterable[bytes]) -> Tape:
        """The tape of pieces, given their ids and their escaped texts."""
        rows, texts = list(rows), list(texts)
        return cls(
            ids=np.fromiter(chain.from_iterable(rows), dtype=np.uint32),
            text=b"".join(texts),
            token_at=offsets_of([len(row) for row in rows]),
            byte_at=offsets_of([len(text) for text in texts]),
        )

    def __len__(self) -> int:
        """Number of pieces."""
        return self.size

    def __reduce__(self) -> tuple[type[Tape], tuple[Ids, bytes, Positions, Positions]]:
        """Without the buffers, which another process makes itself."""
        return Tape, (self.ids, self.text, self.token_at, self.byte_at)

    @cached_property
    def size(self) -> int:
        """Number of pieces."""
        return len(self.token_at) - 1

    @cached_property
    def text_view(self) -> tuple[memoryview, memoryview]:
        """The text and `byte_at` as buffers: single places come faster than out of an array."""
        return memoryview(self.text), self.byte_at.data

    def piece(self, number: int) -> Stretch:
        """One piece."""
        return self, number, number + 1

    def run(self, start: int, count: int) -> list[Stretch]:
        """`count` pieces from `start` on; behind the end the tape begins anew."""
        size = self.size
        start %= size
        if 0 < count <= size - start:
            return [(self, start, start + count)]
        stretches = []
        while count > 0:
            stop = min(start + count, size)
            stretches.append((self, start, stop))
            count -= stop - start
            start = 0
        return stretches


#: Pieces [start, stop) of a tape; a plain tuple, since every prompt is made of several.
Stretch: TypeAlias = tuple[Tape, int, int]


def join_text(stretches: Iterable[Stretch]) -> bytes:
    """JSON-escaped text, without quotes."""
    views = (
        memoryview(tape.text)[tape.byte_at[start] : tape.byte_at[stop]]
        for tape, start, stop in stretches
    )
    return b"".join(views)


def join_ids(stretches: Iterable[Stretch]) -> Ids:
    parts = [
        tape.ids[tape.token_at[start] : tape.token_at[stop]] for tape, start, stop in stretches
    ]
    return np.concatenate(parts) if parts else np.empty(0, dtype=np.uint32)


def offsets_of(lengths: Sequence[int] | Positions) -> Positions:
    """Where each of the lengths begins when they lie end to end, and the end of the last."""
    offsets = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def escape(text: str) -> bytes:
    """JSON's escapes of a text, without the quotes; escapes of a join are the join of escapes."""
    return orjson.dumps(text)[1:-1]


def unescape(text: bytes) -> str:
    """The text that JSON's escapes stand for."""
    unescaped: str = orjson.loads(b'"' + text + b'"')
    return unescaped
