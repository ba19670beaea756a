"""Passages: which samples of a corpus the prefixes and the suffixes read, and in which order.

    samples named, concat    named ones first, in their order, then others from a drawn one on
    samples named, sample    the named ones alone, in a cycle
    none named, concat       neighbours in the corpus, from a drawn sample on
    none named, sample       the corpus in a drawn order, from a drawn sample on

Prefixes and suffixes of one corpus read the same ring, so that a suffix can stay clear of the
samples of its own prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import add

import numpy as np

from prefixbench.config.suffix import SuffixMode
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import Pool
from prefixbench.content.ring import TextRing
from prefixbench.content.tape import Positions
from prefixbench.core.errors import CorpusError, ErrorContext, Stage
from prefixbench.core.seeds import shuffled


@dataclass(frozen=True, slots=True)
class SampleChoice:
    """Rows of the corpus that a user names, and what is made of them."""

    sample_ids: tuple[int, ...] = ()
    mode: SuffixMode = SuffixMode.CONCAT

    @property
    def is_cycle(self) -> bool:
        return bool(self.sample_ids) and self.mode == SuffixMode.SAMPLE


@dataclass(frozen=True, slots=True, eq=False)
class Passage:
    """Samples read from their beginning, then a ring read from a drawn sample on.

    `starts_at_first` = the ring is read from its first sample on, always.
    """

    opening: TextRing | None
    ring: TextRing
    starts_at_first: bool = False

    def rows_in(self, opened: Positions, starts: Positions, stops: Positions) -> list[bytes]:
        """Rows of the corpus in the opening up to `opened` and in stretches of the ring.

        JSON numbers, each with a comma behind it.
        """
        rows = self.ring.rows_in(starts, stops)
        if self.opening is None:
            return rows
        return list(map(add, self.opening.rows_in(np.zeros_like(opened), opened), rows))

    @property
    def continued(self) -> Passage:
        """What is read by text that goes on where another one stopped: the ring alone."""
        return self if self.opening is None else replace(self, opening=None)


@dataclass(frozen=True, slots=True, eq=False)
class Passages:
    """What prefixes and suffixes read; one ring object where they read the same."""

    prefix: Passage
    suffix: Passage

    @property
    def share_ring(self) -> bool:
        return self.prefix.ring is self.suffix.ring


def choose_passages(
    pool: Pool,
    labels: ContentLabels,
    suffix: SampleChoice | None = None,
    prefix: SampleChoice | None = None,
) -> Passages:
    """Lay out the rings; CorpusError for a named sample that the corpus does not have."""
    suffix, prefix = suffix or SampleChoice(), prefix or SampleChoice()
    suffix_named = _numbers_of(suffix.sample_ids, pool.suffix_ring, "suffix.sample_ids")
    prefix_named = _numbers_of(prefix.sample_ids, pool.prefix_ring, "prefix.sample_ids")
    if pool.shares_source:
        taken = {*suffix_named, *prefix_named}
        prefix_rest = suffix_rest = _rest(pool.suffix_ring, taken, suffix.mode, labels)
    else:
        suffix_rest = _rest(pool.suffix_ring, set(suffix_named), suffix.mode, labels)
        prefix_rest = _rest(pool.prefix_ring, set(prefix_named), prefix.mode, labels)
    return Passages(
        prefix=_passage(pool.prefix_ring, prefix_named, prefix_rest, prefix.is_cycle),
        suffix=_passage(pool.suffix_ring, suffix_named, suffix_rest, suffix.is_cycle),
    )


def _numbers_of(rows: Sequence[int], ring: TextRing, field: str) -> list[int]:
    number_of = {row: number for number, row in enumerate(ring.sample_ids.tolist())}
    missing = [row for row in rows if row not in number_of]
    if missing:
        raise CorpusError(
            f"sample {missing[0]} is no usable row of the corpus,"
            f" which has {len(number_of)} of them, up to row {max(number_of)}",
            context=ErrorContext(stage=Stage.CONTENT, field=field),
            hint="rows count from 0; a row that spells a special token cannot be used",
        )
    return [number_of[row] for row in rows]


def _rest(ring: TextRing, taken: set[int], mode: SuffixMode, labels: ContentLabels) -> TextRing:
    """The ring without the samples that are named, in its own or in a drawn order."""
    others = np.array([number for number in range(ring.sample_count) if number not in taken])
    if not len(others):
        return ring
    if mode == SuffixMode.SAMPLE and not taken:
        others = others[shuffled(len(others), labels.key("sample_order"))]
    elif not taken:
        return ring
    return ring.select(others)


def _passage(ring: TextRing, named: list[int], rest: TextRing, is_cycle: bool) -> Passage:
    if not named:
        return Passage(None, rest)
    selected = ring.select(named)
    return Passage(None, selected, starts_at_first=True) if is_cycle else Passage(selected, rest)
