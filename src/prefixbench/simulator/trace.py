"""The trace model: requests as the tokens and the blocks that some server was asked for.

A request is a path of block ids, root first, held as runs of consecutive ids: real traces number
blocks as they first appear, so a few runs stand for thousands of blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class BlockIds(StrEnum):
    """What an id of a trace stands for.

    `prefix`: a block and everything before it. `content`: the block alone, so that the same id may
    stand behind different parents; it is another block there.
    """

    PREFIX = "prefix"
    CONTENT = "content"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceRequest:
    """One request: lengths in tokens, and its blocks; what a trace does not tell is None.

    The last block may be a partial one. `conversation` numbers what belongs together.
    """

    input_len: int
    output_len: int | None = None
    arrival_ms: float | None = None
    blocks: tuple[range, ...] = ()
    conversation: int | None = None

    @property
    def block_count(self) -> int:
        return sum(map(len, self.blocks))


def runs_of_ids(ids: Iterable[int]) -> tuple[range, ...]:
    """The ids as maximal runs of consecutive ones.

    >>> runs_of_ids([4, 5, 6, 1, 2])
    (range(4, 7), range(1, 3))
    """
    runs: list[range] = []
    start = stop = 0
    for block in ids:
        if block != stop:
            if start != stop:
                runs.append(range(start, stop))
            start = block
        stop = block + 1
    if start != stop:
        runs.append(range(start, stop))
    return tuple(runs)
