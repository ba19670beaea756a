"""Divergence blocks: the tokens that end a match, unique by construction.

Requests that could meet share one numbering: those that leave the same node of the master
prefixes, and, across the whole data set, those without a prefix of their own (they all diverge
right after the head). Later turns of sessions meet nobody; they share one too. Request number k of
a numbering begins its unique part with the request markers

    first[k]  = permutation(k mod M)
    second[k] = offset(first[k]) + k div M        (mod M)

of M request markers: the first token is unique for k < M, the pair for k < M^2. Requests that
diverge at one place follow each other, so that the first tokens there repeat only if more than M
diverge there. A retry takes a number that no request has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from prefixbench.content.draws import ContentLabels, Permutation, draw_below
from prefixbench.content.tape import Positions

#: Request markers at the start of a unique part, where there is room for them.
MARKERS_PER_REQUEST = 2

_REQUESTS_AT_MOST = 1 << 20  # of a data set whose rows come one by one

#: Numberings beside those of the nodes: requests without a prefix of their own, and later turns.
NO_PREFIX = -1
LATER_TURN = -2


@dataclass(frozen=True, slots=True, eq=False)
class Divergences:
    """For each request: its markers, and where its run of fillers starts."""

    first: Positions
    second: Positions
    filler_starts: Positions


def number_requests(
    numbering: Positions, places: Positions, requests: Positions | None, retries: Positions
) -> Positions:
    """The number of each request, unique in its numbering for any of its retries.

    `places` are the tokens at which they diverge, `requests` numbers in a larger data set; without
    these the rows count themselves.
    """
    if requests is not None:
        return requests + retries * _REQUESTS_AT_MOST
    numbers = np.empty(len(numbering), dtype=np.int64)
    for members in _members(numbering):
        members = members[np.argsort(places[members], kind="stable")]
        numbers[members] = np.arange(len(members)) + retries[members] * len(members)
    return numbers


def _members(numbering: Positions) -> list[Positions]:
    """The requests of each numbering, in their order."""
    if not len(numbering):
        return []
    order = np.argsort(numbering, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(numbering[order])) + 1)


def draw_divergences(
    numbering: Positions,
    numbers: Positions,
    *,
    labels: ContentLabels,
    node_names: Sequence[str],
    marker_count: int,
    filler_count: int,
) -> Divergences:
    """Markers of all requests; a pure function of the labels and the numbers."""
    columns = np.empty((3, len(numbering)), dtype=np.int64)
    for members in _members(numbering):
        key = _key_of(int(numbering[members[0]]), labels, node_names)
        own = numbers[members]
        first = Permutation.draw(marker_count, key)(own)
        offset = draw_below(marker_count, key, first)
        columns[0, members] = first
        columns[1, members] = (offset + own // marker_count) % marker_count
        columns[2, members] = draw_below(filler_count, key + 1, own)
    return Divergences(*columns)


def _key_of(numbering: int, labels: ContentLabels, node_names: Sequence[str]) -> int:
    if numbering == LATER_TURN:
        return labels.key("later_turns")
    return labels.key("divergence", group="" if numbering == NO_PREFIX else node_names[numbering])
