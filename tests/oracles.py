"""Independent models of what the product computes; they share no code with it.

Everything here is written for clarity alone: a list, a set, a dictionary, one request after the
other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

Token = Hashable


@dataclass
class BlockCache:
    """An unlimited cache of whole blocks whose identity is everything before and in them."""

    block: int
    seen: set[tuple[Token, ...]] = field(default_factory=set)

    def serve(self, tokens: Sequence[Token]) -> int:
        """Tokens found cached (never the last one), then everything is cached."""
        hit = 0
        while (
            hit + self.block <= len(tokens) - 1 and tuple(tokens[: hit + self.block]) in self.seen
        ):
            hit += self.block
        for end in range(self.block, len(tokens) + 1, self.block):
            self.seen.add(tuple(tokens[:end]))
        return hit


@dataclass(frozen=True)
class ToyRequest:
    """A request in tokens: where it goes, how long it is, how much it shares."""

    cache: int
    group: int
    input_len: int
    prefix_len: int


def tokens_of(request: ToyRequest, number: int, head: int, tail: int) -> list[Token]:
    """Head, the first part of the group's master prefix, unique tokens, tail."""
    shared = [("head", i) for i in range(head)]
    shared += [("master", request.group, i) for i in range(head, request.prefix_len)]
    end = request.input_len - tail
    unique = [("own", number, i) for i in range(len(shared), end)]
    return [*shared, *unique, *(("tail", i) for i in range(tail))]


def served_hits(
    requests: Sequence[ToyRequest], *, block: int, head: int = 0, tail: int = 0
) -> list[int]:
    """Hit tokens of every request, served one after the other by one cache each."""
    caches: dict[int, BlockCache] = {}
    hits = []
    for number, request in enumerate(requests):
        cache = caches.setdefault(request.cache, BlockCache(block))
        hits.append(cache.serve(tokens_of(request, number, head, tail)))
    return hits


def lagged_hits(
    requests: Sequence[ToyRequest],
    lag: int,
    *,
    block: int,
    head: int = 0,
    tail: int = 0,
    waited_for: int = 0,
) -> list[int]:
    """As `served_hits`, but a request finds only what requests `lag` or more places ago left.

    The first `waited_for` requests have finished before any other is sent.
    """
    hits = []
    for number, request in enumerate(requests):
        cache = BlockCache(block)
        for earlier in range(number):
            finished = earlier <= number - lag or earlier < waited_for <= number
            if finished and requests[earlier].cache == request.cache:
                cache.serve(tokens_of(requests[earlier], earlier, head, tail))
        hits.append(cache.serve(tokens_of(request, number, head, tail)))
    return hits
