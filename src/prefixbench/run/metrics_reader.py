"""Looks at all metrics addresses: at rest for a snapshot, under load for samples.

A snapshot is taken when nothing runs or waits and two looks in a row show the same counters:
counters of requests in flight would fall into the wrong phase (metrics-adapters.md section 5).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from prefixbench.core.clock import Clock
from prefixbench.run.client import Client
from prefixbench.run.counters import (
    EngineCounters,
    choose_reading,
    detect_adapter,
    engine_counters,
    engine_gauges,
)
from prefixbench.run.exposition import Exposition
from prefixbench.run.families import ADAPTERS, Adapter
from prefixbench.run.snapshot import MetricsSnapshot

#: Counters of real servers follow an answer within 0.3 s; two looks this far apart see them rest.
_BETWEEN_LOOKS_NS = 150_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RestingSnapshot:
    """A snapshot, and whether the servers were at rest; None where no page could be read."""

    snapshot: MetricsSnapshot
    at_rest: bool | None


class MetricsReader:
    """Reads the metrics addresses of a run. `adapter` None: each page is recognised."""

    def __init__(
        self,
        client: Client,
        endpoints: Sequence[str],
        *,
        clock: Clock,
        adapter: str | None,
        idle_timeout_s: float,
    ) -> None:
        self._client = client
        self.endpoints = tuple(endpoints)
        self._clock = clock
        self.adapter_name = adapter
        self._idle_timeout_ns = round(idle_timeout_s * 1e9)

    async def snapshot(self) -> MetricsSnapshot:
        """One look at every address."""
        scrapes = await asyncio.gather(*map(self._client.scrape, self.endpoints))
        return MetricsSnapshot(dict(zip(self.endpoints, scrapes, strict=True)))

    async def resting_snapshot(self) -> RestingSnapshot:
        """A snapshot of servers that have nothing to do; the last look if they never rest."""
        deadline_ns = self._clock.now_ns() + self._idle_timeout_ns
        last = await self.snapshot()
        while True:
            if not any(scrape.page for scrape in last.scrapes.values()):
                return RestingSnapshot(snapshot=last, at_rest=None)
            await self._clock.sleep_ns(_BETWEEN_LOOKS_NS)
            now = await self.snapshot()
            if not self._has_load(now) and self._counts(now) == self._counts(last):
                return RestingSnapshot(snapshot=now, at_rest=True)
            if self._clock.now_ns() >= deadline_ns:
                return RestingSnapshot(snapshot=now, at_rest=False)
            last = now

    def adapter_of(self, page: Exposition) -> Adapter | None:
        """The engine behind a page."""
        return ADAPTERS[self.adapter_name] if self.adapter_name else detect_adapter(page)

    def queries_so_far(self, snapshot: MetricsSnapshot) -> int | None:
        """Queries of all caches since their start; None unless every address tells."""
        counts = self._counts(snapshot)
        if len(counts) < len(self.endpoints):
            return None
        queries = [row.queries for engines in counts.values() for row in engines.values()]
        known = [count for count in queries if count is not None]
        return sum(known) if known and len(known) == len(queries) else None

    def _has_load(self, snapshot: MetricsSnapshot) -> bool:
        return any(
            (gauges.running or 0) + (gauges.waiting or 0) > 0
            for page, adapter in self._pages(snapshot).values()
            for gauges in engine_gauges(page, adapter).values()
        )

    def _counts(self, snapshot: MetricsSnapshot) -> dict[str, dict[str, EngineCounters]]:
        return {
            endpoint: engine_counters(page, adapter, choose_reading(page, adapter))
            for endpoint, (page, adapter) in self._pages(snapshot).items()
        }

    def _pages(self, snapshot: MetricsSnapshot) -> dict[str, tuple[Exposition, Adapter]]:
        pages = {}
        for endpoint, scrape in snapshot.scrapes.items():
            adapter = self.adapter_of(scrape.page) if scrape.page else None
            if scrape.page and adapter:
                pages[endpoint] = (scrape.page, adapter)
        return pages
