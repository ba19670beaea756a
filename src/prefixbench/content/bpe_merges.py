"""Merges of a byte-pair encoding that a file states as ranks alone.

Files of tiktoken and SentencePiece list entries with ranks (or scores) and mean: join, again and
again, the neighbours whose union has the lowest rank. The `tokenizers` library wants the pairs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import TypeVar

Piece = TypeVar("Piece", str, bytes)


def merges_by_rank(ranks: Mapping[Piece, int]) -> Iterator[tuple[Piece, Piece]]:
    """The pairs that make each entry, lowest rank first.

    Inside the span of an entry, joining by rank always comes to the same last pair, whatever
    stands around it; so one pair an entry is enough. An entry that joining alone would not make
    keeps every pair of entries that it consists of.
    """
    for piece in sorted(ranks, key=ranks.__getitem__):
        pairs = [
            (piece[:cut], piece[cut:])
            for cut in range(1, len(piece))
            if piece[:cut] in ranks and piece[cut:] in ranks
        ]
        if len(pairs) > 1:
            parts = _joined(piece, ranks, below=ranks[piece])
            if len(parts) == 2:
                pairs = [(parts[0], parts[1])]
        yield from pairs


def _joined(piece: Piece, ranks: Mapping[Piece, int], *, below: int) -> list[Piece]:
    """The parts of a piece once no two neighbours join to an entry of a rank below."""
    parts = [piece[place : place + 1] for place in range(len(piece))]
    while len(parts) > 2:
        unions = [ranks.get(left + right, below) for left, right in pairwise(parts)]
        lowest = min(unions)
        if lowest >= below:
            break
        place = unions.index(lowest)
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return parts
