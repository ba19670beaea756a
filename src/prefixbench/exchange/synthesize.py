"""A trace as a data set configuration: the same lengths, groups, order and hits a group.

Requests that share their first block behind the head common to all of them are one prefix group,
and those that share nothing but the head another one.
The configuration gives every request its length, group and place; each group is asked for the hits
that its requests find in an unlimited cache, as far as one nested prefix can give them. A head
that all requests share is found by every group's first request in the trace, but not in a data set
whose groups share nothing; those hits are asked of the other requests, so that the sum is kept.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.core.blocks import longest_hit
from prefixbench.simulator.prefix_tree import Path
from prefixbench.simulator.trace import TraceRequest
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache
from prefixbench.simulator.trace_statistics import arrivals

#: Room for a head, a marker and a token of its own; shorter requests are lengthened to it.
SHORTEST = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Synthesis:
    """Settings of a data set, and in sentences what of the trace they do not keep.

    Hits are tokens in an unlimited cache, as engines count them.
    """

    settings: dict[str, Any]
    not_kept: tuple[str, ...]
    input_tokens: int
    trace_hit_tokens: int
    kept_hit_tokens: int


def synthesize(requests: Sequence[TraceRequest], block_size: int | None) -> Synthesis:
    """The configuration; without blocks (a trace of lengths alone) its target is 0."""
    groups = _Groups(requests, block_size or 1)
    wanted = groups.wanted_blocks()
    lengths = [max(request.input_len, SHORTEST) for request in requests]
    settings: dict[str, Any] = {
        "request_count": len(requests),
        "block_size": block_size,
        "input_length": {"mode": "explicit", "values": lengths},
        "output_length": {
            "mode": "explicit",
            "values": [max(request.output_len or 1, 1) for request in requests],
        },
        "target": groups.target(lengths, wanted),
        "prefix": {"minimum_non_shared_length": 1, "assignment": groups.assignment},
        "request_order": {"mode": "sequential"},
        "execution": {"mode": "progressive_prefix_fill"},
    }
    if block_size is None:
        settings |= {"target": {"hit_ratio": 0.0}, "prefix": {}}
        del settings["block_size"]
    return Synthesis(
        settings=settings,
        not_kept=tuple(_not_kept(requests, groups, wanted, block_size)),
        input_tokens=sum(request.input_len for request in requests),
        trace_hit_tokens=sum(groups.found) * groups.block_size,
        kept_hit_tokens=sum(wanted) * groups.block_size,
    )


class _Groups:
    """The trace by prefix group; hits in blocks, in the order of the groups' first requests."""

    def __init__(self, requests: Sequence[TraceRequest], block_size: int) -> None:
        trace = IndexedTrace(requests)
        self.block_size = block_size
        self.head_blocks = _common_head(trace.paths)
        keys = [_behind_head(path, self.head_blocks) for path in trace.paths]
        if self.head_blocks:
            keys = _without_loners(keys)
        numbers = {key: number for number, key in enumerate(dict.fromkeys(keys))}
        self.of_request = [numbers[key] for key in keys]
        self.found = [0] * len(numbers)
        #: What one nested prefix could give: each request finds the longest one before it.
        self.reachable = [0] * len(numbers)
        self._longest = [0] * len(numbers)
        for request, group, hits in zip(
            requests, self.of_request, TraceCache(trace).hit_blocks(), strict=True
        ):
            self._add(group, longest_hit(request.input_len, block_size) // block_size, hits)

    def _add(self, group: int, most: int, hits: int) -> None:
        self.found[group] += min(hits, most)
        self.reachable[group] += min(most, self._longest[group])
        self._longest[group] = max(most, self._longest[group])

    @property
    def assignment(self) -> list[str]:
        return [self._name(group) for group in self.of_request]

    def _name(self, group: int) -> str:
        return f"group_{group:0{len(str(len(self.found) - 1))}d}"

    def wanted_blocks(self) -> list[int]:
        """Each group's own hits as far as it can have them; what is left, spread over the rest."""
        pairs = list(zip(self.found, self.reachable, strict=True))
        wanted = [min(found, reachable) for found, reachable in pairs]
        lost = sum(self.found) - sum(wanted)
        room = [reachable - own for own, (_, reachable) in zip(wanted, pairs, strict=True)]
        return [own + more for own, more in zip(wanted, _spread(lost, room), strict=True)]

    def target(self, lengths: Sequence[int], wanted: Sequence[int]) -> dict[str, Any]:
        tokens = [0] * len(wanted)
        for group, length in zip(self.of_request, lengths, strict=True):
            tokens[group] += length
        return {
            "scope": "per_group",
            "groups": [
                {"id": self._name(group), "hit_ratio": blocks * self.block_size / tokens[group]}
                for group, blocks in enumerate(wanted)
            ],
        }


def _common_head(paths: Sequence[Path]) -> int:
    """Blocks that all requests begin with."""
    first_hops = [path[0] if path else (0, 0) for path in paths]
    one_chain = len({chain for chain, _depth in first_hops}) == 1
    return min(depth for _chain, depth in first_hops) if one_chain and len(paths) > 1 else 0


def _behind_head(path: Path, head_blocks: int) -> int | None:
    """The chain that holds the first block behind the head; None where there is no such block."""
    behind = (chain for place, (chain, depth) in enumerate(path) if place or depth > head_blocks)
    return next(behind, None)


def _without_loners(keys: Sequence[int | None]) -> list[int | None]:
    """One key, None, for all who share nothing but the head: they still share that."""
    members = Counter(keys)
    return [key if members[key] > 1 else None for key in keys]


def _spread(amount: int, room: Sequence[int]) -> list[int]:
    """Shares of an amount in proportion to the room, never more than it; as much as fits.

    >>> _spread(5, [2, 0, 8]), _spread(99, [2, 0, 8])
    ([1, 0, 4], [2, 0, 8])
    """
    total = sum(room)
    amount = min(amount, total)
    shares = []
    given = seen = 0
    for own in room:
        seen += own
        shares.append(amount * seen // total - given if total else 0)
        given += shares[-1]
    return shares


def _not_kept(
    requests: Sequence[TraceRequest], groups: _Groups, wanted: Sequence[int], block_size: int | None
) -> Iterator[str]:
    if block_size is None:
        yield "the trace does not tell what requests share: target.hit_ratio is 0, set your own"
    else:
        yield "how a group's hits are spread over its requests, and branches below its prefix"
    if groups.head_blocks and len(wanted) > 1:
        yield (
            f"the head of {groups.head_blocks * groups.block_size} tokens that all requests share:"
            " groups share nothing; the hits it gives their first requests are asked of others"
        )
    short = sum(groups.found) - sum(wanted)
    if short:
        yield f"{short * groups.block_size} hit tokens, for which no group has room"
    lengthened = sum(request.input_len < SHORTEST for request in requests)
    if lengthened:
        yield f"lengths below {SHORTEST} tokens, {lengthened} in all: they are lengthened to it"
    rate = arrivals(requests)
    if rate is not None:
        yield (
            "when requests came: run with --request-rate"
            f" {rate['requests_per_s']:.3g} for the trace's mean rate"
        )
    unknown = sum(request.output_len is None for request in requests)
    if unknown:
        yield f"output lengths the trace does not tell, {unknown} in all: they are 1 token"
