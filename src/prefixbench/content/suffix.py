"""Natural suffixes: whole samples as far as they fit, then whole atoms, then fillers.

    budget tokens:  | opening samples, if named | ring: atoms [start, stop) | fillers |

All requests are laid out at once, by binary search on cumulative token counts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from prefixbench.content.draws import draw_below
from prefixbench.content.passages import Passage
from prefixbench.content.ring import Flags
from prefixbench.content.tape import Positions


@dataclass(frozen=True, slots=True, eq=False)
class SuffixStarts:
    """Where each request begins to read the ring; `exhausted` = it may have to repeat samples."""

    positions: Positions
    exhausted: Flags


@dataclass(frozen=True, slots=True, eq=False)
class SuffixLayout:
    """For each request: the opening's stop, the ring's stretch, and the fillers behind it."""

    opening_stops: Positions
    starts: Positions
    stops: Positions
    filler_counts: Positions


@dataclass(frozen=True, slots=True, eq=False)
class PrefixReach:
    """The part of the ring that master prefixes may read: where it begins, and its tokens."""

    begins: Positions
    tokens: Positions

    def of(self, groups: Positions) -> PrefixReach:
        """The same for each of some requests, given the groups they are of."""
        return PrefixReach(self.begins[groups], self.tokens[groups])


@dataclass(frozen=True, slots=True, eq=False)
class RequestDraws:
    """Keys and indices of the draws of each request."""

    keys: Any
    indices: Positions

    def below(self, bounds: Any, turn: int) -> Positions:
        """For each request an integer in [0, bound); another one for another turn."""
        return draw_below(bounds, self.keys + np.uint64(turn), self.indices)


def choose_starts(
    passage: Passage,
    budgets: Positions,
    draws: RequestDraws,
    *,
    prefix_reach: PrefixReach | None,
    inside_sample: Flags,
) -> SuffixStarts:
    """Draw where suffixes begin to read: at a sample, or `inside_sample` at any of its atoms.

    With `prefix_reach` (prefixes read the same ring) a suffix stays clear of the samples of its
    own prefix; where the ring has no room for both it follows right behind them.
    """
    ring = passage.ring
    if passage.starts_at_first:
        return SuffixStarts(np.zeros_like(budgets), budgets > ring.token_count)
    if prefix_reach is None:
        samples = draws.below(np.full_like(budgets, ring.sample_count), 0)
        exhausted = budgets > ring.token_count
    else:
        begin = prefix_reach.begins
        first = ring.first_sample_from(begin + prefix_reach.tokens)
        last = ring.first_sample_from(begin + ring.token_count - budgets + 1) - 1
        exhausted = last < first
        samples = first + draws.below(np.maximum(last - first, 0) + 1, 0)
    atoms = np.diff(ring.sample_starts)[samples % ring.sample_count]
    offsets = np.where(inside_sample, draws.below(atoms, 1), 0)
    return SuffixStarts(ring.sample_position(samples) + offsets, exhausted)


def lay_suffixes(passage: Passage, starts: Positions, budgets: Positions) -> SuffixLayout:
    """Fill each budget (tokens) with whole atoms, and the rest with fillers."""
    opening, ring = passage.opening, passage.ring
    opening_stops = np.zeros_like(budgets)
    left = rest = budgets
    if opening is not None:
        opening_stops = np.minimum(opening.last_cut(opening_stops, budgets), len(opening))
        rest = budgets - opening.stretch_len(np.zeros_like(budgets), opening_stops)
        left = np.where(opening_stops == len(opening), rest, 0)
    stops = ring.last_cut(starts, left)
    return SuffixLayout(opening_stops, starts, stops, rest - ring.stretch_len(starts, stops))
