"""Token sequences as runs of consecutive numbers.

Simulated prompts are long and mostly made of consecutive token numbers, so a few ranges stand for
thousands of tokens, and block identities can be taken a whole run at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from typing import overload


class TokenRuns(Sequence[int]):
    """A token sequence held as maximal runs: neighbours that continue each other are one run.

    >>> TokenRuns([range(5, 7), range(7, 9), range(1, 2)]).runs
    (range(5, 9), range(1, 2))
    """

    __slots__ = ("_len", "runs")

    def __init__(self, runs: Iterable[range]) -> None:
        merged: list[range] = []
        for run in runs:
            if merged and merged[-1].stop == run.start:
                merged[-1] = range(merged[-1].start, run.stop)
            elif run:
                merged.append(run)
        self.runs = tuple(merged)
        self._len = sum(map(len, merged))

    def __len__(self) -> int:
        return self._len

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(self.runs)

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        return list(self)[index]


def runs_of(tokens: Sequence[int]) -> tuple[range, ...] | None:
    """The runs of a sequence that is held as runs; None for any other sequence."""
    if isinstance(tokens, TokenRuns):
        return tokens.runs
    if isinstance(tokens, range) and tokens.step == 1:
        return (tokens,) if tokens else ()
    return None


def drop_first(tokens: Sequence[int]) -> Sequence[int]:
    """All tokens but the first, as runs where the sequence is held as runs.

    >>> list(drop_first(TokenRuns([range(5, 9)])))
    [6, 7, 8]
    """
    runs = runs_of(tokens)
    return tokens[1:] if runs is None else TokenRuns((runs[0][1:], *runs[1:]))


def all_runs_of(tokens: Sequence[int]) -> Iterable[range]:
    """Runs of any sequence; those of a mere list may continue each other."""
    runs = runs_of(tokens)
    return (range(token, token + 1) for token in tokens) if runs is None else runs
