"""The composer: every prompt of a data set, one at a time, exact by construction.

    [0, h)                     head: constant (BOS, template head, opening word)
    [h, P)                     the group's master prefix
    [P, P + divergence_len)    request markers, then fillers
    [.., input_len - t)        natural suffix, then fillers
    [input_len - t, input_len) tail: constant

A prompt is a join of slices of tapes. Its content is a function of the labels (seed, data set,
plan, group, request, retry) alone: the order of calls does not matter, nor how many composers
share the work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from itertools import chain
from typing import Any

import numpy as np
import orjson

from prefixbench.content.draws import ContentLabels
from prefixbench.content.layout import TextPart, lay_unique_parts
from prefixbench.content.master import Cut, MasterPrefix
from prefixbench.content.passages import Passages, choose_passages
from prefixbench.content.pool import Pool
from prefixbench.content.recipes import ContentColumns, Conversations, RecipeTable, make_recipes
from prefixbench.content.shelf import MasterShelf, rows_of_cuts
from prefixbench.content.tape import Ids, Positions, escape, unescape
from prefixbench.content.template import Frame

__all__ = ["Composer", "ContentColumns", "ContentLabels"]

_BATCH = 256


class Composer:
    """Composes the prompts of a plan from a pool.

    `retries` says of requests (a mapping, or an array for all) how often they were drawn before;
    another value draws another content for that request alone.
    """

    def __init__(
        self,
        pool: Pool,
        frame: Frame,
        columns: ContentColumns,
        labels: ContentLabels,
        *,
        passages: Passages | None = None,
        retries: Mapping[int, int] | Positions | None = None,
    ) -> None:
        self.pool = pool
        self.frame = frame
        self.columns = columns
        self.labels = labels
        self.passages = passages or choose_passages(pool, labels)
        self.retries = _retry_array(retries, len(columns))
        self.recipes: RecipeTable = make_recipes(
            pool, self.passages, frame, columns, labels, self.retries
        )
        self._masters = MasterShelf(
            self.recipes.masters, columns, frame.head_len, self.passages.prefix, pool.words
        )
        self._head = np.array(frame.head_ids, dtype=np.uint32)
        self._tail = np.array(frame.tail_ids, dtype=np.uint32)

    def __len__(self) -> int:
        return len(self.columns)

    def __reduce__(self) -> tuple[Any, ...]:
        """As its inputs: another process computes the same recipes and lays its own masters."""
        make = partial(Composer, passages=self.passages, retries=self.retries)
        return make, (self.pool, self.frame, self.columns, self.labels)

    def with_retries(self, retries: Mapping[int, int] | Positions) -> Composer:
        """The same data set, with these requests drawn anew."""
        return Composer(
            self.pool,
            self.frame,
            self.columns,
            self.labels,
            passages=self.passages,
            retries=retries,
        )

    def batch(self, requests: Positions) -> PromptBatch:
        """Some prompts at once, in this order: far cheaper than one by one."""
        if self.columns.turns is None:
            return PromptBatch(self, requests)
        return ConversationBatch(self, requests, self.columns.turns)

    def each_ids(self, requests: Positions) -> Iterator[Ids]:
        """Whole sequences of many prompts, a batch of them in memory at a time."""
        for start in range(0, len(requests), _BATCH):
            yield from self.batch(requests[start : start + _BATCH]).ids()

    def prompt_ids(self, request: int) -> Ids:
        """The whole sequence the server sees, head and tail included."""
        return self.batch(np.array([request])).ids()[0]

    def prompt_json(self, request: int) -> bytes:
        """The text to send (a prompt, or the content of a message), JSON-escaped, unquoted."""
        return b"".join(part[0] for part in self.batch(np.array([request])).texts())

    def prefix_chars(self, request: int) -> int:
        """Characters of the text to send that hold the planned prefix."""
        return self.batch(np.array([request])).prefix_chars()[0]

    def sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora that this prompt holds a part of, in order."""
        return _numbers(self.batch(np.array([request])).sample_ids())

    def prefix_sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora in the planned prefix."""
        return _numbers(self.batch(np.array([request])).prefix_rows())

    def suffix_sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora in the natural suffix."""
        return _numbers(self.batch(np.array([request])).suffix_rows())

    def master_ids(self, group: int) -> Ids:
        """Head and master prefix of a group, as far as some planned prefix goes."""
        return np.concatenate([self._head, self._masters.path(group).ids])

    def ids_left_by(self, numbering: int) -> Ids:
        """What requests of a numbering could follow beyond their planned prefixes."""
        if numbering < 0:
            return self._head
        group, level = self.columns.masters.group_below(numbering)
        end = self.columns.masters.content_end(level)
        path = self._masters.path(group).ids[:end]
        return np.concatenate([self._head, path])

    def reaching(self, numbering: int) -> Positions:
        """The requests that hold what those of a numbering have followed."""
        if numbering < 0:
            return np.flatnonzero(self.numbering == numbering)
        columns, tree = self.columns, self.columns.masters
        _, level = tree.group_below(numbering)
        content = columns.planned_prefix_len[columns.first_turns] - self.frame.head_len
        nodes = tree.paths[columns.group[columns.first_turns], level]
        return np.flatnonzero((nodes == numbering) & (content > tree.begins[level]))

    @property
    def head_ids(self) -> Ids:
        return self._head

    @cached_property
    def numbering(self) -> Positions:
        """As `ContentColumns.numbering`."""
        return self.columns.numbering(self.frame.head_len)

    @property
    def nodes_with_text(self) -> list[int]:
        """Nodes of master prefixes of which some prompt holds a part."""
        lengths = self.columns.node_lengths(self.frame.head_len)
        nodes: list[int] = np.flatnonzero(lengths).tolist()
        return nodes

    @cached_property
    def repeating_count(self) -> int:
        """Requests that repeat a sample because the corpus has no more."""
        prefix = self.columns.planned_prefix_len - self.frame.head_len
        is_long = prefix > self.passages.prefix.ring.token_count
        requests = np.flatnonzero(self.recipes.exhausted | is_long)
        starts = range(0, len(requests), _BATCH)
        return sum(self.batch(requests[at : at + _BATCH]).repeating_count() for at in starts)

    @property
    def tail_ids(self) -> Ids:
        return self._tail

    def master_and_cut(self, group: int, prefix: int) -> tuple[MasterPrefix, Cut]:
        """The master prefix of a group and where a prefix of so many content tokens ends in it."""
        master = self._masters.path(group)
        return master, master.cuts[prefix]


