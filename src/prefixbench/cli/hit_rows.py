"""Tallies as rows of a document, and the tallies of tiers together."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prefixbench.core.tally import HitTally, as_rate, total


def hit_rows(name: str, tallies: Iterable[tuple[Any, HitTally]]) -> list[dict[str, Any]]:
    """One row a tally; `name` is the key of what it belongs to."""
    return [
        {name: key, "queries": row.queries, "hits": row.hits, "hit_ratio": as_rate(row)}
        for key, row in tallies
    ]


def with_tiers(device: HitTally, tiers: Iterable[HitTally]) -> HitTally:
    """Tokens found anywhere; a lower tier is asked again for what was asked for above."""
    return device + total(HitTally(row.hits, 0) for row in tiers)
