"""The composer: every prompt of a data set, one at a time, exact by construction.

    [0, h)                     head: constant (BOS, template head, opening word)
    [h, P)                     the group's master prefix
    [P, P + divergence_len)    request markers, then fillers
    [.., input_len - t)        natural suffix, then fillers
    [input_len - t, input_len) tail: constant

A prompt is a join of slices of tapes. Its content is a function of the labels (seed, data set,
target, group, request, retry) alone: the order of calls does not matter, nor how many composers
share the work.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from operator import add
from typing import Any

import numpy as np
import orjson

from prefixbench.content.draws import ContentLabels
from prefixbench.content.layout import TextPart, lay_unique_parts
from prefixbench.content.master import Cut, MasterPrefix, lay_master
from prefixbench.content.passages import Passage, Passages, choose_passages
from prefixbench.content.pool import Pool
from prefixbench.content.recipes import ContentColumns, Recipes, RecipeTable, make_recipes
from prefixbench.content.tape import Ids, Positions, escape
from prefixbench.content.template import Frame

__all__ = ["Composer", "ContentColumns", "ContentLabels"]

_BATCH = 256

#: Bytes of master prefixes that a composer keeps; those beyond are laid anew when needed.
MASTER_CACHE_BYTES = 64 << 20


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
        self._masters = _MasterShelf(self)
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
        return PromptBatch(self, self.recipes.of(requests))

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
        """Head and master prefix of a group, as far as its longest planned prefix."""
        return np.concatenate([self._head, self._masters.of(group).ids])

    @property
    def head_ids(self) -> Ids:
        return self._head

    @property
    def groups_with_prefix(self) -> list[int]:
        """Groups of which some request has a prefix beyond the head."""
        return [group for group, cuts in enumerate(self.cuts_by_group) if cuts.any()]

    @property
    def exhausted_count(self) -> int:
        """Requests that repeat a sample because the corpus has no more."""
        return int(np.count_nonzero(self.recipes.exhausted))

    @cached_property
    def cuts_by_group(self) -> list[Positions]:
        """The content lengths at which each master prefix is cut."""
        prefix = self.columns.planned_prefix_len - self.frame.head_len
        order = np.argsort(self.columns.group, kind="stable")
        bounds = np.searchsorted(
            self.columns.group[order], np.arange(1, len(self.columns.group_ids))
        )
        return [np.unique(prefix[members]) for members in np.split(order, bounds)]

    @property
    def tail_ids(self) -> Ids:
        return self._tail

    def master_and_cut(self, group: int, prefix: int) -> tuple[MasterPrefix, Cut]:
        """The master prefix of a group and where a prefix of so many content tokens ends in it."""
        master = self._masters.of(group)
        return master, master.cuts[prefix]


class PromptBatch:
    """Prompts of a composer, as lists in the order in which they were asked for."""

    def __init__(self, composer: Composer, recipes: Recipes) -> None:
        self._composer = composer
        self._recipes = recipes
        self._slots = lay_unique_parts(recipes, composer.pool.words, composer.passages.suffix)

    def __len__(self) -> int:
        return len(self._recipes.group)

    def texts(self) -> list[TextPart]:
        """Texts to send, JSON-escaped, unquoted, part by part; each is the join of its entries."""
        opening = escape(self._composer.frame.opening)
        shared = [master.view[: cut.text_bytes] for master, cut in self._cuts]
        return [[opening] * len(self), shared, *(slot.texts() for slot in self._slots)]

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

    def prefix_rows(self) -> list[bytes]:
        """Rows in each planned prefix: JSON numbers, each with a comma behind it."""
        cuts = [cut for _, cut in self._cuts]
        return self._rows(
            self._composer.passages.prefix,
            np.array([cut.opening_stop for cut in cuts]),
            np.array([master.cuts[0].ring_stop for master, _ in self._cuts]),
            np.array([cut.ring_stop for cut in cuts]),
        )

    def suffix_rows(self) -> list[bytes]:
        """Rows in each natural suffix, likewise."""
        own = self._recipes
        passage = self._composer.passages.suffix
        return self._rows(passage, own.opening_stop, own.ring_start, own.ring_stop)

    @staticmethod
    def _rows(
        passage: Passage, opened: Positions, starts: Positions, stops: Positions
    ) -> list[bytes]:
        rows = passage.ring.rows_in(starts, stops)
        if passage.opening is None:
            return rows
        return list(map(add, passage.opening.rows_in(np.zeros_like(opened), opened), rows))

    @cached_property
    def _cuts(self) -> list[tuple[MasterPrefix, Cut]]:
        own = self._recipes
        find = self._composer.master_and_cut
        return list(map(find, own.group.tolist(), own.prefix.tolist()))


def _numbers(rows: list[bytes]) -> list[int]:
    """The JSON numbers of the first prompt."""
    numbers: list[int] = orjson.loads(b"[%b]" % rows[0].strip(b"[,]"))
    return numbers


class _MasterShelf:
    """Master prefixes as they are asked for; the least recently used leave a full shelf."""

    def __init__(self, composer: Composer) -> None:
        self._composer = composer
        self._laid: OrderedDict[int, MasterPrefix] = OrderedDict()
        self._bytes = 0

    def of(self, group: int) -> MasterPrefix:
        master = self._laid.get(group)
        if master is None:
            return self._lay(group)
        self._laid.move_to_end(group)
        return master

    def _lay(self, group: int) -> MasterPrefix:
        composer = self._composer
        master = lay_master(
            composer.recipes.masters[group],
            composer.cuts_by_group[group].tolist(),
            composer.passages.prefix,
            composer.pool.words,
        )
        self._laid[group] = master
        self._bytes += master.size_bytes
        while self._bytes > MASTER_CACHE_BYTES and len(self._laid) > 1:
            _, oldest = self._laid.popitem(last=False)
            self._bytes -= oldest.size_bytes
        return master


def _retry_array(retries: Mapping[int, int] | Positions | None, count: int) -> Positions:
    if isinstance(retries, np.ndarray):
        return retries
    array = np.zeros(count, dtype=np.int64)
    for request, retry in (retries or {}).items():
        array[request] = retry
    return array
