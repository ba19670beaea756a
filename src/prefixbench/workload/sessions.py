"""Multi-turn sessions: requests that begin with the whole request before them.

Rows are turn by turn: row i is turn i // S of session i % S, for S sessions. A later turn finds
its history, whatever the plan: only first turns choose how deep they follow their group, so the
hits of a data set lie between the forced ones and those of the largest first prefixes.

Worked example at block size 16: a first turn of 20 tokens with an answer of 12 leaves 31 tokens
(the last one is never computed), of which the next turn finds one block, 16 tokens.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from prefixbench.config.sessions import Answers
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lengths import request_id


@dataclass(frozen=True, kw_only=True)
class Turns:
    """Lengths of all turns in tokens; `history_len` is what a turn repeats of the one before it
    and the server has stored by then, 0 for a first turn.
    """

    input_len: IntArray
    history_len: IntArray


def session_count(request_count: int, turns: int) -> int:
    """Sessions of so many requests; the last turn of some may be missing."""
    return -(-request_count // turns)


def session_id(number: int) -> str:
    """The name of a session.

    >>> session_id(7)
    'session_000007'
    """
    return f"session_{number:06d}"


def continued_request(request: int, sessions: int) -> str | None:
    """The request that a turn continues, by name; None for a first turn."""
    return None if request < sessions else request_id(request - sessions)


def grow(first_len: IntArray, new_len: IntArray, output_len: IntArray, answers: Answers) -> Turns:
    """Every turn is its predecessor, the answer, and new text (`new_len`, an entry a later turn).

    `first_len` has an entry a session, `output_len` one a request.
    """
    sessions, count = len(first_len), len(output_len)
    input_len = np.empty(count, np.int64)
    history_len = np.zeros(count, np.int64)
    input_len[:sessions] = first_len
    for start in range(sessions, count, sessions):
        stop = min(start + sessions, count)
        before = slice(start - sessions, stop - sessions)
        answer = output_len[before]
        input_len[start:stop] = input_len[before] + answer + new_len[before]
        # Of an answer the server gave, all but the last token is stored; of others nothing is.
        kept = answer - 1 if answers is Answers.SERVED else 0
        history_len[start:stop] = input_len[before] + kept
    return Turns(input_len=input_len, history_len=history_len)
