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
from typing import Any

import numpy as np
import orjson

from prefixbench.content.batch import PromptBatch
from prefixbench.content.conversation_batch import ConversationBatch
from prefixbench.content.draws import ContentLabels
from prefixbench.content.master import Cut, MasterPrefix
from prefixbench.content.passages import Passages, choose_passages
from prefixbench.content.pool import Pool
from prefixbench.content.recipes import ContentColumns, RecipeTable, make_recipes
from prefixbench.content.shelf import MasterShelf
from prefixbench.content.tape import Ids, Positions
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
