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
from collections.abc import Mapping
from functools import cached_property, partial
from typing import Any

import numpy as np

from prefixbench.content.draws import ContentLabels
from prefixbench.content.master import Cut, MasterPrefix, lay_master
from prefixbench.content.passages import Passages, choose_passages
from prefixbench.content.pool import Pool
from prefixbench.content.recipes import ContentColumns, Recipe, RecipeTable, make_recipes
from prefixbench.content.tape import Ids, Positions, Stretch, escape, join_ids
from prefixbench.content.template import Frame

__all__ = ["Composer", "ContentColumns", "ContentLabels"]

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
        self._opening = escape(frame.opening)
        self._head = np.array(frame.head_ids, dtype=np.uint32)
        self._tail = np.array(frame.tail_ids, dtype=np.uint32)
        self._latest = (0, self.recipes.recipe(0))

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

    def prompt_ids(self, request: int) -> Ids:
        """The whole sequence the server sees, head and tail included."""
        recipe = self._recipe(request)
        shared = self._masters.of(recipe.group).ids[: recipe.prefix]
        unique = join_ids(self._unique_part(recipe))
        return np.concatenate([self._head, shared, unique, self._tail])

    def prompt_json(self, request: int) -> bytes:
        """The text to send (a prompt, or the content of a message), JSON-escaped, unquoted."""
        recipe = self._recipe(request)
        master = self._masters.of(recipe.group)
        shared = master.view[: master.cuts[recipe.prefix].text_bytes]
        unique = [stretch.text for stretch in self._unique_part(recipe)]
        return b"".join([self._opening, shared, *unique])

    def prefix_chars(self, request: int) -> int:
        """Characters of the text to send that hold the planned prefix."""
        return len(self.frame.opening) + self._cut(self._recipe(request)).characters

    def sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora that this prompt holds a part of, in order."""
        return [*self.prefix_sample_ids(request), *self.suffix_sample_ids(request)]

    def prefix_sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora in the planned prefix."""
        recipe, passage = self._recipe(request), self.passages.prefix
        cut = self._cut(recipe)
        begin = int(passage.ring.sample_position(self.recipes.masters[recipe.group].sample))
        opened = passage.opening.rows_in(0, cut.opening_stop) if passage.opening else []
        return opened + passage.ring.rows_in(begin, cut.ring_stop)

    def suffix_sample_ids(self, request: int) -> list[int]:
        """Rows of the corpora in the natural suffix."""
        recipe, passage = self._recipe(request), self.passages.suffix
        opened = passage.opening.rows_in(0, recipe.opening_stop) if passage.opening else []
        return opened + passage.ring.rows_in(recipe.ring_start, recipe.ring_stop)

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

    def _cut(self, recipe: Recipe) -> Cut:
        return self._masters.of(recipe.group).cuts[recipe.prefix]

    def _unique_part(self, recipe: Recipe) -> list[Stretch]:
        words, passage = self.pool.words, self.passages.suffix
        numbers = (recipe.first_marker, recipe.second_marker)[: recipe.marker_count]
        stretches = [words.request_markers.stretch(number, number + 1) for number in numbers]
        stretches += words.fillers.run(recipe.filler_start, recipe.filler_count)
        if passage.opening is not None:
            stretches += passage.opening.stretches(0, recipe.opening_stop)
        stretches += passage.ring.stretches(recipe.ring_start, recipe.ring_stop)
        after = recipe.filler_start + recipe.filler_count
        return stretches + words.fillers.run(after, recipe.last_filler_count)

    def _recipe(self, request: int) -> Recipe:
        if self._latest[0] != request:
            self._latest = (request, self.recipes.recipe(request))
        return self._latest[1]


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
