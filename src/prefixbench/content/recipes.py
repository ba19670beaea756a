"""Recipes: for each request the numbers from which its prompt is joined, all computed at once.

A recipe is a pure function of the plan's row and of the labels (seed, data set, plan, group,
request, retry).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from prefixbench.content.divergence import (
    LATER_TURN,
    MARKERS_PER_REQUEST,
    Divergences,
    draw_divergences,
    number_requests,
)
from prefixbench.content.draws import ContentLabels, request_index
from prefixbench.content.master import MasterDraw
from prefixbench.content.nodes import draw_nodes
from prefixbench.content.passages import Passages
from prefixbench.content.pool import Pool
from prefixbench.content.ring import Flags
from prefixbench.content.suffix import (
    RequestDraws,
    SuffixLayout,
    SuffixStarts,
    choose_starts,
    lay_suffixes,
)
from prefixbench.content.tape import Positions
from prefixbench.content.template import Frame
from prefixbench.content.tree import MasterTree

#: So many recipes are computed at once: beyond, arrays would only take memory.
_ROWS_AT_A_TIME = 1 << 16

#: Retry from which a request without a divergence block is told apart by markers (RFC 3.3.15,
#: step 3); before, it only begins with other samples (step 2).
MARKED_FROM_RETRY = 3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Conversations:
    """Requests as turns: row i continues row i - `sessions`, the first so many rows begin one.

    `answer_len` are tokens of the server's own answer before each row, which a data set cannot
    hold; 0 where it holds the answers itself.
    """

    sessions: int
    answer_len: Positions

    @property
    def answers_are_served(self) -> bool:
        """Whether whole prompts are known only once the server has answered."""
        return bool(self.answer_len.any())


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ContentColumns:
    """The plan of all requests, one array entry a request; lengths in tokens from token 0.

    `group` numbers `group_ids`; with a `tree` groups share nodes of it. A `divergence_len` of 0
    lets the unique part begin with natural text. `planned_prefix_len` of a later turn is all that
    stands before its own text. Rows that are not a whole data set say with `request` which of its
    requests they are; those numbers then take the place of numbers within groups.
    """

    group: Positions
    input_len: Positions
    planned_prefix_len: Positions
    divergence_len: Positions
    group_ids: list[str]
    request: Positions | None = None
    tree: MasterTree | None = None
    turns: Conversations | None = None

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
        """Digest of the rows, of the groups' names in their order, and of what they share."""
        digest = sha256("".join(f"{len(name)}:{name}" for name in self.group_ids).encode())
        columns = [self.group, self.input_len, self.planned_prefix_len, self.divergence_len]
        if self.tree is not None:
            columns += [self.tree.paths, self.tree.begins]
        if self.turns is not None:
            columns.append(self.turns.answer_len)
        for column in columns:
            digest.update(column.astype("<i8").tobytes())
        return digest.hexdigest()

    @property
    def masters(self) -> MasterTree:
        """The tree of the master prefixes, of one level where groups share nothing."""
        return self.tree or MasterTree.of_groups(self.group_ids)

    @property
    def first_turns(self) -> slice:
        """Rows that begin with a master prefix; the others begin with another row."""
        return slice(None if self.turns is None else self.turns.sessions)

    def numbering(self, head_len: int) -> Positions:
        """The number of what each request leaves, which tells those apart that could meet.

        A node of the master prefixes, `NO_PREFIX` or `LATER_TURN`.
        """
        numbering = self.masters.node_of(self.group, self.planned_prefix_len - head_len)
        if self.turns is not None:
            numbering[self.turns.sessions :] = LATER_TURN
        return numbering

    def node_lengths(self, head_len: int) -> Positions:
        """Tokens of each node that some prompt holds."""
        tree, rows = self.masters, self.first_turns
        longest = np.zeros(len(tree.names), dtype=np.int64)
        prefix = self.planned_prefix_len[rows] - head_len
        for level in range(len(tree.begins)):
            nodes = tree.paths[self.group[rows], level]
            np.maximum.at(longest, nodes, tree.inside(level, prefix))
        return longest

    def part(self, rows: slice) -> ContentColumns:
        """Some of the rows, each for itself."""
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
        if self.turns is not None and frame.tail_len:
            raise ValueError("a turn that ends with a tail cannot be continued")
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

    `prefix` counts content tokens of the group's master prefix, in a later turn of its history.
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
    """All recipes, one row each (44 bytes), and what was drawn for the nodes of prefixes."""

    rows: npt.NDArray[np.int32]
    exhausted: Flags
    masters: list[MasterDraw]

    def of(self, requests: Positions) -> Recipes:
        """The recipes of these requests, in this order."""
        return Recipes._make(self.rows[requests].T.astype(np.int64))

    def ends_before(self, part: slice, sessions: int) -> SuffixStarts:
        """Where the turns before these rows stopped reading: there their own text goes on."""
        before = slice(part.start - sessions, part.stop - sessions)
        stops = self.rows[before, Recipes._fields.index("ring_stop")]
        return SuffixStarts(stops.astype(np.int64), self.exhausted[before])

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
    numbering = columns.numbering(frame.head_len)
    numbers = number_requests(numbering, columns.planned_prefix_len, columns.request, retries)
    tree = columns.masters
    lengths = columns.node_lengths(frame.head_len)
    nodes = draw_nodes(tree, lengths, pool.words, passages.prefix, labels)
    reach = nodes.reach if passages.share_ring else None
    reserved = _reserved(columns, frame)
    table = RecipeTable(
        rows=np.empty((len(columns), len(Recipes._fields)), dtype=np.int32),
        exhausted=np.empty(len(columns), dtype=np.bool_),
        masters=nodes.draws,
    )
    for part in _stretches(columns):
        own = columns.part(part)
        budgets = _share_unique_part(own, frame, retries[part])
        divergences = draw_divergences(
            numbering[part],
            numbers[part],
            labels=labels,
            node_names=tree.names,
            marker_count=len(pool.words.request_markers),
            filler_count=len(pool.words.fillers),
        )
        passage = passages.suffix
        if columns.turns is not None and part.start >= columns.turns.sessions:
            starts = table.ends_before(part, columns.turns.sessions)
            passage = passage.continued
        else:
            starts = choose_starts(
                passage,
                budgets.natural if reserved is None else reserved[part],
                _request_draws(own, labels, retries[part]),
                prefix_reach=reach.of(own.group) if reach else None,
                inside_sample=own.divergence_len == 0,
            )
        layout = lay_suffixes(passage, starts.positions, budgets.natural)
        prefix = own.planned_prefix_len - frame.head_len
        table.rows[part] = _rows(own.group, prefix, budgets, divergences, layout)
        table.exhausted[part] = starts.exhausted
    return table


