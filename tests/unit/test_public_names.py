"""The Python interface: every name the package promises, with the parameters of RFC 3.5.2."""

from __future__ import annotations

import inspect

import pytest

import prefixbench

#: Function of RFC 3.5.2 -> its parameters there, in order.
RFC_PARAMETERS = {
    "generate_prefix_cache_dataset": ["config"],
    "generate_request_lengths": ["config", "request_count", "seed"],
    "allocate_prefix_groups": ["requests", "config"],
    "validate_target_reachability": [
        "groups",
        "target",
        "block_size",
        "minimum_non_shared_length",
    ],
    "plan_prefix_lengths": ["groups", "target", "block_size", "minimum_non_shared_length"],
    "generate_master_prefixes": ["groups", "data_source", "tokenizer"],
    "generate_request_suffix": ["request", "config", "tokenizer"],
    "validate_block_collisions": ["request_tokens", "group_registry", "config"],
    "simulate_prefix_cache_watermarks": ["requests", "cache_scope"],
    "validate_theoretical_hit_rate": [
        "simulation",
        "target_hit_ratio",
        "pass_tolerance",
        "warning_tolerance",
    ],
    "collect_prefix_cache_metrics": ["endpoints", "before_snapshot", "after_snapshot"],
    "build_prefix_cache_report": [
        "manifest",
        "validation",
        "runtime_metrics",
        "performance_result",
    ],
}

TYPES_AND_STATISTICS = [
    "PrefixCacheDatasetConfig",
    "LengthDistributionConfig",
    "PrefixGroupConfig",
    "TargetHitRateConfig",
    "DataSourceConfig",
    "SuffixGenerationConfig",
    "CollisionDetectionConfig",
    "RequestPlan",
    "PrefixGroupPlan",
    "DatasetManifest",
    "ValidationReport",
    "RuntimeMetrics",
    "PrefixCacheRuntimeMetrics",
    "MetricsSnapshot",
    "PerformanceResult",
    "PrefixCacheReport",
    "DatasetGenerationResult",
    "ReachabilityResult",
    "PrefixPlanningResult",
    "SuffixGenerationResult",
    "CollisionValidationResult",
    "PrefixCacheSimulationResult",
    "TokenizerProtocol",
    "BlockRegistry",
    "SchedulerStats",
    "PrefixCacheStats",
    "percentile",
    "compute_ttft",
    "compute_tpot",
]


@pytest.mark.parametrize("name", sorted({*prefixbench.__all__, *TYPES_AND_STATISTICS}))
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(prefixbench, name) is not None


@pytest.mark.parametrize(("name", "parameters"), RFC_PARAMETERS.items())
def test_functions_take_what_the_rfc_gives_them(name: str, parameters: list[str]) -> None:
    signature = inspect.signature(getattr(prefixbench, name))
    signature.bind(*parameters)  # further parameters have defaults
    assert list(signature.parameters)[: len(parameters)] == parameters


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = prefixbench.no_such_name
