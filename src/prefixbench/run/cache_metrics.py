"""What the caches counted between two snapshots: tallies that add, and reasons where there is none.

A rate is the growth of hits over the growth of queries. Growth is taken for each cache on its own,
a cache being (metrics address, rank label), and added; a mean of rates is never formed. A counter
that fell or began anew, a missing page and a cache that came or went give a reason and no number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.run.counters import (
    EngineConfig,
    EngineCounters,
    choose_reading,
    detect_adapter,
    engine_configs,
    engine_counters,
    process_start,
)
from prefixbench.run.exposition import Exposition
from prefixbench.run.families import ADAPTERS, Adapter, CountingRule, Reading
from prefixbench.run.snapshot import MetricsSnapshot, Scrape

#: Below this share of queries to prompt tokens the queries of an old vLLM are blocks, not tokens.
_BLOCKS_BELOW = 0.5


class Gap(StrEnum):
    """Why a cache has no tally."""

    UNREACHABLE = "unreachable"
    UNKNOWN_FAMILIES = "unknown_families"
    RATE_ONLY = "rate_only"
    COUNTER_RESET = "counter_reset"
    APPEARED = "appeared"
    VANISHED = "vanished"
    UNKNOWN_UNIT = "unknown_unit"
    IMPOSSIBLE = "impossible"


_GAP_TEXTS = {
    Gap.UNREACHABLE: "the metrics page could not be read",
    Gap.UNKNOWN_FAMILIES: "the metrics page has no counters of a prefix cache that are known",
    Gap.RATE_ONLY: "the metrics page states a rate alone, which cannot be compared over a phase",
    Gap.COUNTER_RESET: "counter reset: the counters fell or began anew during the phase",
    Gap.APPEARED: "this cache appeared during the phase",
    Gap.VANISHED: "this cache vanished during the phase",
    Gap.UNKNOWN_UNIT: "the counters are tokens or blocks, and nothing on the page tells which",
    Gap.IMPOSSIBLE: "more hits than queries were counted: these are not counters of one cache",
}


_UNTOUCHED = EngineCounters(
    queries=0,
    hits=0,
    external_queries=0,
    external_hits=0,
    preemptions=0,
    evictions=0,
    prompt_tokens=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeSummary:
    """Mean and maximum of a gauge over the samples taken under load."""

    mean: float
    max: float


@dataclass(frozen=True, slots=True, kw_only=True)
class InstanceMetrics:
    """Growth of one cache's counters. Without a tally, `gap` and `reason` say why.

    `engine` is None where the whole address gave nothing.
    """

    endpoint: str
    engine: str | None
    tally: HitTally | None = None
    rule: CountingRule | None = None
    external: HitTally | None = None
    prompt_tokens: int | None = None
    preemptions: int | None = None
    evictions: int | None = None
    eviction_unit: Unit | None = None
    config: EngineConfig = field(default_factory=EngineConfig)
    kv_cache_usage: GaugeSummary | None = None
    gap: Gap | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixCacheRuntimeMetrics:
    """What all caches counted between two snapshots."""

    adapter: str | None
    instances: tuple[InstanceMetrics, ...]

    @property
    def tally(self) -> HitTally | None:
        """Hits and queries of all caches that have them; None if none has, or units differ."""
        return _sum(instance.tally for instance in self.instances)

    @property
    def external(self) -> HitTally | None:
        """The external tier: queries are what the local caches did not have."""
        return _sum(instance.external for instance in self.instances)

    @property
    def unit(self) -> Unit | None:
        tally = self.tally
        return None if tally is None else tally.unit

    @property
    def is_partial(self) -> bool:
        """Whether some caches have a tally and others have none."""
        return self.tally is not None and bool(self.gaps)

    @property
    def gaps(self) -> tuple[InstanceMetrics, ...]:
        """The rows that have no tally."""
        return tuple(instance for instance in self.instances if instance.gap is not None)

    @property
    def reason(self) -> str | None:
        """Why there is no tally at all; None if there is one."""
        if self.tally is not None:
            return None
        reasons = dict.fromkeys(row.reason for row in self.gaps if row.reason)
        return "; ".join(reasons) or "the caches count in different units"


def collect_prefix_cache_metrics(
    endpoints: Sequence[str],
    before_snapshot: MetricsSnapshot,
    after_snapshot: MetricsSnapshot,
    *,
    adapter: str | None = None,
) -> PrefixCacheRuntimeMetrics:
    """The growth of the counters of every cache behind these metrics addresses.

    Both snapshots must have been taken while the servers were idle. `adapter` names the engine;
    without it each page is recognised by its families.
    """
    rows: list[InstanceMetrics] = []
    used: Adapter | None = None
    for endpoint in endpoints:
        before, after = before_snapshot.scrape(endpoint), after_snapshot.scrape(endpoint)
        engine = _adapter(adapter, before, after)
        used = used or engine
        rows.extend(_endpoint_rows(endpoint, before, after, engine))
    return PrefixCacheRuntimeMetrics(adapter=used.name if used else None, instances=tuple(rows))


def combined(tally: HitTally | None, external: HitTally | None) -> HitTally | None:
    """Hits of both tiers out of the local queries, which are all prompt tokens."""
    if tally is None or external is None or tally.unit is not external.unit:
        return None
    return HitTally(tally.hits + external.hits, tally.queries, tally.unit)


def _adapter(name: str | None, before: Scrape, after: Scrape) -> Adapter | None:
    if name is not None:
        return ADAPTERS[name]
    pages = [scrape.page for scrape in (after, before) if scrape.page is not None]
    return next((found for found in map(detect_adapter, pages) if found), None)


def _endpoint_rows(
    endpoint: str, before: Scrape, after: Scrape, adapter: Adapter | None
) -> list[InstanceMetrics]:
    if before.page is None or after.page is None:
        error = after.error or before.error
        return [_gap(endpoint, None, Gap.UNREACHABLE, error.message if error else None)]
    if adapter is None:
        return [_gap(endpoint, None, Gap.UNKNOWN_FAMILIES)]
    reading = choose_reading(after.page, adapter)
    if reading is None:
        rate_only = any(after.page.has(name) for name in adapter.rate_gauges)
        return [_gap(endpoint, None, Gap.RATE_ONLY if rate_only else Gap.UNKNOWN_FAMILIES)]
    return _Window(endpoint, before.page, after.page, adapter, reading).rows()


class _Window:
    """The time between two pages of one address."""

    def __init__(
        self,
        endpoint: str,
        before: Exposition,
        after: Exposition,
        adapter: Adapter,
        reading: Reading,
    ) -> None:
        self._endpoint = endpoint
        self._adapter = adapter
        self._reading = reading
        self._before = engine_counters(before, adapter, reading)
        self._after = engine_counters(after, adapter, reading)
        self._configs = engine_configs(after, adapter)
        self._restarted = process_start(before) != process_start(after)

    def rows(self) -> list[InstanceMetrics]:
        return [self._row(engine) for engine in sorted(self._before.keys() | self._after.keys())]

    def _row(self, engine: str) -> InstanceMetrics:
        # Labelled counters of a server that served nothing yet may not be on its page at all.
        before = self._before.get(engine, None if self._before else _UNTOUCHED)
        after = self._after.get(engine)
        if after is None:
            return _gap(self._endpoint, engine, Gap.VANISHED)
        if before is None:
            return _gap(self._endpoint, engine, Gap.APPEARED)
        if self._restarted or _began_anew(before, after):
            return _gap(self._endpoint, engine, Gap.COUNTER_RESET)
        return self._grown(engine, before, after)

    def _grown(self, engine: str, before: EngineCounters, after: EngineCounters) -> InstanceMetrics:
        queries, hits = _growth(before.queries, after.queries), _growth(before.hits, after.hits)
        prompt_tokens = _growth(before.prompt_tokens, after.prompt_tokens)
        if queries is None or hits is None:
            return _gap(self._endpoint, engine, Gap.UNKNOWN_FAMILIES)
        if hits > queries:
            return _gap(self._endpoint, engine, Gap.IMPOSSIBLE)
        unit = self._reading.unit or _told_apart(queries, prompt_tokens)
        if unit is None:
            return _gap(self._endpoint, engine, Gap.UNKNOWN_UNIT)
        return InstanceMetrics(
            endpoint=self._endpoint,
            engine=engine,
            tally=HitTally(hits, queries, unit),
            rule=self._reading.rule,
            external=_external(before, after, unit),
            prompt_tokens=prompt_tokens,
            preemptions=_growth(before.preemptions, after.preemptions),
            evictions=_growth(before.evictions, after.evictions),
            eviction_unit=self._adapter.eviction_unit,
            config=self._configs.get(engine, EngineConfig()),
        )


def _external(before: EngineCounters, after: EngineCounters, unit: Unit) -> HitTally | None:
    queries = _growth(before.external_queries, after.external_queries)
    hits = _growth(before.external_hits, after.external_hits)
    return None if queries is None or hits is None else HitTally(hits, queries, unit)


def _began_anew(before: EngineCounters, after: EngineCounters) -> bool:
    if any(
        after.created.get(series, moment) != moment for series, moment in before.created.items()
    ):
        return True
    return any(
        growth is not None and growth < 0
        for growth in (
            _growth(before.queries, after.queries),
            _growth(before.hits, after.hits),
            _growth(before.external_queries, after.external_queries),
            _growth(before.external_hits, after.external_hits),
        )
    )


def _growth(before: int | None, after: int | None) -> int | None:
    return None if before is None or after is None else after - before


def _told_apart(queries: int, prompt_tokens: int | None) -> Unit | None:
    if not prompt_tokens:
        return None
    return Unit.BLOCK if queries < _BLOCKS_BELOW * prompt_tokens else Unit.TOKEN


def _gap(endpoint: str, engine: str | None, gap: Gap, detail: str | None = None) -> InstanceMetrics:
    return InstanceMetrics(
        endpoint=endpoint, engine=engine, gap=gap, reason=detail or _GAP_TEXTS[gap]
    )


def _sum(tallies: Iterable[HitTally | None]) -> HitTally | None:
    known = [tally for tally in tallies if tally is not None]
    if not known or len({tally.unit for tally in known}) > 1:
        return None
    return total(known, known[0].unit)