def _stretches(columns: ContentColumns) -> Iterator[slice]:
    """Rows in turn, so many at once as memory wants, none together with what it continues."""
    turn = len(columns) if columns.turns is None else columns.turns.sessions
    for begin in range(0, len(columns), max(turn, 1)):
        end = min(begin + turn, len(columns))
        for start in range(begin, end, _ROWS_AT_A_TIME):
            yield slice(start, min(start + _ROWS_AT_A_TIME, end))


def _reserved(columns: ContentColumns, frame: Frame) -> Positions | None:
    """Tokens of natural text that a whole session may read, an entry a session."""
    if columns.turns is None:
        return None
    sessions = columns.turns.sessions
    last_len = np.empty(sessions, dtype=np.int64)
    for start in range(0, len(columns), sessions):
        lengths = columns.input_len[start : start + sessions]
        last_len[: len(lengths)] = lengths
    reserved: Positions = last_len - frame.tail_len - columns.planned_prefix_len[:sessions]
    return reserved


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


def _request_draws(
    columns: ContentColumns, labels: ContentLabels, retries: Positions
) -> RequestDraws:
    keys = np.array(
        [labels.key("suffix", group=group_id) for group_id in columns.group_ids], dtype=np.uint64
    )
    return RequestDraws(keys[columns.group], request_index(columns.requests, retries))
