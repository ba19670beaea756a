"""Results of the Python API as the documents that a run directory holds.

A report is made of documents, so that it can be made again from files alone; who calls the stages
one by one (RFC 3.5.2) hands over the objects instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from prefixbench.core.tally import as_rate

if (
    TYPE_CHECKING
):  # the run room brings a network client along, which a reader of files has no use for
    from prefixbench.run.cache_metrics import InstanceMetrics, PrefixCacheRuntimeMetrics
    from prefixbench.run.performance import PerformanceResult
    from prefixbench.workload.verdict import ValidationReport

Document = Mapping[str, Any]


def validation_document(report: ValidationReport | Document) -> Document:
    """The keys of validation_report.json that a judgement of one ratio has."""
    if isinstance(report, Mapping):
        return report
    return {
        **report.deviation_keys(),
        "deviation_pp": float(report.deviation_pp),
        "validation_status": report.validation_status,
        "input_tokens": report.input_tokens,
        "expected_hit_tokens": report.expected_hit_tokens,
    }


def performance_document(result: PerformanceResult | Document) -> Document:
    """performance_metrics.json."""
    return result if isinstance(result, Mapping) else result.to_json()


def counters_document(
    metrics: PrefixCacheRuntimeMetrics | Document, *, phase: str, designed: float
) -> Document:
    """prefix_cache_metrics.json; the objects know one phase, the one they were collected in."""
    if isinstance(metrics, Mapping):
        return metrics
    tally = metrics.tally
    row = {
        "phase": phase,
        "round": 1,
        "designed_hit_ratio": designed,
        "queries": None if tally is None else tally.queries,
        "hits": None if tally is None else tally.hits,
        "unit": metrics.unit,
        "reason": metrics.reason,
    }
    return {
        "adapter": metrics.adapter,
        "unit": metrics.unit,
        "global": {
            "external": None if metrics.external is None else {"hits": metrics.external.hits},
            "partial": metrics.is_partial,
        },
        "phases": [row],
        "instances": [_instance(instance) for instance in metrics.instances],
    }


def _instance(instance: InstanceMetrics) -> dict[str, Any]:
    """One cache, without the address that it was read from."""
    tally = instance.tally
    return {
        "engine": instance.engine,
        "queries": None if tally is None else tally.queries,
        "hits": None if tally is None else tally.hits,
        "hit_rate": None if tally is None else as_rate(tally),
        "preemptions": instance.preemptions,
        "evictions": {"count": instance.evictions, "unit": instance.eviction_unit},
        "block_size": instance.config.block_size,
        "num_blocks": instance.config.num_blocks,
    }
