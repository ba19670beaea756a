"""Many turns of conversations at once, each whole prompt a join of the turns before it."""

from __future__ import annotations

from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from prefixbench.content.batch import PromptBatch
from prefixbench.content.layout import TextPart
from prefixbench.content.recipes import Conversations
from prefixbench.content.tape import Ids, Positions, unescape

if TYPE_CHECKING:
    from prefixbench.content.compose import Composer


class ConversationBatch(PromptBatch):
    """As `PromptBatch`, for turns: each prompt is its session's texts one after the other.

    Where answers come from the server, a filler word stands for each of their tokens in whole
    prompts, and a data set holds of a later turn only what is behind the answer. Rows of corpora
    are those that the turn itself brings.
    """

    def __init__(self, composer: Composer, requests: Positions, turns: Conversations) -> None:
        turn = requests // turns.sessions
        stops = np.cumsum(turn + 1)
        starts = stops - turn - 1
        numbers = np.arange(stops[-1] if len(stops) else 0) - np.repeat(starts, turn + 1)
        rows = np.repeat(requests % turns.sessions, turn + 1) + numbers * turns.sessions
        super().__init__(composer, rows)
        self._is_served = turns.answers_are_served
        self._answer_len = turns.answer_len[rows].tolist()
        self._is_first = (numbers == 0).tolist()
        self._spans = list(zip(starts.tolist(), stops.tolist(), strict=True))

    def __len__(self) -> int:
        return len(self._spans)

    def texts(self) -> list[TextPart]:
        filler = self._composer.pool.words.warmup_filler.text.encode()
        turns = zip(self._answer_len, self._own_texts, strict=True)
        whole = [filler * answer_len + text for answer_len, text in turns]
        return [[b"".join(whole[start:stop]) for start, stop in self._spans]]

    def stored_texts(self) -> list[TextPart]:
        if not self._is_served:
            return self.texts()
        return [[self._own_texts[stop - 1] for _, stop in self._spans]]

    def ids(self) -> list[Ids]:
        filler = self._composer.pool.words.warmup_filler.id
        answers = [np.full(length, filler, dtype=np.uint32) for length in self._answer_len]
        whole = [(answer, ids) for answer, ids in zip(answers, self._own_ids, strict=True)]
        return [
            np.concatenate(list(chain.from_iterable(whole[start:stop])))
            for start, stop in self._spans
        ]

    def stored_ids(self) -> list[Ids]:
        if not self._is_served:
            return self.ids()
        return [self._own_ids[stop - 1] for _, stop in self._spans]

    def prefix_chars(self) -> list[int]:
        firsts = super().prefix_chars()
        own = [len(unescape(text)) for text in self._own_texts]
        return [
            firsts[start]
            if stop - start == 1
            else (not self._is_served) * sum(own[start : stop - 1])
            for start, stop in self._spans
        ]

    def prefix_rows(self) -> list[bytes]:
        return self._of_last(super().prefix_rows())

    def suffix_rows(self) -> list[bytes]:
        return self._of_last(super().suffix_rows())

    def _of_last(self, rows: list[bytes]) -> list[bytes]:
        return [rows[stop - 1] for _, stop in self._spans]

    @cached_property
    def _own_texts(self) -> list[bytes]:
        """What each turn brings itself: a first one all of it, a later one its unique part."""
        turns = zip(self._is_first, zip(*super().texts(), strict=True), strict=True)
        return [b"".join(parts if is_first else parts[2:]) for is_first, parts in turns]

    @cached_property
    def _own_ids(self) -> list[Ids]:
        unique = zip(*[slot.ids() for slot in self._slots], strict=True)
        head = self._composer.head_ids
        return [
            np.concatenate([head, master.ids[:length], *own] if is_first else own)
            for (master, _), length, own, is_first in zip(
                self._cuts, self._recipes.prefix.tolist(), unique, self._is_first, strict=True
            )
        ]

    @cached_property
    def _named_prefixes(self) -> list[tuple[int, int]]:
        prefix = np.where(self._is_first, self._recipes.prefix, 0)
        return list(zip(self._recipes.group.tolist(), prefix.tolist(), strict=True))
