"""The hit ratio that a phase should show, from the plan alone.

A plan is made for a warmed or for a cold cache and its metadata say what each request finds there.
A phase of the other kind has a ratio of its own: the watermark walk is done again for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from prefixbench.core.blocks import longest_hit
from prefixbench.core.records import CacheScope
from prefixbench.core.tally import HitTally, total
from prefixbench.dataset.reader import DatasetReader
from prefixbench.simulator.watermark import walk_watermarks


class DesignedHits:
    """Designed tallies of a data set, for cold and for warmed phases."""

    def __init__(self, dataset: DatasetReader, scope: CacheScope) -> None:
        self._dataset = dataset
        self._scope = scope
        self._known: dict[bool, HitTally] = {}

    def tally(self, *, warmed: bool) -> HitTally:
        """Expected hits out of all input tokens."""
        if warmed not in self._known:
            self._known[warmed] = self._computed(warmed=warmed)
        return self._known[warmed]

    def most(self) -> HitTally:
        """What requests could find at most, were every whole prompt cached already."""
        step = self._dataset.manifest.hit_granularity
        return total(
            HitTally(longest_hit(row["input_len"], step), row["input_len"])
            for row in self._dataset.metadata()
        )

    def _computed(self, *, warmed: bool) -> HitTally:
        manifest = self._dataset.manifest
        if bool(manifest.data["warmed"]) == warmed:
            return total(
                HitTally(row["expected_hit_len"], row["input_len"])
                for row in self._dataset.metadata()
            )
        outcomes = walk_watermarks(
            self._dataset.plans(),
            self._scope,
            hit_granularity=manifest.hit_granularity,
            head_len=manifest.head_len,
            warm=deepest_prefixes(self._dataset.metadata()) if warmed else None,
        )
        return total(HitTally(row.expected_hit_len, row.input_len) for row in outcomes)


def deepest_prefixes(metadata: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """The longest planned prefix of each group, in tokens: what its warm-up stores.

    That of a later turn is its session's own history, which no warm-up sends.
    """
    deepest: dict[str, int] = {}
    for row in metadata:
        if row.get("turn"):
            continue
        group = row["prefix_group_id"]
        deepest[group] = max(deepest.get(group, 0), row["planned_prefix_len"])
    return deepest
