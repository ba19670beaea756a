"""Many prompts of a data set at once, each a join of slices."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from prefixbench.content.layout import TextPart, lay_unique_parts
from prefixbench.content.master import Cut, MasterPrefix
from prefixbench.content.shelf import rows_of_cuts
from prefixbench.content.tape import Ids, Positions, escape

if TYPE_CHECKING:
    from prefixbench.content.compose import Composer


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
        cuts = [cut for _, cut in self._prefixes.values()]
        own = rows_of_cuts(self._composer.passages.prefix, cuts)
        rows = [cut.reading.rows_before + behind for cut, behind in zip(cuts, own, strict=True)]
        rows_of = dict(zip(self._prefixes, rows, strict=True))
        return list(map(rows_of.__getitem__, self._named_prefixes))

    def suffix_rows(self) -> list[bytes]:
        """Rows in each natural suffix, likewise."""
        own = self._recipes
        passage = self._composer.passages.suffix
        return passage.rows_in(own.opening_stop, own.ring_start, own.ring_stop)

    @cached_property
    def _cuts(self) -> list[tuple[MasterPrefix, Cut]]:
        return list(map(self._prefixes.__getitem__, self._named_prefixes))

    @cached_property
    def _prefixes(self) -> dict[tuple[int, int], tuple[MasterPrefix, Cut]]:
        """Each planned prefix once: many prompts begin with the same."""
        find = self._composer.master_and_cut
        return {name: find(*name) for name in dict.fromkeys(self._named_prefixes)}

    @cached_property
    def _named_prefixes(self) -> list[tuple[int, int]]:
        """The planned prefix of each prompt: its group and its content tokens."""
        return list(zip(self._recipes.group.tolist(), self._recipes.prefix.tolist(), strict=True))
