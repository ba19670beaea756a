"""The metrics page in Prometheus' text format."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from prefixbench.server.dialects import DIALECTS
from prefixbench.server.families import Dialect, ServerState


def render_metrics(state: ServerState, dialect: str) -> str:
    """The page in Prometheus' text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(state, DIALECTS[dialect]))
    return generate_latest(registry).decode()


class _Snapshot(Collector):
    """Hands a finished state to Prometheus' renderer."""

    def __init__(self, state: ServerState, dialect: Dialect) -> None:
        self._state = state
        self._dialect = dialect

    def collect(self) -> Iterator[Metric]:
        state, dialect = self._state, self._dialect
        return (
            family.metric(state, dialect.rank_labels)
            for family in dialect.families
            if family.exists_in(state.version)
        )
