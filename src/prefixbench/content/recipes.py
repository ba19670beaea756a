"""Recipes: for each request the numbers from which its prompt is joined, all computed at once.

A recipe is a pure function of the plan's row and of the labels (seed, data set, target, group,
request, retry).
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prefixbench.content.divergence import (
    MARKERS_PER_REQUEST,
    Divergences,
    draw_divergences,
    number_requests,
    numberings,
)
from prefixbench.content.draws import ContentLabels, Permutation, request_index
from prefixbench.content.master import MasterDraw, group_markers
from prefixbench.content.passages import Passages
from prefixbench.content.pool import Pool
from prefixbench.content.ring import Flags
from prefixbench.content.suffix import (
    PrefixReach,
    RequestDraws,
    SuffixLayout,
    choose_starts,
    lay_suffixes,
)
from prefixbench.content.tape import Positions
from prefixbench.content.template import Frame
from prefixbench.core.seeds import below

#: So many recipes are computed at once: beyond, arrays would only take memory.
_ROWS_AT_A_TIME = 1 << 16

#: Retry from which a request without a divergence block is told apart by markers (RFC 3.3.15,
#: step 3); before, it only begins with other samples (step 2).
MARKED_FROM_RETRY = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContentColumns:
    """The plan of all requests, one array entry a request; lengths in tokens from token 0.

    `group` numbers `group_ids`. A `divergence_len` of 0 lets the unique part begin with natural
    text. Rows that are not a whole data set say with `request` which of its requests they are;
    those numbers then take the place of numbers within groups.
    """

    group: Positions
    input_len: Positions
    planned_prefix_len: Positions
    divergence_len: Positions
    group_ids: list[str]
    request: Positions | None = None

    def __len__(self) -> int:
        return len(self.group)

    @property
    def requests(self) -> Positions:
        """Which request of the data set each row is."""
        if self.request is not None:
            return self.request
        return np.arange(len(self), dtype=np.int64)

    @property
    def sha256(self) -> str:
        """Digest of the rows and of the groups' names, in their order."""
        digest = sha256("".join(f"{len(name)}:{name}" for name in self.group_ids).encode())
        for column in (self.group, self.input_len, self.planned_prefix_len, self.divergence_len):
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()

    def part(self, rows: slice) -> ContentColumns:
        """Some of the rows."""
        return ContentColumns(
            group=self.group[rows],
            input_len=self.input_len[rows],
            planned_prefix_len=self.planned_prefix_len[rows],
            divergence_len=self.divergence_len[rows],
            group_ids=self.group_ids,
            request=self.requests[rows],
        )

    def check(self, frame: Frame) -> None:
        """ValueError for a row that no prompt can have; the planner never makes one."""
        room = self.input_len - frame.tail_len - self.planned_prefix_len - self.divergence_len
        wrong = (
            (self.planned_prefix_len < frame.head_len)
            | (self.divergence_len < 0)
            | (room < 0)
            | (room + self.divergence_len < 1)
        )
        if wrong.any():
            row = int(np.argmax(wrong))
            raise ValueError(
                f"request {row} cannot hold its head, prefix, unique part and tail:"
                f" input_len={self.input_len[row]} planned_prefix_len="
                f"{self.planned_prefix_len[row]} divergence_len={self.divergence_len[row]}"
            )


class Recipes(NamedTuple):
    """What some prompts are joined from, one array entry a prompt: numbers of tapes' pieces, and
    lengths in tokens.

    `prefix` counts content tokens of the group's master prefix.
    """

    group: Positions
    prefix: Positions
    marker_count: Positions
    first_marker: Positions
    second_marker: Positions
    filler_start: Positions
    filler_count: Positions
    opening_stop: Positions
    ring_start: Positions
    ring_stop: Positions
    last_filler_count: Positions


@dataclass(frozen=True, slots=True, eq=False)
class RecipeTable:
    """All recipes, one row each (44 bytes), and what was drawn for the groups."""

    rows: npt.NDArray[np.int32]
    exhausted: Flags
    masters: list[MasterDraw]

    def of(self, requests: Positions) -> Recipes:
        """The recipes of these requests, in this order."""
        return Recipes._make(self.rows[requests].T.astype(np.int64))

    def column(self, field: str) -> npt.NDArray[np.int32]:
        """One field of all recipes."""
        return self.rows[:, Recipes._fields.index(field)]


@dataclass(frozen=True, slots=True, eq=False)
class _Budgets:
    """Tokens of the unique part: markers, fillers of the divergence block, natural suffix."""

    markers: Positions
    fillers: Positions
    natural: Positions


