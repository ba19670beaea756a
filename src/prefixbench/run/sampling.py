"""Looks at the servers' load while a phase runs, without slowing the sending.

Only the lines of a few gauges are parsed. The first looks follow each other quickly, so that a run
of a second is seen too; later ones are a second apart.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from prefixbench.core.clock import Clock
from prefixbench.run.cache_metrics import GaugeSummary
from prefixbench.run.client import Client
from prefixbench.run.counters import EngineGauges, engine_gauges
from prefixbench.run.exposition import ScrapeError, lines_of, parse_exposition
from prefixbench.run.families import Adapter

_FIRST_PAUSE_NS = 50_000_000
_LONGEST_PAUSE_NS = 1_000_000_000
_PAUSE_GROWTH = 1.5


@dataclass(slots=True)
class _Usage:
    under_load: list[float] = field(default_factory=list)
    largest: float = 0.0

    def add(self, gauges: EngineGauges) -> None:
        if gauges.usage is None:
            return
        self.largest = max(self.largest, gauges.usage)
        if gauges.running is None or gauges.running > 0:
            self.under_load.append(gauges.usage)


class LoadSampler:
    """Async context manager around a phase; each sample goes to `record` as an event."""

    def __init__(
        self,
        client: Client,
        adapters: Mapping[str, Adapter],
        *,
        clock: Clock,
        record: Callable[[str, Mapping[str, Any]], None],
    ) -> None:
        self._client = client
        self._adapters = adapters
        self._clock = clock
        self._record = record
        self._usage: defaultdict[tuple[str, str], _Usage] = defaultdict(_Usage)

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._sample_repeatedly())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def summaries(self) -> dict[tuple[str, str], GaugeSummary]:
        """KV usage of each (address, rank) over the samples under load; none without any."""
        return {
            key: GaugeSummary(mean=sum(usage.under_load) / len(usage.under_load), max=usage.largest)
            for key, usage in self._usage.items()
            if usage.under_load
        }

    async def _sample_repeatedly(self) -> None:
        pause_ns = _FIRST_PAUSE_NS
        while self._adapters:
            await self._clock.sleep_ns(pause_ns)
            pause_ns = min(round(pause_ns * _PAUSE_GROWTH), _LONGEST_PAUSE_NS)
            await asyncio.gather(*(self._sample(endpoint) for endpoint in self._adapters))

    async def _sample(self, endpoint: str) -> None:
        adapter = self._adapters[endpoint]
        try:
            text = await self._client.metrics_text(endpoint)
            page = parse_exposition(lines_of(text, _gauges(adapter)))
        except ScrapeError:
            return  # the snapshots report a page that cannot be read
        for engine, gauges in engine_gauges(page, adapter).items():
            self._usage[endpoint, engine].add(gauges)
            self._record(
                "sample",
                {
                    "endpoint": endpoint,
                    "engine": engine,
                    "kv_cache_usage": gauges.usage,
                    "running": gauges.running,
                    "waiting": gauges.waiting,
                },
            )


def _gauges(adapter: Adapter) -> tuple[str, ...]:
    return (*adapter.usage, *adapter.running, *adapter.waiting)
