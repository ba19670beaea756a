"""What a trace is made of: lengths, arrivals, how often blocks are used, how soon again."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.core.percentiles import percentile_of_sorted
from prefixbench.simulator.prefix_tree import Path
from prefixbench.simulator.stack_distance import CapacityCurve
from prefixbench.simulator.trace import TraceRequest

_QUANTILES = (50, 90, 95, 99)
_TOP_SHARES = (0.001, 0.01, 0.1)
_REUSE_PERCENTS = (25, 50, 75, 90, 99, 100)


def distribution(values: Iterable[float]) -> dict[str, float | None]:
    """Count, extremes, mean and quantiles; without values all but the count are None."""
    ordered = sorted(values)
    quantiles = {f"p{q}": percentile_of_sorted(ordered, q) for q in _QUANTILES}
    return {
        "count": len(ordered),
        "min": ordered[0] if ordered else None,
        "max": ordered[-1] if ordered else None,
        "mean": sum(ordered) / len(ordered) if ordered else None,
        **quantiles,
    }


def common_times(requests: Sequence[TraceRequest]) -> list[float] | None:
    """When each request came, in ms; None where one does not tell, or came before the one above."""
    times = [request.arrival_ms for request in requests if request.arrival_ms is not None]
    return times if len(times) == len(requests) and times == sorted(times) else None


def arrivals(requests: Sequence[TraceRequest]) -> dict[str, float] | None:
    """How long the trace lasts and how dense it is; None where that is not known."""
    times = common_times(requests)
    if not times:
        return None
    duration_s = (times[-1] - times[0]) / 1000
    if not duration_s:
        return None
    return {"duration_s": duration_s, "requests_per_s": (len(times) - 1) / duration_s}


@dataclass(frozen=True, slots=True)
class Popularity:
    """How many requests use a block: (requests, blocks that so many use), most used first.

    >>> Popularity.of([((1, 4),), ((1, 2),)]).uses
    ((2, 2), (1, 2))
    """

    uses: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, paths: Iterable[Path]) -> Popularity:
        depths: defaultdict[int, list[int]] = defaultdict(list)
        for path in paths:
            for chain, depth in path:
                depths[chain].append(depth)
        blocks_used: defaultdict[int, int] = defaultdict(int)
        for reached in depths.values():
            begin = 0
            reached.sort()
            for passed, depth in enumerate(reached):
                blocks_used[len(reached) - passed] += depth - begin
                begin = depth
        uses = sorted(blocks_used.items(), reverse=True)
        return cls(tuple((count, blocks) for count, blocks in uses if blocks))

    @property
    def unique_blocks(self) -> int:
        return sum(blocks for _count, blocks in self.uses)

    def accesses_of_top(self, blocks: int) -> int:
        """Accesses that go to so many of the most used blocks."""
        accesses = 0
        for count, available in self.uses:
            taken = min(available, blocks)
            accesses += count * taken
            blocks -= taken
        return accesses

    def to_json(self) -> dict[str, Any]:
        """Shares of all accesses and of all blocks; None for an empty trace."""
        unique = self.unique_blocks
        accesses = self.accesses_of_top(unique)
        if not unique:
            return {"most_used": None, "used_once_share": None, "top": []}
        top = [(share, max(round(unique * share), 1)) for share in _TOP_SHARES]
        return {
            "most_used": self.uses[0][0],
            "used_once_share": dict(self.uses).get(1, 0) / unique,
            "top": [
                {
                    "blocks_share": share,
                    "blocks": blocks,
                    "accesses_share": self.accesses_of_top(blocks) / accesses,
                }
                for share, blocks in top
            ],
        }


def capacities_for_shares(curve: CapacityCurve) -> list[dict[str, Any]]:
    """The least capacity that keeps at least a share of what is found without limit.

    These are the quantiles of the reuse distance: the number of different blocks used between two
    uses of one block, itself included.
    """
    most = curve.tally().hits
    everything = range(curve.corners[-1] + 1)
    return [
        {
            "share": percent / 100,
            "blocks": bisect_left(
                everything,
                -(-most * percent // 100),
                key=lambda capacity: curve.tally(capacity).hits,
            ),
        }
        for percent in _REUSE_PERCENTS
        if most
    ]
