"""Settings that are legal but probably not meant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prefixbench.config.target import TargetSemantics
from prefixbench.core.records import CacheScope

if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig


def advice_on(config: PrefixCacheDatasetConfig) -> Iterator[str]:
    """One sentence a warning, beginning with the key it is about."""
    yield from _on_scope(config)
    yield from _on_semantics(config)
    if config.execution.concurrency > 1 and config.planning.concurrency == 1:
        yield (
            f"execution.concurrency: {config.execution.concurrency} sends requests before their"
            " predecessors are cached; the plan assumes one at a time (planning.concurrency)"
        )
    if len(config.execution.urls) > config.routing.instances:
        yield (
            f"execution.urls names {len(config.execution.urls)} addresses, but"
            f" routing.instances: {config.routing.instances} plans for fewer"
        )


def _on_scope(config: PrefixCacheDatasetConfig) -> Iterator[str]:
    routing = config.routing
    if routing.cache_scope is CacheScope.DP_LOCAL and routing.rank_count == 1:
        yield "routing.cache_scope: dp_local equals global with routing.dp_size: 1"
    if routing.cache_scope is CacheScope.INSTANCE_LOCAL and routing.instances == 1:
        yield "routing.cache_scope: instance_local equals global with routing.instances: 1"


def _on_semantics(config: PrefixCacheDatasetConfig) -> Iterator[str]:
    semantics, mode = config.target.semantics, config.execution.mode
    if semantics is TargetSemantics.ORDER_AWARE_GLOBAL and mode.is_warmed:
        yield (
            f"target.semantics: {semantics} counts from a cold cache,"
            f" but execution.mode: {mode} warms it"
        )
    if semantics is TargetSemantics.STATIC_PREFIX_RATIO and not mode.is_warmed:
        yield (
            f"target.semantics: {semantics} counts on a warmed cache,"
            f" but execution.mode: {mode} starts cold: the designed ratio of the run is lower"
        )
