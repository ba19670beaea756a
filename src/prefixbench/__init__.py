"""prefixbench plans, proves, runs and explains prefix-cache benchmarks of LLM servers.

Names load when they are first used, so `import prefixbench` costs next to nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from prefixbench.core.version import __version__

#: Public name -> the module that defines it.
_HOMES = {
    "generate_prefix_cache_dataset": "pipeline",
    "DatasetGenerationResult": "pipeline",
    "generate_request_lengths": "workload.lengths",
    "allocate_prefix_groups": "workload.groups",
    "validate_target_reachability": "workload.interface",
    "plan_prefix_lengths": "workload.interface",
    "ReachabilityResult": "workload.interface",
    "PrefixPlanningResult": "workload.interface",
    "validate_theoretical_hit_rate": "workload.verdict",
    "ValidationReport": "workload.verdict",
    "generate_master_prefixes": "content.stages",
    "generate_request_suffix": "content.stages",
    "SuffixGenerationResult": "content.stages",
    "TokenizerProtocol": "content.tokenizer",
    "validate_block_collisions": "content.collide",
    "CollisionValidationResult": "content.collide",
    "BlockRegistry": "content.collide",
    "simulate_prefix_cache_watermarks": "simulator.watermark",
    "PrefixCacheSimulationResult": "simulator.watermark",
    "SchedulerStats": "simulator.stats",
    "PrefixCacheStats": "simulator.stats",
    "compute_ttft": "simulator.stats",
    "compute_tpot": "simulator.stats",
    "percentile": "core.percentiles",
    "RequestPlan": "core.records",
    "PrefixGroupPlan": "core.records",
    "PrefixCacheDatasetConfig": "config.dataset",
    "LengthDistributionConfig": "config.lengths",
    "PrefixGroupConfig": "config.prefix",
    "TargetHitRateConfig": "config.target",
    "DataSourceConfig": "config.suffix",
    "SuffixGenerationConfig": "config.suffix",
    "CollisionDetectionConfig": "config.suffix",
    "DatasetManifest": "dataset.manifest",
    "collect_prefix_cache_metrics": "run.cache_metrics",
    "MetricsSnapshot": "run.snapshot",
    "PrefixCacheRuntimeMetrics": "run.cache_metrics",
    "RuntimeMetrics": "run.journal",
    "PerformanceResult": "run.performance",
    "build_prefix_cache_report": "explain.report",
    "PrefixCacheReport": "explain.report",
}

__all__ = ["__version__", *_HOMES]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'prefixbench' has no attribute {name!r}")
    return getattr(import_module(f"prefixbench.{home}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig as PrefixCacheDatasetConfig
    from prefixbench.pipeline import (
        generate_prefix_cache_dataset as generate_prefix_cache_dataset,
    )
