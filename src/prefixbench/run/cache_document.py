"""`prefix_cache_metrics.json`: a row for each phase, and the headline phase summed over its rounds.

Works on rows as they stand in the file, so that a resumed run adds to those of before. A sum with
a missing part is none: a rank whose counters are void in one round has no figure for all rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from prefixbench.core.tally import HitTally, Unit, as_rate, total
from prefixbench.run.cache_metrics import (
    InstanceMetrics,
    PrefixCacheRuntimeMetrics,
    combined,
)
from prefixbench.run.checks import PhaseFacts

Row = Mapping[str, Any]


def phase_row(facts: PhaseFacts, *, is_complete: bool) -> dict[str, Any]:
    """A phase's row: what was planned, what the counters say, and why where they say nothing."""
    metrics, designed = facts.metrics, facts.designed
    tally = metrics.tally
    return {
        "phase": facts.phase.name,
        "round": facts.phase.round,
        "complete": is_complete,
        "cache_state_before": facts.isolated.cache_state,
        "isolation": facts.isolated.method,
        "isolation_verified": facts.isolated.verified,
        "warmed": facts.phase.warmed,
        "warmup_requests": facts.warm_up.sent if facts.warm_up else 0,
        "designed_hit_ratio": as_rate(designed),
        "designed_hits": designed.hits,
        "designed_queries": designed.queries,
        "adapter": metrics.adapter,
        "unit": metrics.unit,
        **_figures(tally, metrics.external),
        "runtime_deviation": _deviation(tally, designed) if is_complete else None,
        "partial": metrics.is_partial,
        "reason": metrics.reason,
        "usage": facts.witness.to_json(),
        "instances": [_instance_row(row, facts.labels) for row in metrics.instances],
    }


def cache_document(
    rows: Sequence[Row], checks: Sequence[Row], *, headline: str, identity: Row
) -> dict[str, Any]:
    """The whole file."""
    counted = [row for row in rows if row["phase"] == headline]
    instances = _summed_instances(counted)
    known = [row for row in instances if row["queries"] is not None]
    return {
        **identity,
        "headline": headline,
        "adapter": next((row["adapter"] for row in rows if row["adapter"]), None),
        "unit": next((row["unit"] for row in counted if row["unit"]), None),
        "global": _global(instances, known),
        "by_endpoint": _grouped(instances, ("endpoint",)),
        "by_dp": _grouped(instances, ("endpoint", "dp_id")),
        "phases": list(rows),
        "usage": _summed_usage(counted),
        "instances": instances,
        "checks": list(checks),
    }


def metrics_of(row: Row) -> PrefixCacheRuntimeMetrics:
    """The metrics of a phase's row again, as far as the row keeps them."""
    return PrefixCacheRuntimeMetrics(
        adapter=row["adapter"],
        instances=tuple(
            InstanceMetrics(
                endpoint=instance["endpoint"],
                engine=instance["engine"],
                tally=_tally(instance),
                external=_tally(instance["external"] or {}, instance["unit"]),
                preemptions=instance["preemptions"],
                gap=instance["gap"],
                reason=instance["reason"],
            )
            for instance in row["instances"]
        ),
    )


def _instance_row(row: InstanceMetrics, labels: Mapping[str, str]) -> dict[str, Any]:
    return {
        "endpoint": labels.get(row.endpoint),
        "engine": row.engine,
        "dp_id": int(row.engine) if row.engine and row.engine.isdecimal() else None,
        "unit": row.tally.unit if row.tally else None,
        "counting_rule": row.rule,
        **_figures(row.tally, row.external),
        "kv_cache_usage": asdict(row.kv_cache_usage) if row.kv_cache_usage else None,
        "not_measured": _not_measured(row),
        "preemptions": row.preemptions,
        "evictions": {"count": row.evictions, "unit": row.eviction_unit},
        "block_size": row.config.block_size,
        "num_blocks": row.config.num_blocks,
        "gap": row.gap,
        "reason": row.reason,
    }


def _not_measured(row: InstanceMetrics) -> dict[str, str]:
    """Why figures of the row are null, beside those that `reason` explains."""
    silent = "the metrics page does not tell"
    reasons = {
        "kv_cache_usage": (row.kv_cache_usage, "no sample was taken while requests ran"),
        "external": (row.external, silent),
        "preemptions": (row.preemptions, silent),
        "evictions": (row.evictions, silent),
        "block_size": (row.config.block_size, silent),
        "num_blocks": (row.config.num_blocks, silent),
    }
    return {name: reason for name, (figure, reason) in reasons.items() if figure is None}


def _figures(tally: HitTally | None, external: HitTally | None) -> dict[str, Any]:
    both = combined(tally, external)
    return {
        "queries": tally.queries if tally else None,
        "hits": tally.hits if tally else None,
        "hit_rate": as_rate(tally) if tally else None,
        "external": None
        if external is None
        else {
            "queries": external.queries,
            "hits": external.hits,
            "hit_rate": as_rate(external),
        },
        "combined_hit_rate": as_rate(both) if both else None,
    }


def _deviation(tally: HitTally | None, designed: HitTally) -> float | None:
    """Measured less designed; units that differ cannot be compared (RFC 4.9)."""
    if tally is None or tally.unit is not Unit.TOKEN:
        return None
    if tally.ratio is None or designed.ratio is None:
        return None
    return float(tally.ratio - designed.ratio)


def _tally(row: Row, unit: str | None = None) -> HitTally | None:
    if row.get("queries") is None:
        return None
    return HitTally(row["hits"], row["queries"], Unit(unit or row["unit"]))


def _summed_instances(phases: Sequence[Row]) -> list[dict[str, Any]]:
    by_cache: dict[tuple[Any, Any], list[Row]] = {}
    for phase in phases:
        for row in phase["instances"]:
            by_cache.setdefault((row["endpoint"], row["engine"]), []).append(row)
    return [_summed_instance(rows, rounds=len(phases)) for rows in by_cache.values()]


def _summed_instance(rows: Sequence[Row], *, rounds: int) -> dict[str, Any]:
    """One cache over all rounds. Rounds it is missing in make its sum none."""
    last = rows[-1]
    whole = len(rows) == rounds
    tally = _sum(map(_tally, rows)) if whole else None
    external = _sum(_tally(row["external"] or {}, row["unit"]) for row in rows) if whole else None
    missing = next((row for row in rows if row["gap"]), None)
    return {
        **last,
        **_figures(tally, external),
        "unit": tally.unit if tally else None,
        "preemptions": _int_sum(row["preemptions"] for row in rows),
        "evictions": {
            "count": _int_sum(row["evictions"]["count"] for row in rows),
            "unit": last["evictions"]["unit"],
        },
        "gap": missing["gap"] if missing else None,
        "reason": missing["reason"] if missing else None,
    }


def _global(instances: Sequence[Row], known: Sequence[Row]) -> dict[str, Any]:
    tally, external = _sums_of(known)
    reasons = dict.fromkeys(row["reason"] for row in instances if row["reason"])
    return {
        **_figures(tally, external),
        "partial": bool(known) and len(known) < len(instances),
        "reason": None if tally else "; ".join(reasons) or "nothing was measured",
    }


def _grouped(instances: Sequence[Row], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in instances:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return [
        dict(zip(keys, group, strict=True))
        | _figures(*_sums_of([row for row in rows if row["queries"] is not None]))
        | {"partial": any(row["queries"] is None for row in rows)}
        for group, rows in groups.items()
    ]


def _sums_of(rows: Sequence[Row]) -> tuple[HitTally | None, HitTally | None]:
    return _sum(map(_tally, rows)), _sum(_tally(row["external"] or {}, row["unit"]) for row in rows)


def _sum(tallies: Iterable[HitTally | None]) -> HitTally | None:
    """None if a part is missing, if there is none, or if units differ."""
    parts = list(tallies)
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts) or len({part.unit for part in known}) > 1:
        return None
    return total(known, known[0].unit)


def _summed_usage(phases: Sequence[Row]) -> dict[str, Any]:
    usages = [phase["usage"] for phase in phases]
    return {
        "prompt_tokens": _int_sum(usage["prompt_tokens"] for usage in usages),
        "cached_tokens": _int_sum(usage["cached_tokens"] for usage in usages),
        "requests_with_hit_rate": sum(usage["requests_with_hit_rate"] for usage in usages),
    }


def _int_sum(counts: Iterable[int | None]) -> int | None:
    parts = list(counts)
    known = [part for part in parts if part is not None]
    return sum(known) if known and len(known) == len(parts) else None
