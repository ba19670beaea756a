"""Hits that no plan foresees, counted exactly, in the order of sending.

One request after the other, in caches without limit: a request finds what requests sent before it
to the same cache have left there, never a part of itself, and never its last token.

Without a chain every equal block (or chunk) is a hit wherever it stands. With one, only requests
that are equal from token 0 on give each other anything; a few classes of them are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from prefixbench.config.suffix import CacheMatchSemantics
from prefixbench.content.collide import pieces_of
from prefixbench.content.compose import Composer
from prefixbench.content.registry import Hashes
from prefixbench.content.tape import Ids, Positions
from prefixbench.core.blocks import longest_hit

#: New hashes kept in a set before they are sorted in among the others.
_RECENT_AT_MOST = 1 << 18


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sending:
    """How the requests of a data set reach the caches, rows in generation order.

    `place` is where a request stands in the order of sending; requests with one number in `cache`
    can find each other's blocks; `planned_hits` are tokens that they find by the plan. `warmed` =
    every group's longest prefix of a cache was stored there beforehand.
    """

    place: Positions
    cache: Positions
    planned_hits: Positions
    warmed: bool


def chained_accidents(
    composer: Composer, block_size: int, sending: Sending, classes: Iterable[Positions]
) -> dict[int, int]:
    """Tokens beyond the plan that requests of a class find of each other, by request.

    A class holds whatever requests may meet where one of them leaves its plan.
    """
    found: dict[int, int] = {}
    for members in _by_cache(classes, sending):
        prompts = list(composer.each_ids(members))
        stored = _warm_up(composer, members) if sending.warmed else []
        hits = _chained_hits([*stored, *prompts], block_size)[len(stored) :]
        for request, tokens, hit in zip(members.tolist(), prompts, hits, strict=True):
            beyond = min(hit, longest_hit(len(tokens), block_size))
            beyond -= int(sending.planned_hits[request])
            if beyond > found.get(request, 0):
                found[request] = beyond
    return found


def _by_cache(classes: Iterable[Positions], sending: Sending) -> Iterator[Positions]:
    """The members of each class that meet in one cache, as they are sent."""
    for members in classes:
        order = np.lexsort((sending.place[members], sending.cache[members]))
        for _, own in groupby(members[order].tolist(), key=sending.cache.__getitem__):
            yield np.array(list(own), dtype=np.int64)


def _warm_up(composer: Composer, members: Positions) -> list[Ids]:
    """The longest planned prefix of each group among the members."""
    columns = composer.columns
    longest: dict[int, int] = {}
    for request in members.tolist():
        group, prefix = int(columns.group[request]), int(columns.planned_prefix_len[request])
        longest[group] = max(longest.get(group, 0), prefix)
    return [composer.master_ids(group)[:prefix] for group, prefix in longest.items()]


def _chained_hits(sequences: Sequence[Ids], block_size: int) -> list[int]:
    """Tokens of whole blocks that each sequence has in common with any earlier one.

    The sequences are parted where they differ, all at once: every block is compared as often as
    sequences share it.
    """
    hits = [0] * len(sequences)
    parts = [(list(range(len(sequences))), 0)]
    while parts:
        members, depth = parts.pop()
        first = sequences[members[0]]
        shared = min(_common(first, sequences[other], depth) for other in members)
        shared = shared // block_size * block_size
        for later in members[1:]:
            hits[later] = shared
        parts += [(part, shared) for part in _parted(sequences, members, shared, block_size)]
    return hits


def _common(one: Ids, other: Ids, depth: int) -> int:
    """Tokens in common, of which `depth` are known."""
    stop = min(len(one), len(other))
    differs = one[depth:stop] != other[depth:stop]
    return depth + int(differs.argmax()) if differs.any() else stop


def _parted(
    sequences: Sequence[Ids], members: list[int], depth: int, block_size: int
) -> list[list[int]]:
    """Members that go on with one whole block alike, two or more, each part in its order."""
    parts: dict[bytes, list[int]] = {}
    for member in members:
        block = sequences[member][depth : depth + block_size]
        if len(block) == block_size:
            parts.setdefault(block.tobytes(), []).append(member)
    return [part for part in parts.values() if len(part) > 1]


def unchained_accidents(
    composer: Composer, block_size: int, sending: Sending, semantics: CacheMatchSemantics
) -> dict[int, int]:
    """Tokens behind the planned hit that a cache without a chain finds, by request.

    Every request is composed once. What was seen is kept as 64-bit hashes, 8 bytes each.
    """
    found: dict[int, int] = {}
    seen = {cache: _SeenHashes() for cache in np.unique(sending.cache).tolist()}
    if sending.warmed:
        for number, cache in seen.items():
            for prefix in _warm_up(composer, np.flatnonzero(sending.cache == number)):
                cache.add(_pieces(prefix, block_size, semantics).hashes)
    order = np.argsort(sending.place, kind="stable")
    for request, tokens in zip(order.tolist(), composer.each_ids(order), strict=True):
        pieces = _pieces(tokens, block_size, semantics)
        cache = seen[int(sending.cache[request])]
        hit = pieces.stops <= longest_hit(len(tokens), pieces.step)
        behind = pieces.stops - np.maximum(pieces.starts, sending.planned_hits[request])
        tokens_hit = behind[hit & cache.has(pieces.hashes)]
        cache.add(pieces.hashes)
        if accident := int(tokens_hit[tokens_hit > 0].sum()):
            found[request] = accident
    return found


@dataclass(frozen=True, slots=True, eq=False)
class _Pieces:
    """Blocks or chunks of a sequence: contents as hashes, and where each begins and ends.

    Hits come in steps of `step` tokens.
    """

    hashes: Hashes
    starts: Positions
    stops: Positions
    step: int


def _pieces(tokens: Ids, block_size: int, semantics: CacheMatchSemantics) -> _Pieces:
    hashes, lengths = pieces_of(tokens, block_size, semantics)
    stops = np.cumsum(lengths)
    is_chunk = semantics is CacheMatchSemantics.CONTENT_DEFINED_CHUNK
    return _Pieces(hashes, stops - lengths, stops, 1 if is_chunk else block_size)


class _SeenHashes:
    """All hashes ever added: most in a sorted array, the latest in a set."""

    def __init__(self) -> None:
        self._sorted: Hashes = np.empty(0, dtype=np.uint64)
        self._recent: set[int] = set()

    def has(self, hashes: Hashes) -> npt.NDArray[np.bool_]:
        recent = np.array([one in self._recent for one in hashes.tolist()], dtype=np.bool_)
        if not len(self._sorted):
            return recent
        places = np.searchsorted(self._sorted, hashes)
        places = np.minimum(places, len(self._sorted) - 1)
        known: npt.NDArray[np.bool_] = recent | (self._sorted[places] == hashes)
        return known

    def add(self, hashes: Hashes) -> None:
        self._recent.update(hashes.tolist())
        if len(self._recent) < _RECENT_AT_MOST:
            return
        latest = np.sort(np.fromiter(self._recent, dtype=np.uint64, count=len(self._recent)))
        # Two sorted runs: a stable sort merges them.
        merged = np.sort(np.concatenate([self._sorted, latest]), kind="stable")
        self._sorted = merged[np.concatenate([[True], merged[1:] != merged[:-1]])]
        self._recent.clear()
