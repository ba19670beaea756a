"""Kinds of metric families: how a native name shows a quantity of the server's state."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric

from prefixbench.server.counters import Histogram, RankCounters
from prefixbench.simulator.routing import RankLoad

#: Numbers of an engine version, as tuples compare: (0, 11, 2) < (0, 12).
Version = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RankState:
    """One rank at the moment of a scrape."""

    rank: int
    counters: RankCounters
    load: RankLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerState:
    """The server at the moment of a scrape.

    `version` is the engine version whose page is shown; `cache_config` are the labels of the info
    gauge, of all versions.
    """

    version: Version
    model: str
    started_s: float
    cache_config: Mapping[str, str]
    ranks: Sequence[RankState]


#: The labels that a page puts on every sample of a rank, given the model's name and the rank.
RankLabels = Callable[[str, int], Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Row:
    """One sample of a family: the values of its extra labels, and the number."""

    number: float
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family(ABC):
    """A native name and the versions that have it, first and last included."""

    name: str
    help: str
    since: Version = ()
    until: Version | None = None

    def exists_in(self, version: Version) -> bool:
        return self.since <= version and (self.until is None or version <= self.until)

    @abstractmethod
    def metric(self, state: ServerState, rank_labels: RankLabels) -> Metric:
        """The family with a sample for each rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CounterFamily(Family):
    """A family that only grows; `_total` is added on the page, `_created` where it is stated."""

    rows: Callable[[RankCounters], Iterable[Row]]
    extra_labels: tuple[str, ...] = ()
    states_created: bool = True

    def metric(self, state: ServerState, rank_labels: RankLabels) -> Metric:
        names = [*rank_labels(state.model, 0), *self.extra_labels]
        family = CounterMetricFamily(self.name, self.help, labels=names)
        for rank in state.ranks:
            created = rank.counters.started_s if self.states_created else None
            for row in self.rows(rank.counters):
                labels = [*rank_labels(state.model, rank.rank).values(), *row.labels]
                family.add_metric(labels, row.number, created=created)
        return family


@dataclass(frozen=True, slots=True, kw_only=True)
class GaugeFamily(Family):
    """A family that shows the present, or a count in the form of one."""

    number: Callable[[RankState], float]

    def metric(self, state: ServerState, rank_labels: RankLabels) -> Metric:
        family = GaugeMetricFamily(self.name, self.help, labels=[*rank_labels(state.model, 0)])
        for rank in state.ranks:
            labels = rank_labels(state.model, rank.rank).values()
            family.add_metric([*labels], self.number(rank))
        return family


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramFamily(Family):
    """A family of durations in seconds."""

    histogram: Callable[[RankCounters], Histogram]

    def metric(self, state: ServerState, rank_labels: RankLabels) -> Metric:
        family = HistogramMetricFamily(self.name, self.help, labels=[*rank_labels(state.model, 0)])
        for rank in state.ranks:
            histogram = self.histogram(rank.counters)
            labels = rank_labels(state.model, rank.rank).values()
            family.add_metric([*labels], histogram.cumulative(), histogram.sum)
        return family


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheConfigFamily(Family):
    """A gauge that is always 1 and says the cache's configuration in its labels.

    `labels` are the names, each with the first version that has it.
    """

    labels: Mapping[str, Version]

    def metric(self, state: ServerState, _: RankLabels) -> Metric:
        names = [name for name, since in self.labels.items() if since <= state.version]
        family = GaugeMetricFamily(self.name, self.help, labels=["engine", *names])
        for rank in state.ranks:
            values = [state.cache_config[name] for name in names]
            family.add_metric([str(rank.rank), *values], 1)
        return family


@dataclass(frozen=True, slots=True, kw_only=True)
class StartTimeFamily(Family):
    """The start of the process in Unix seconds, without labels."""

    def metric(self, state: ServerState, _: RankLabels) -> Metric:
        return GaugeMetricFamily(self.name, self.help, value=state.started_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One engine's page, and what else a client sees of the engine.

    `tells_ranks`: whether its labels tell the caches of a server apart; `returns_token_ids`:
    whether it heeds the field of that name, instead of passing over it.
    """

    families: Sequence[Family]
    rank_labels: RankLabels
    tells_ranks: bool = True
    returns_token_ids: bool = True