def make_recipes(
    pool: Pool,
    passages: Passages,
    frame: Frame,
    columns: ContentColumns,
    labels: ContentLabels,
    retries: Positions,
) -> RecipeTable:
    """Recipes of all requests, in the order of the columns; a stretch of them at a time."""
    columns.check(frame)
    numbering = numberings(columns.group, columns.planned_prefix_len > frame.head_len)
    numbers = number_requests(numbering, columns.planned_prefix_len, columns.request, retries)
    masters = [
        _draw_master(group, pool, passages, columns.group_ids, labels)
        for group in range(len(columns.group_ids))
    ]
    reach = _prefix_reach(passages, columns, frame, masters)
    rows = np.empty((len(columns), len(Recipes._fields)), dtype=np.int32)
    exhausted = np.empty(len(columns), dtype=np.bool_)
    for start in range(0, len(columns), _ROWS_AT_A_TIME):
        part = slice(start, start + _ROWS_AT_A_TIME)
        own = columns.part(part)
        budgets = _share_unique_part(own, frame, retries[part])
        divergences = draw_divergences(
            numbering[part],
            numbers[part],
            labels=labels,
            group_ids=columns.group_ids,
            marker_count=len(pool.words.request_markers),
            filler_count=len(pool.words.fillers),
        )
        starts = choose_starts(
            passages.suffix,
            budgets.natural,
            _request_draws(own, labels, retries[part]),
            prefix_reach=reach.of(own.group) if reach else None,
            inside_sample=own.divergence_len == 0,
        )
        layout = lay_suffixes(passages.suffix, starts.positions, budgets.natural)
        prefix = own.planned_prefix_len - frame.head_len
        rows[part] = _rows(own.group, prefix, budgets, divergences, layout)
        exhausted[part] = starts.exhausted
    return RecipeTable(rows, exhausted, masters)


def _rows(
    group: Positions,
    prefix: Positions,
    budgets: _Budgets,
    divergences: Divergences,
    layout: SuffixLayout,
) -> npt.NDArray[np.int32]:
    """In the order of the fields of `Recipes`."""
    columns = (
        group,
        prefix,
        budgets.markers,
        divergences.first,
        divergences.second,
        divergences.filler_starts,
        budgets.fillers,
        layout.opening_stops,
        layout.starts,
        layout.stops,
        layout.filler_counts,
    )
    rows = np.empty((len(group), len(columns)), dtype=np.int32)
    for place, column in enumerate(columns):
        rows[:, place] = column
    return rows


def _share_unique_part(columns: ContentColumns, frame: Frame, retries: Positions) -> _Budgets:
    """A divergence block begins with two markers; one of a single token borrows the second one
    from the suffix, so that requests stay distinct past the number of markers. Natural text gets
    them too once other samples did not help."""
    divergence = columns.divergence_len
    room = columns.input_len - frame.tail_len - columns.planned_prefix_len
    is_marked = (divergence > 0) | (retries >= MARKED_FROM_RETRY)
    wanted = np.where(is_marked, MARKERS_PER_REQUEST, 0)
    markers = np.minimum(wanted, room)
    fillers = np.maximum(divergence - markers, 0)
    return _Budgets(markers, fillers, room - markers - fillers)


def _draw_master(
    group: int, pool: Pool, passages: Passages, group_ids: list[str], labels: ContentLabels
) -> MasterDraw:
    count = len(pool.words.group_markers)
    key = labels.key("master", group=group_ids[group])
    place = Permutation.draw(count, labels.key("group_markers"))(group % count)
    passage = passages.prefix
    first = 0 if passage.starts_at_first else below(passage.ring.sample_count, key, 0)
    return MasterDraw(
        markers=group_markers(place + group // count * count, count),
        filler_start=below(len(pool.words.fillers), key, 1),
        sample=first,
    )


def _request_draws(
    columns: ContentColumns, labels: ContentLabels, retries: Positions
) -> RequestDraws:
    keys = np.array(
        [labels.key("suffix", group=group_id) for group_id in columns.group_ids], dtype=np.uint64
    )
    return RequestDraws(keys[columns.group], request_index(columns.requests, retries))


def _prefix_reach(
    passages: Passages, columns: ContentColumns, frame: Frame, masters: list[MasterDraw]
) -> PrefixReach | None:
    """What the prefixes of each group read of the ring, where suffixes read the same one."""
    if not passages.share_ring:
        return None
    longest = np.zeros(len(columns.group_ids), dtype=np.int64)
    np.maximum.at(longest, columns.group, columns.planned_prefix_len - frame.head_len)
    return PrefixReach(np.array([master.sample for master in masters], dtype=np.int64), longest)
