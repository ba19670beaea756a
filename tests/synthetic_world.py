"""What is planned for a run without a server, and a block cache of its own that plays it.

The cache here is a set of (cache, group, block) keys. It shares no code with the product and knows
nothing of watermarks.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

MS = 1_000_000
#: Output tokens of every request.
ANSWER = 16
DATASET_ID = "synthetic_60"


@dataclass(frozen=True, kw_only=True)
class World:
    """What is planned, and what happens instead."""

    requests: int = 60
    groups: tuple[str, ...] = ("customer_a", "customer_b", "customer_c")
    shortest: int = 256
    longest: int = 1024
    target: float = 0.6
    theta: float | None = None
    block: int = 16
    head: int = 0
    ranks: int = 1
    scope: str = "global"
    mode: str = "progressive_prefix_fill"
    semantics: str = "order_aware_global"
    concurrency: int = 1
    rounds: int = 1
    seed: int = 7
    planned_flight: int = 1
    planned_blocks: int | None = None
    # What happens instead of the plan:
    failing: frozenset[int] = frozenset()
    residue: int = 0
    extra_tokens: int = 0
    server_step: int | None = None
    foreign_queries: int = 0
    foreign_hits: int = 0
    misrouted: bool = False
    forgetful: bool = False
    evictions: int | None = None
    reports_cached: bool = True
    counters: bool = True
    gap: str | None = None
    caching: bool = True
    num_blocks: int | None = 100_001
    served_blocks: int | None = None
    checks: tuple[dict[str, Any], ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One planned request."""

    request_id: str
    group: str
    rank: int
    input_len: int
    prefix: int
    hits: int = 0
    before: int = 0
    after: int = 0


def planned_rows(world: World) -> list[Row]:
    """Lengths, groups and prefixes; hits as an unlimited cache gives them in this order."""
    rng = random.Random(world.seed)
    lengths = [rng.randint(world.shortest, world.longest) for _ in range(world.requests)]
    low, high = (0.0, 1.0) if world.theta is None else (world.theta, world.theta)
    rows: list[Row] = []
    for _ in range(40 if world.theta is None else 1):
        theta = (low + high) / 2
        rows = [_row(world, index, length, theta) for index, length in enumerate(lengths)]
        _expect(world, rows)
        ratio = sum(row.hits for row in rows) / sum(lengths)
        low, high = (theta, high) if ratio < world.target else (low, theta)
    return rows


def _row(world: World, index: int, length: int, theta: float) -> Row:
    group = index % len(world.groups)
    dither = (index * 0.6180339887) % 1.0
    blocks = int(theta * length / world.block + dither)
    blocks = max(0, min(blocks, (length - world.block) // world.block))
    return Row(
        request_id=f"r{index:06d}",
        group=world.groups[group],
        rank=group % world.ranks,
        input_len=length,
        prefix=max(blocks * world.block, world.head),
    )


def is_warm(world: World) -> bool:
    return world.semantics == "static_prefix_ratio"


def _expect(world: World, rows: list[Row]) -> None:
    walk = found_by(world, rows, warm=is_warm(world), as_planned=True)
    for row, (before, hits) in zip(rows, walk, strict=True):
        row.before, row.hits = before, hits
        row.after = max(before, row.prefix // world.block * world.block)


def found_by(
    world: World, rows: list[Row], *, warm: bool, as_planned: bool
) -> Iterator[tuple[int, int]]:
    """Depth and hits of each request; `as_planned`: with the planned flight and blocks."""
    cache = BlockCache(world, blocks=world.planned_blocks if as_planned else None)
    flight = world.planned_flight if as_planned else 1
    if warm:
        cache.warm_up(rows)
    for index, row in enumerate(rows):
        if index >= flight:
            seen = rows[index - flight]
            cache.store(seen, seen.rank)
        yield cache.depth(row, row.rank), cache.found(row, row.rank)


class BlockCache:
    """Keys of stored blocks by their last touch; the head's blocks belong to no group.

    With a limit each cache holds so many `blocks`, and the tail of a request goes before its head.
    """

    def __init__(self, world: World, step: int | None = None, blocks: int | None = None) -> None:
        self._step = step or world.block
        self._head = world.head
        self._local = world.scope != "global"
        self._blocks = blocks
        self._keys: defaultdict[int, dict[tuple[str, int], None]] = defaultdict(dict)

    def warm_up(self, rows: list[Row]) -> None:
        """Store the longest prefix of each group in each cache, in the order of sending."""
        longest: dict[tuple[int, str], Row] = {}
        for row in rows:
            domain = (row.rank if self._local else 0, row.group)
            if row.prefix > longest.setdefault(domain, row).prefix:
                longest[domain] = row
        for row in rows:
            if any(row is chosen for chosen in longest.values()):
                self.store(row, row.rank, row.prefix)

    def store(self, row: Row, rank: int, depth: int | None = None) -> None:
        keys = self._keys[rank if self._local else 0]
        path = list(self._path(row, row.prefix if depth is None else depth))
        if self._blocks is not None and depth is None:
            stored = (row.input_len + ANSWER - 1) // self._step
            path += [(row.request_id, place) for place in range(stored - len(path))]
        for key in reversed(path):
            keys.pop(key, None)
            keys[key] = None
        while self._blocks is not None and len(keys) > self._blocks:
            del keys[next(iter(keys))]

    def found(self, row: Row, rank: int) -> int:
        keys = self._keys[rank if self._local else 0]
        return self._step * sum(
            1 for _ in takewhile(keys.__contains__, self._path(row, row.prefix))
        )

    def depth(self, row: Row, rank: int) -> int:
        keys = self._keys[rank if self._local else 0]
        return self._step * sum(1 for _ in takewhile(keys.__contains__, self._path(row, 10**9)))

    def _path(self, row: Row, depth: int) -> Iterator[tuple[str, int]]:
        for start in range(0, depth - self._step + 1, self._step):
            yield "" if start + self._step <= self._head else row.group, start