class PromptBatch:
    """Prompts of a composer, as lists in the order in which they were asked for."""

    def __init__(self, composer: Composer, requests: Positions) -> None:
        self._composer = composer
        self._recipes = composer.recipes.of(requests)
        self._slots = lay_unique_parts(
            self._recipes, composer.pool.words, composer.passages.suffix, composer.frame.boundary
        )

    def __len__(self) -> int:
        return len(self._recipes.group)

    @property
    def has_system_prompts(self) -> bool:
        """Whether texts are those of two messages, a system prompt and the user's."""
        return bool(self._composer.frame.boundary_ids)

    def stored_texts(self) -> list[TextPart]:
        """The part of each text that a data set holds: all of it."""
        return self.texts()

    def stored_ids(self) -> list[Ids]:
        """As `stored_texts`, as ids."""
        return self.ids()

    def texts(self) -> list[TextPart]:
        """Texts to send, JSON-escaped, unquoted, part by part; each is the join of its entries.

        Where a system prompt holds the prefix, two contents with what parts them in JSON.
        """
        opening = escape(self._composer.frame.opening)
        shared = [master.view[: cut.text_bytes] for master, cut in self._cuts]
        return [[opening] * len(shared), shared, *(slot.texts() for slot in self._slots)]

    def ids(self) -> list[Ids]:
        """Whole sequences as the server sees them, head and tail included."""
        composer = self._composer
        head, tail = composer.head_ids, composer.tail_ids
        masters = [master.ids for master, _ in self._cuts]
        lengths = self._recipes.prefix.tolist()
        shared = [ids[:length] for ids, length in zip(masters, lengths, strict=True)]
        unique = [slot.ids() for slot in self._slots]
        return [np.concatenate([head, *own, tail]) for own in zip(shared, *unique, strict=True)]

    def prefix_chars(self) -> list[int]:
        """Characters of each text that hold the planned prefix."""
        opening = len(self._composer.frame.opening)
        return [opening + cut.characters for _, cut in self._cuts]

    def sample_ids(self) -> list[bytes]:
        """Rows of the corpora that each prompt holds a part of, as JSON lists."""
        both = zip(self.prefix_rows(), self.suffix_rows(), strict=True)
        return [b"[%b]" % (prefix + suffix)[:-1] for prefix, suffix in both]

    def repeating_count(self) -> int:
        """Prompts that hold a row twice; rows of two corpora are never the same."""
        joined = self._composer.passages.share_ring
        repeating = 0
        for prefix, suffix in zip(self.prefix_rows(), self.suffix_rows(), strict=True):
            parts = [prefix + suffix] if joined else [prefix, suffix]
            rows = [part.split(b",")[:-1] for part in parts]
            repeating += any(len(set(part)) < len(part) for part in rows)
        return repeating

    def prefix_rows(self) -> list[bytes]:
        """Rows in each planned prefix: JSON numbers, each with a comma behind it."""
        cuts = [cut for _, cut in self._cuts]
        own = rows_of_cuts(self._composer.passages.prefix, cuts)
        return [cut.reading.rows_before + rows for cut, rows in zip(cuts, own, strict=True)]

    def suffix_rows(self) -> list[bytes]:
        """Rows in each natural suffix, likewise."""
        own = self._recipes
        passage = self._composer.passages.suffix
        return passage.rows_in(own.opening_stop, own.ring_start, own.ring_stop)

    @cached_property
    def _cuts(self) -> list[tuple[MasterPrefix, Cut]]:
        own = self._recipes
        find = self._composer.master_and_cut
        return list(map(find, own.group.tolist(), own.prefix.tolist()))


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
    def _cuts(self) -> list[tuple[MasterPrefix, Cut]]:
        own = self._recipes
        find = self._composer.master_and_cut
        prefixes = np.where(self._is_first, own.prefix, 0)
        return list(map(find, own.group.tolist(), prefixes.tolist()))


def _numbers(rows: list[bytes]) -> list[int]:
    """The JSON numbers of the first prompt."""
    numbers: list[int] = orjson.loads(b"[%b]" % rows[0].strip(b"[,]"))
    return numbers


def _retry_array(retries: Mapping[int, int] | Positions | None, count: int) -> Positions:
    if isinstance(retries, np.ndarray):
        return retries
    array = np.zeros(count, dtype=np.int64)
    for request, retry in (retries or {}).items():
        array[request] = retry
    return array
