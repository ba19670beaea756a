"""One metrics page, read through an adapter: what each cache in the server has counted so far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from prefixbench.run.exposition import Exposition, Sample, whole_number
from prefixbench.run.families import ADAPTERS, PROCESS_START, Adapter, Reading, Term

#: Name of the only cache of a server whose pages tell no ranks apart.
ONLY_ENGINE = "0"

#: Names a counter of one label set.
SeriesKey = tuple[str, frozenset[tuple[str, str]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCounters:
    """Cumulative counts of one cache; None where the page has no such family.

    `created` are the moments at which its counters began, as far as the page states them.
    """

    queries: int | None = None
    hits: int | None = None
    external_queries: int | None = None
    external_hits: int | None = None
    preemptions: int | None = None
    evictions: int | None = None
    prompt_tokens: int | None = None
    created: Mapping[SeriesKey, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineGauges:
    """The present state of one cache: share of its blocks in use, and requests."""

    usage: float | None = None
    running: float | None = None
    waiting: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """What a page tells of a cache's configuration; None where it does not."""

    block_size: int | None = None
    hit_granularity: int | None = None
    num_blocks: int | None = None
    enable_prefix_caching: bool | None = None
    hash_algo: str | None = None


def detect_adapter(page: Exposition) -> Adapter | None:
    """The engine whose families are on the page; None if none is known."""
    for adapter in ADAPTERS.values():
        if any(page.has(sign) for sign in adapter.signs):
            return adapter
    return None


def choose_reading(page: Exposition, adapter: Adapter) -> Reading | None:
    """The best reading whose families are all on the page."""
    return next((reading for reading in adapter.readings if _is_on(page, reading)), None)


def process_start(page: Exposition) -> float | None:
    """Start of the server's process, if the page states one."""
    samples = page.of(PROCESS_START)
    return samples[0].value if samples else None


def engine_counters(
    page: Exposition, adapter: Adapter, reading: Reading | None
) -> dict[str, EngineCounters]:
    """Counts of every cache on the page, by its label.

    A family that is there without a sample of a cache counts 0 for it: it was never raised.
    """
    quantities = _quantities(page, adapter, reading)
    sums = {name: _sums(page, adapter, terms) for name, terms in quantities.items()}
    created = _created(page, adapter, reading)
    return {
        engine: EngineCounters(
            **{name: whole_number(sums[name].get(engine, 0.0)) for name in sums},
            created=created[engine],
        )
        for engine in _engines(sums)
    }


def engine_gauges(page: Exposition, adapter: Adapter) -> dict[str, EngineGauges]:
    """Load of every cache on the page, by its label."""
    gauges = {
        "usage": _sums(page, adapter, _first_there(page, adapter.usage)),
        "running": _sums(page, adapter, _first_there(page, adapter.running)),
        "waiting": _sums(page, adapter, _first_there(page, adapter.waiting)),
    }
    return {
        engine: EngineGauges(**{name: values.get(engine) for name, values in gauges.items()})
        for engine in _engines(gauges)
    }


def engine_configs(page: Exposition, adapter: Adapter) -> dict[str, EngineConfig]:
    """Configuration of every cache, from the labels of vLLM's `cache_config_info`."""
    if adapter.config_info is None:
        return {}
    return {
        _engine_of(sample, adapter): EngineConfig(
            block_size=_integer(sample.labels.get("block_size")),
            hit_granularity=_integer(sample.labels.get("cache_hit_alignment_tokens")),
            num_blocks=_integer(sample.labels.get("num_gpu_blocks")),
            enable_prefix_caching=_truth(sample.labels.get("enable_prefix_caching")),
            hash_algo=sample.labels.get("prefix_caching_hash_algo"),
        )
        for sample in page.of(adapter.config_info)
    }


def _quantities(
    page: Exposition, adapter: Adapter, reading: Reading | None
) -> dict[str, tuple[Term, ...]]:
    """The terms of every quantity that the page has."""
    external = adapter.external if adapter.external and _is_on(page, adapter.external) else None
    quantities = {
        "queries": reading.queries if reading else (),
        "hits": reading.hits if reading else (),
        "external_queries": external.queries if external else (),
        "external_hits": external.hits if external else (),
        "preemptions": _first_there(page, adapter.preemptions),
        "evictions": _first_there(page, adapter.evictions),
        "prompt_tokens": _first_there(page, adapter.prompt_tokens),
    }
    return {name: terms for name, terms in quantities.items() if terms}


def _is_on(page: Exposition, reading: Reading) -> bool:
    return all(page.has(term.family) for term in (*reading.queries, *reading.hits))


def _first_there(page: Exposition, families: Iterable[str]) -> tuple[Term, ...]:
    return next(((Term(family),) for family in families if page.has(family)), ())


def _sums(page: Exposition, adapter: Adapter, terms: Iterable[Term]) -> dict[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for term in terms:
        for sample in _first_replica(page.of(term.family), adapter):
            if not term.values or sample.labels.get(term.label) in term.values:
                sums[_engine_of(sample, adapter)] += sample.value
    return dict(sums)


def _engines(sums: Mapping[str, Mapping[str, float]]) -> list[str]:
    return sorted({engine for by_engine in sums.values() for engine in by_engine})


def _created(
    page: Exposition, adapter: Adapter, reading: Reading | None
) -> defaultdict[str, dict[SeriesKey, float]]:
    moments: defaultdict[str, dict[SeriesKey, float]] = defaultdict(dict)
    terms = (*reading.queries, *reading.hits) if reading else ()
    for family in {term.family for term in terms}:
        for sample in page.created.get(family, ()):
            series = (family, frozenset(sample.labels.items()))
            moments[_engine_of(sample, adapter)][series] = sample.value
    return moments


def _first_replica(samples: Iterable[Sample], adapter: Adapter) -> list[Sample]:
    """Without the samples of further replicas, which count the same tokens again."""
    rows = list(samples)
    for label in adapter.replica_labels:
        values = {sample.labels[label] for sample in rows if label in sample.labels}
        if values:
            first = min(values)
            rows = [sample for sample in rows if sample.labels.get(label, first) == first]
    return rows


def _engine_of(sample: Sample, adapter: Adapter) -> str:
    named = (sample.labels.get(label) for label in adapter.engine_labels)
    return next((value for value in named if value), ONLY_ENGINE)


def _integer(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None


def _truth(text: str | None) -> bool | None:
    return {"true": True, "false": False}.get((text or "").lower())
