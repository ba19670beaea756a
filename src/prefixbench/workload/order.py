"""The order of sending (RFC 3.3.9): first inside each group, then across groups.

Inside a group the members are listed by one word; across groups a pattern of slots says whose next
member is sent. Every word is a sort, so an order costs O(n log n) and depends on labels alone. In
an unlimited cache the order changes who hits, not how much (planning theory, section 2).

Equal prefixes are told apart by input length, then by row. So where prefixes grow with the lengths
(as those of `by_size` do) an order by prefix is known before the prefixes are.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

import numpy as np
import numpy.typing as npt

from prefixbench.config.order import OrderWord
from prefixbench.core.seeds import mixed, stream
from prefixbench.workload.columns import IntArray, Workload, sorted_by, starts_of

#: Words that list a group's members by a column, ascending or descending.
_BY_LENGTH = {OrderWord.INPUT_LEN_ASC: 1, OrderWord.INPUT_LEN_DESC: -1}
_BY_PREFIX = {OrderWord.PREFIX_LEN_ASC: 1, OrderWord.PREFIX_LEN_DESC: -1}


@dataclass(frozen=True, kw_only=True)
class Arrangement:
    """The two words of an order, whether each group's leader goes first, and is waited for.

    A reuse distance, in requests, stands in place of the word across groups.
    """

    within: OrderWord
    across: OrderWord
    reuse_distance: int | None = None
    leaders_first: bool = False
    barrier: bool = False

    @property
    def needs_prefixes(self) -> bool:
        """Whether the order depends on the planned prefixes, not on lengths and groups alone."""
        return self.leaders_first or self.within in _BY_PREFIX or self.across_by_prefix

    @property
    def across_by_prefix(self) -> bool:
        """Whether the planned prefixes say which group is next."""
        return self.reuse_distance is None and self.across in _BY_PREFIX


def by_size(workload: Workload, prefix_blocks: IntArray) -> IntArray:
    """Rows from the smallest to the largest prefix; equal ones by input length, then by row.

    All turns of a session stand where its first one does: only that one's prefix is planned.
    """
    first_turns = workload.first_turns
    count = first_turns.request_count
    rising = np.lexsort((first_turns.input_len, prefix_blocks[:count]))
    if workload.session_count is None:
        return rising
    return np.argsort(np.resize(positions(rising), workload.request_count), kind="stable")


def arrange(
    workload: Workload, arrangement: Arrangement, seed: int, prefix_blocks: IntArray
) -> IntArray:
    """Row numbers in sending order.

    `prefix_blocks` is read by the words prefix_len_* and by leaders first alone.
    """
    members = _members(workload, arrangement.within, seed, prefix_blocks)
    if arrangement.reuse_distance is not None:
        slots = _in_lanes(workload.group_sizes, arrangement.reuse_distance)
    else:
        slots = _slots(workload, arrangement.across, seed, members, prefix_blocks)
    order = np.empty(workload.request_count, np.int64)
    # Slot k of a group takes the group's k-th member.
    order[sorted_by(slots, len(workload.group_ids))] = members
    if arrangement.leaders_first:
        order = _leaders_first(order, workload, prefix_blocks)
    sessions = workload.session_count
    return order if sessions is None else turns_in_turn(order, sessions)


def _members(workload: Workload, word: OrderWord, seed: int, prefix_blocks: IntArray) -> IntArray:
    """Rows sorted by group, inside a group by the word."""
    rows = np.arange(workload.request_count)
    column = _sort_column(workload, word, prefix_blocks)
    if word is OrderWord.SHUFFLE:
        by_word = np.argsort(_random_bits(seed, "order.within", len(rows)), kind="stable")
    elif column is not None:
        by_word = np.argsort(column, kind="stable")
    else:
        by_word = rows
    return by_word[sorted_by(workload.group[by_word], len(workload.group_ids))]


def _sort_column(workload: Workload, word: OrderWord, prefix_blocks: IntArray) -> IntArray | None:
    if word in _BY_LENGTH:
        return _BY_LENGTH[word] * workload.input_len
    if word in _BY_PREFIX:
        return _BY_PREFIX[word] * positions(by_size(workload, prefix_blocks))
    return None


def _slots(
    workload: Workload,
    word: OrderWord,
    seed: int,
    members: IntArray,
    prefix_blocks: IntArray,
) -> IntArray:
    """The group number that each place of the order belongs to."""
    group = workload.group
    match word:
        case OrderWord.SEQUENTIAL:
            return group
        case OrderWord.SHUFFLE:
            return group[np.argsort(_random_bits(seed, "order.across", len(group)), kind="stable")]
        case OrderWord.GROUPED:
            return np.sort(group, kind="stable")
        case OrderWord.INTERLEAVE:
            return group[np.lexsort((group, workload.rank))]
        case OrderWord.WEIGHTED_INTERLEAVE:
            # The k-th of n members stands at (2k + 1) / 2n of the run: traffic in proportion.
            place = (2 * workload.rank + 1) / (2 * workload.group_sizes[group])
            return group[np.lexsort((group, place))]
        case OrderWord.LAG_ROBUST:
            return _spaced(workload.group_sizes)
        case _:
            column = _sort_column(workload, word, prefix_blocks)
            assert column is not None
            return _merged(group[members], column[members])


def _merged(group: IntArray, column: IntArray) -> IntArray:
    """Always the group whose next member is smallest: a merge of the groups' lists.

    A merge emits a member as soon as all larger ones before it in its own list are out, so it is
    a sort by the running maximum of each list.
    """
    low = int(column.min(initial=0))
    span = int(column.max(initial=0)) - low + 1
    running = np.maximum.accumulate(group * span + (column - low)) - group * span
    return group[np.lexsort((group, running))]


def _spaced(group_sizes: IntArray) -> IntArray:
    """Slots in which members of a group stand as far apart as the group sizes allow.

    As many rows as the largest group has members; the largest groups have one member a row, the
    others fill all rows but the last, one after the other. No group has two members in a row and
    a group's members keep their column, so the least distance is the length of the shortest row:
    floor((n - m) / (rows - 1)) for m groups of the largest size, which no order can exceed.
    """
    by_size = np.argsort(-group_sizes, kind="stable")
    filled = np.repeat(by_size, group_sizes[by_size])
    rows = int(group_sizes.max())
    in_every_row = int((group_sizes == rows).sum()) * rows
    place = np.arange(len(filled))
    row = np.where(place < in_every_row, place % rows, (place - in_every_row) % max(rows - 1, 1))
    return filled[np.argsort(row, kind="stable")]


def _in_lanes(group_sizes: IntArray, lanes: int) -> IntArray:
    """Slots in which requests of a group stand `lanes` apart, as far as the group sizes allow.

    The run is a table with a column a lane, sent row by row. Groups fill lane after lane, the
    largest first, so each stands in one lane, or in two where it passes the end of one. A group
    that is larger than a lane fills several: it has to come more often. Lanes that are filled one
    after the other lie far apart, so that such a group is spread.
    """
    count = int(group_sizes.sum())
    lanes = min(lanes, count)
    by_size = np.argsort(-group_sizes, kind="stable")
    filled = np.repeat(by_size, group_sizes[by_size])
    lane_of_turn = np.arange(lanes) * _stride(lanes) % lanes
    # The first lanes are one row longer where the run is no whole number of rows.
    lengths = (count // lanes + (np.arange(lanes) < count % lanes))[lane_of_turn]
    lane = np.repeat(lane_of_turn, lengths)
    row = np.arange(count) - np.repeat(starts_of(lengths), lengths)
    return filled[np.argsort(row * lanes + lane)]


def _stride(lanes: int) -> int:
    """About a golden section of the lanes, and without a common divisor."""
    stride = max(1, round(lanes * 0.618))
    while gcd(stride, lanes) > 1:
        stride += 1
    return stride


def _leaders_first(order: IntArray, workload: Workload, prefix_blocks: IntArray) -> IntArray:
    """Move each group's largest prefix to the front, leaders in the order they had."""
    first_turns = workload.first_turns
    rising = by_size(first_turns, prefix_blocks[: first_turns.request_count])
    by_group = rising[sorted_by(workload.group[rising], len(workload.group_ids))]
    last = np.flatnonzero(np.diff(workload.group[by_group], append=-1))
    leads = np.zeros(len(order), bool)
    leads[by_group[last]] = True
    return np.concatenate((order[leads[order]], order[~leads[order]]))


def turns_in_turn(order: IntArray, sessions: int) -> IntArray:
    """The same order, in which each session's requests take its places turn by turn.

    Rows are turn by turn, so every column of so many sessions is one session.
    """
    count = len(order)
    places = np.full(-(-count // sessions) * sessions, count, np.int64)
    places[:count] = positions(order)
    # Turns that are missing come last, in the rows and among the places.
    ascending = np.sort(places.reshape(-1, sessions), axis=0).ravel()[:count]
    return positions(ascending)


def _random_bits(seed: int, purpose: str, count: int) -> npt.NDArray[np.uint64]:
    bits: npt.NDArray[np.uint64] = mixed(
        stream(purpose, seed=seed), np.arange(count, dtype=np.uint64)
    )
    return bits


def reuse_distances(order: IntArray, group: IntArray) -> IntArray:
    """Requests from each request to the next one of its group, sorted; none for the last ones."""
    sent = group[order]
    places = np.argsort(sent, kind="stable")
    distances: IntArray = np.sort(np.diff(places)[np.diff(sent[places]) == 0])
    return distances


def positions(order: IntArray) -> IntArray:
    """The inverse of an order: where each row is sent."""
    inverse: IntArray = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse
