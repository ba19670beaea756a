"""Writes run directories without a server: a block cache of its own plays the runs.

The cache here is a set of (cache, group, block) keys that are published when a request gets its
first token. It shares no code with the product and knows nothing of watermarks.
"""

from __future__ import annotations

import hashlib
import heapq
import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

MS = 1_000_000
DATASET_ID = "synthetic_60"


@dataclass(frozen=True, kw_only=True)
class World:
    """What is planned, and what happens instead."""

    requests: int = 60
    groups: tuple[str, ...] = ("customer_a", "customer_b", "customer_c")
    shortest: int = 256
    longest: int = 1024
    target: float = 0.6
    theta: float | None = None
    block: int = 16
    head: int = 0
    ranks: int = 1
    scope: str = "global"
    mode: str = "progressive_prefix_fill"
    semantics: str = "order_aware_global"
    concurrency: int = 1
    rounds: int = 1
    seed: int = 7
    # What happens instead of the plan:
    failing: frozenset[int] = frozenset()
    residue: int = 0
    extra_tokens: int = 0
    server_step: int | None = None
    foreign_queries: int = 0
    foreign_hits: int = 0
    misrouted: bool = False
    forgetful: bool = False
    evictions: int | None = None
    reports_cached: bool = True
    counters: bool = True
    gap: str | None = None
    caching: bool = True
    num_blocks: int | None = 100_001
    checks: tuple[dict[str, Any], ...] = ()
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass
class Row:
    """One planned request."""

    request_id: str
    group: str
    rank: int
    input_len: int
    prefix: int
    hits: int = 0
    before: int = 0
    after: int = 0


def planned_rows(world: World) -> list[Row]:
    """Lengths, groups and prefixes; hits as an unlimited cache gives them in this order."""
    rng = random.Random(world.seed)
    lengths = [rng.randint(world.shortest, world.longest) for _ in range(world.requests)]
    low, high = (0.0, 1.0) if world.theta is None else (world.theta, world.theta)
    rows: list[Row] = []
    for _ in range(40 if world.theta is None else 1):
        theta = (low + high) / 2
        rows = [_row(world, index, length, theta) for index, length in enumerate(lengths)]
        _expect(world, rows)
        ratio = sum(row.hits for row in rows) / sum(lengths)
        low, high = (theta, high) if ratio < world.target else (low, theta)
    return rows


def _row(world: World, index: int, length: int, theta: float) -> Row:
    group = index % len(world.groups)
    dither = (index * 0.6180339887) % 1.0
    blocks = int(theta * length / world.block + dither)
    blocks = max(0, min(blocks, (length - world.block) // world.block))
    return Row(
        request_id=f"r{index:06d}",
        group=world.groups[group],
        rank=group % world.ranks,
        input_len=length,
        prefix=max(blocks * world.block, world.head),
    )


def is_warm(world: World) -> bool:
    return world.semantics == "static_prefix_ratio"


def _expect(world: World, rows: list[Row]) -> None:
    cache = BlockCache(world)
    if is_warm(world):
        for row in rows:
            cache.store(row, row.rank)
    for row in rows:
        row.before = cache.depth(row, row.rank)
        row.hits = cache.found(row, row.rank)
        cache.store(row, row.rank)
        row.after = cache.depth(row, row.rank)


class BlockCache:
    """Keys of stored blocks; the head's blocks belong to no group."""

    def __init__(self, world: World, step: int | None = None) -> None:
        self._step = step or world.block
        self._head = world.head
        self._local = world.scope != "global"
        self._keys: set[tuple[int, str, int]] = set()

    def store(self, row: Row, rank: int, depth: int | None = None) -> None:
        for key in self._path(row, rank, row.prefix if depth is None else depth):
            self._keys.add(key)

    def found(self, row: Row, rank: int) -> int:
        hits = 0
        for key in self._path(row, rank, row.prefix):
            if key not in self._keys:
                break
            hits += self._step
        return hits

    def depth(self, row: Row, rank: int) -> int:
        depth = 0
        while next(iter(self._path(row, rank, depth + self._step, first=depth))) in self._keys:
            depth += self._step
        return depth

    def _path(
        self, row: Row, rank: int, depth: int, first: int = 0
    ) -> Iterable[tuple[int, str, int]]:
        cache = rank if self._local else 0
        for start in range(first, depth - self._step + 1, self._step):
            inside_head = start + self._step <= self._head
            yield cache, "" if inside_head else row.group, start


def write_run(folder: Path, world: World | None = None, **changes: Any) -> Path:
    """Write a finished run; `changes` are fields of World."""
    world = world or World(**changes)
    rows = planned_rows(world)
    manifest_sha256 = _write_dataset(folder / "dataset", world, rows)
    identity = {"dataset_id": DATASET_ID, "manifest_sha256": manifest_sha256}
    phases = [
        _play(world, rows, name, number)
        for name in _phase_names(world)
        for number in range(1, world.rounds + 1)
    ]
    runtime = folder / "runtime"
    runtime.mkdir(parents=True)
    results = [identity | row for phase in phases for row in phase["results"]]
    _lines(runtime / "request_results.jsonl", results)
    _json(runtime / "run.json", identity | _run(world))
    _json(
        runtime / "performance_metrics.json",
        identity | {"phases": [_performance(world, phase) for phase in phases]},
    )
    _json(runtime / "prefix_cache_metrics.json", identity | _counters(world, phases))
    return folder


def _phase_names(world: World) -> tuple[str, ...]:
    return ("cold", "hot") if world.mode == "compare" else (world.mode,)


def _starts_warm(name: str) -> bool:
    return name in ("warmup", "hot")


def _play(world: World, rows: list[Row], name: str, number: int) -> dict[str, Any]:
    """Send every request through `concurrency` slots; blocks show at the first token."""
    cache = BlockCache(world, world.server_step)
    for row in rows:
        if _starts_warm(name):
            cache.store(row, row.rank)
        elif world.residue:
            cache.store(row, row.rank, min(world.residue, row.prefix))
    slots = [0] * world.concurrency
    unpublished: list[tuple[int, int]] = []
    results = []
    for index, row in enumerate(rows):
        planned = heapq.heappop(slots)
        sent = planned + 40_000
        while unpublished and unpublished[0][0] <= sent:
            _, other = heapq.heappop(unpublished)
            cache.store(rows[other], _rank(world, rows[other], other))
        rank = _rank(world, row, index)
        cached = cache.found(row, rank) if world.caching else 0
        if world.forgetful and index % 10 == 9:
            cached //= 2 * world.block
            cached *= world.block
        prompt = row.input_len + world.extra_tokens
        first = sent + 3 * MS + (prompt - cached) * 20_000 + (index * 7919 % 13) * 90_000
        finished = first + 15 * 2 * MS
        failed = index in world.failing
        if not failed:
            heapq.heappush(unpublished, (first, index))
        heapq.heappush(slots, finished)
        results.append(
            _result(world, row, name, number, index, planned, sent, first, finished, cached)
            if not failed
            else _failure(row, name, number, planned, sent)
        )
    ok = [row for row in results if row["status"] == "ok"]
    return {
        "name": name,
        "round": number,
        "results": results,
        "hits": sum(row["_cached"] for row in ok) + world.foreign_hits,
        "queries": sum(row["prompt_tokens"] for row in ok) + world.foreign_queries,
        "designed": _designed(world, rows, warm=_starts_warm(name)),
        "duration_s": max(slots) / 1e9,
    }


def _rank(world: World, row: Row, index: int) -> int:
    return index % 2 if world.misrouted else row.rank


def _designed(world: World, rows: list[Row], *, warm: bool) -> float:
    cache = BlockCache(world)
    if warm:
        for row in rows:
            cache.store(row, row.rank)
    hits = 0
    for row in rows:
        hits += cache.found(row, row.rank)
        cache.store(row, row.rank)
    return hits / sum(row.input_len for row in rows)


def _result(
    world: World,
    row: Row,
    name: str,
    number: int,
    index: int,
    planned: int,
    sent: int,
    first: int,
    finished: int,
    cached: int,
) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "phase": name,
        "round": number,
        "prefix_group_id": row.group,
        "planned_dp_id": row.rank,
        "planned_instance_id": 0,
        "endpoint": "http://127.0.0.1:8000",
        "actual_dp_id": _rank(world, row, index) if world.ranks > 1 or world.misrouted else None,
        "actual_instance_id": 0,
        "attempt": 1,
        "planned_send_ns": planned,
        "sent_ns": sent,
        "first_token_ns": first,
        "finished_ns": finished,
        "server_prefill_start_ns": None,
        "server_prefill_end_ns": None,
        "ttft_ms": (first - sent) / MS,
        "tpot_ms": 2.0,
        "e2e_ms": (finished - sent) / MS,
        "schedule_ttft_ms": (first - planned) / MS,
        "schedule_e2e_ms": (finished - planned) / MS,
        "prompt_tokens": row.input_len + world.extra_tokens,
        "cached_tokens": cached if world.reports_cached else None,
        "output_tokens": 16,
        "status": "ok",
        "http_status": 200,
        "error": None,
        "_cached": cached,
    }


def _failure(row: Row, name: str, number: int, planned: int, sent: int) -> dict[str, Any]:
    return {
        "request_id": row.request_id,
        "phase": name,
        "round": number,
        "prefix_group_id": row.group,
        "planned_dp_id": row.rank,
        "planned_instance_id": 0,
        "endpoint": "http://127.0.0.1:8000",
        "actual_dp_id": None,
        "actual_instance_id": None,
        "attempt": 1,
        "planned_send_ns": planned,
        "sent_ns": sent,
        "first_token_ns": None,
        "finished_ns": None,
        "server_prefill_start_ns": None,
        "server_prefill_end_ns": None,
        "ttft_ms": None,
        "tpot_ms": None,
        "e2e_ms": None,
        "schedule_ttft_ms": None,
        "schedule_e2e_ms": None,
        "prompt_tokens": None,
        "cached_tokens": None,
        "output_tokens": None,
        "status": "timeout",
        "http_status": None,
        "error": "SECRET error body",
        "_cached": 0,
    }


def _write_dataset(folder: Path, world: World, rows: list[Row]) -> str:
    folder.mkdir(parents=True)
    hits, tokens = sum(row.hits for row in rows), sum(row.input_len for row in rows)
    designed = hits / tokens
    deviation = designed - world.target
    metadata = [_metadata(world, index, row) for index, row in enumerate(rows)]
    _lines(folder / "request_metadata.jsonl", metadata)
    status = "PASS" if abs(deviation) <= 0.01 else "FAIL"
    _json(
        folder / "validation_report.json",
        {
            "target_hit_ratio": world.target,
            "designed_hit_ratio": designed,
            "signed_deviation": deviation,
            "absolute_deviation": abs(deviation),
            "deviation_pp": deviation * 100,
            "max_reachable_hit_ratio": 0.93,
            "min_reachable_hit_ratio": 0.0,
            "validation_status": status,
            "pass_tolerance": 0.01,
            "warning_tolerance": 0.02,
            "budget_policy": "global_theta",
            "input_tokens": tokens,
            "expected_hit_tokens": hits,
            "per_group": [{"id": name, "target_hit_ratio": None} for name in world.groups],
            "reachable": True,
            "unreachable_reasons": [],
            "suggestions": [],
            "robust_to_concurrency": 3,
            "robust_to_concurrency_1pp": 12,
            "head_len": world.head,
            "tail_len": 0,
            "designed_hit_ratio_at_concurrency": {"1": designed},
            "verification": {"method": "full", "prompts_checked": len(rows), "mismatches": 0},
        },
    )
    manifest = _manifest(world, rows, status, designed)
    manifest["files"] = {
        name: {"bytes": path.stat().st_size, "sha256": _sha256(path)}
        for name in ("request_metadata.jsonl", "validation_report.json")
        for path in (folder / name,)
    } | {"data.jsonl": {"bytes": 1, "sha256": "0" * 64}}
    _json(folder / "manifest.json", manifest)
    return _sha256(folder / "manifest.json")


def _metadata(world: World, index: int, row: Row) -> dict[str, Any]:
    divergence = min(world.block, row.input_len - row.prefix)
    return {
        "request_id": row.request_id,
        "prefix_group_id": row.group,
        "order_index": index,
        "input_len": row.input_len,
        "output_len": 16,
        "planned_prefix_len": row.prefix,
        "cached_watermark_before": row.before,
        "expected_hit_len": row.hits,
        "expected_head_hit_len": 0,
        "expected_hit_ratio": row.hits / row.input_len,
        "cached_watermark_after": row.after,
        "divergence_len": divergence,
        "suffix_len": row.input_len - row.prefix - divergence,
        "planned_dp_id": row.rank,
        "planned_instance_id": 0,
        "collision_status": "ok",
        "sample_ids": [index],
        "prefix_chars": 4 * row.prefix,
    }


def _manifest(world: World, rows: list[Row], status: str, designed: float) -> dict[str, Any]:
    lengths = sorted(row.input_len for row in rows)
    return {
        "dataset_id": DATASET_ID,
        "generator_version": "0.1.0",
        "seed": world.seed,
        "tokenizer": {
            "name": "builtin",
            "version": "1",
            "fingerprint": "a" * 64,
            "vocab_size": 4096,
        },
        "block_size": world.block,
        "request_count": len(rows),
        "execution_mode": world.mode,
        "target": {"scope": "global", "hit_ratio": world.target, "semantics": world.semantics},
        "input_length": {"mode": "explicit"},
        "prefix": {
            "mode": "single_prefix" if len(world.groups) == 1 else "multi_prefix",
            "group_count": len(world.groups),
            "minimum_non_shared_length": world.block,
        },
        "request_order": {"within_group": "input_len_asc", "across_group": "lag_robust"},
        "theoretical_result": {"designed_hit_ratio": designed, "validation_status": status},
        "format_version": 1,
        "prefixbench_version": "0.1.0",
        "corpus": {"name": "builtin", "rows": 2000, "sha256": "b" * 64},
        "config": {
            "dataset_id": DATASET_ID,
            "target": {"hit_ratio": world.target, "semantics": world.semantics},
            "prefix": {
                "groups": [{"id": name, "cache_salt": "SECRET salt"} for name in world.groups]
            },
            "routing": {"cache_scope": world.scope, "instances": 1, "dp_size": world.ranks},
            "planning": {"capacity_blocks": None},
            "validation": {"pass_tolerance": 0.01, "on_failure": "error"},
        },
        "config_sha256": "c" * 64,
        "suffix": {"source": "builtin"},
        "block_size_source": "configuration",
        "hit_granularity": world.block,
        "hit_definition": "tokens_engine",
        "engine_profile": "vllm-0.33",
        "budget_policy": "global_theta",
        "groups": [
            {"id": name, "request_count": sum(row.group == name for row in rows)}
            for name in world.groups
        ],
        "routing": {"cache_scope": world.scope},
        "head_len": world.head,
        "tail_len": 0,
        "input_length_statistics": {"count": len(rows), "min": lengths[0], "max": lengths[-1]},
        "collision": {"checked": len(rows), "repaired": 0, "retries": 0, "warnings": []},
        "certificate": {},
        "status": "complete",
    }


def _run(world: World) -> dict[str, Any]:
    return {
        "run_id": "run_001",
        "versions": {"prefixbench": "0.1.0", "python": "3.11"},
        "command": ["prefixbench", "run", "--dataset", "set", "--url", "http://127.0.0.1:8000"],
        "mode": world.mode,
        "warmup_rounds": 1 if is_warm(world) else 0,
        "rounds": world.rounds,
        "concurrency": world.concurrency,
        "request_rate": None,
        "timeouts": {"total_s": 600},
        "routing": {"policy": "bound"},
        "isolation": "salt",
        "server": {
            "engine": "vllm",
            "version": "0.33.0",
            "block_size": world.server_step or world.block,
            "hit_granularity": None,
            "num_blocks": world.num_blocks,
            "enable_prefix_caching": world.caching,
            "hash_algo": "sha256",
        },
        "started": "2026-01-02T03:04:05Z",
        "ended": "2026-01-02T03:05:05Z",
    }


def _performance(world: World, phase: dict[str, Any]) -> dict[str, Any]:
    ok = [row for row in phase["results"] if row["status"] == "ok"]
    failed = len(phase["results"]) - len(ok)
    seconds = phase["duration_s"]
    return {
        "phase": phase["name"],
        "round": phase["round"],
        "duration_s": seconds,
        **{
            key: _summary([row[key] for row in ok])
            for key in ("ttft_ms", "tpot_ms", "e2e_ms", "schedule_ttft_ms", "schedule_e2e_ms")
        },
        "itl_ms": _summary([2.0] * len(ok)),
        "request_throughput": len(ok) / seconds,
        "qps": len(phase["results"]) / seconds,
        "input_token_throughput": sum(row["prompt_tokens"] for row in ok) / seconds,
        "output_token_throughput": 16 * len(ok) / seconds,
        "success_rate": len(ok) / len(phase["results"]),
        "timeout_rate": failed / len(phase["results"]),
        "requests": {
            "planned": len(phase["results"]),
            "sent": len(phase["results"]),
            "succeeded": len(ok),
            "failed": failed,
            "timed_out": failed,
            "retried": 0,
        },
        "concurrency": {
            "configured": world.concurrency,
            "achieved_mean": world.concurrency,
            "achieved_max": world.concurrency,
        },
        "client": {
            "loop_lag_ms_p99": 0.4,
            "send_delay_ms_p99": 0.2,
            "cpu_s": 1.0,
            "max_rss_bytes": 1,
            "verdict": world.notes.get("client", "ok"),
            "reason": world.notes.get("client_reason"),
        },
    }


def _summary(values: list[float]) -> dict[str, Any]:
    ordered = sorted(values)

    def at(share: float) -> float | None:
        return ordered[int(share * (len(ordered) - 1))] if ordered else None

    return {
        "mean": sum(ordered) / len(ordered) if ordered else None,
        "p50": at(0.5),
        "p90": at(0.9),
        "p95": at(0.95),
        "p99": at(0.99),
        "min": at(0),
        "max": at(1),
        "count": len(ordered),
    }


def _counters(world: World, phases: list[dict[str, Any]]) -> dict[str, Any]:
    rows = [_phase_counters(world, phase) for phase in phases]
    last = rows[-1]
    tally = {key: last[key] for key in ("queries", "hits", "hit_rate")}
    return {
        "adapter": "vllm",
        "unit": "token",
        "global": tally | {"external": None, "combined_hit_rate": None},
        "by_endpoint": [tally],
        "by_dp": [tally],
        "phases": rows,
        "usage": {"prompt_tokens": None, "cached_tokens": None},
        "instances": [
            {
                "endpoint": "http://127.0.0.1:8000",
                "engine": str(rank),
                **tally,
                "external": None,
                "kv_cache_usage": {"mean": 0.1, "max": 0.31},
                "preemptions": 0,
                "evictions": None
                if world.evictions is None
                else {"count": world.evictions, "unit": "block"},
                "block_size": world.block,
                "num_blocks": world.num_blocks,
            }
            for rank in range(world.ranks)
        ],
        "checks": [
            {
                "phase": rows[-1]["phase"],
                "round": 1,
                "name": "server_at_rest",
                "status": "ok",
                "detail": "nothing ran or waited",
            },
            *world.checks,
        ],
    }


def _phase_counters(world: World, phase: dict[str, Any]) -> dict[str, Any]:
    known = world.counters and world.gap is None
    hits, queries = (phase["hits"], phase["queries"]) if known else (None, None)
    if not world.caching:
        hits, queries = 0, 0
    rate = hits / queries if queries else None
    return {
        "phase": phase["name"],
        "round": phase["round"],
        "cache_state_before": "warm" if _starts_warm(phase["name"]) else "salted",
        "designed_hit_ratio": phase["designed"],
        "queries": queries,
        "hits": hits,
        "hit_rate": rate,
        "runtime_deviation": None if rate is None else rate - phase["designed"],
        "reason": world.gap if hits is None else None,
    }


def _json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(_public(value), indent=2), encoding="utf-8")


def _lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(_public(row)) + "\n" for row in rows), encoding="utf-8")


def _public(value: Any) -> Any:
    """Without the keys that only this module reads."""
    return {key: part for key, part in value.items() if key != "_cached"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
