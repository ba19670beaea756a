"""Writes run directories without a server: a block cache of its own plays the runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from synthetic_dataset import write_dataset, write_json, write_lines
from synthetic_phases import phase_names, play, starts_warm
from synthetic_world import ANSWER, DATASET_ID, World, is_warm, planned_rows


def write_run(folder: Path, world: World | None = None, **changes: Any) -> Path:
    """Write a finished run; `changes` are fields of World."""
    world = world or World(**changes)
    rows = planned_rows(world)
    manifest_sha256 = write_dataset(folder / "dataset", world, rows)
    identity = {"dataset_id": DATASET_ID, "manifest_sha256": manifest_sha256}
    phases = [
        play(world, rows, name, number)
        for name in phase_names(world)
        for number in range(1, world.rounds + 1)
    ]
    runtime = folder / "runtime"
    runtime.mkdir(parents=True)
    results = [identity | row for phase in phases for row in phase["results"]]
    write_lines(runtime / "request_results.jsonl", results)
    write_json(runtime / "run.json", identity | _run(world))
    write_json(
        runtime / "performance_metrics.json",
        identity | {"phases": [_performance(world, phase) for phase in phases]},
    )
    write_json(runtime / "prefix_cache_metrics.json", identity | _counters(world, phases))
    return folder


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
        "isolation": {"asked": "salt", "phases": []},
        "server": {
            "engine": "vllm",
            "version": "0.33.0",
            "block_size": world.server_step or world.block,
            "hit_granularity": None,
            "num_blocks": _label(world),
            "enable_prefix_caching": world.caching,
            "hash_algo": "sha256",
        },
        "started": "2026-01-02T03:04:05Z",
        "ended": "2026-01-02T03:05:05Z",
    }


def _label(world: World) -> int | None:
    """Blocks as vLLM counts them: one more than requests can use."""
    return world.num_blocks if world.served_blocks is None else world.served_blocks + 1


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
        "output_token_throughput": ANSWER * len(ok) / seconds,
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
                "num_blocks": _label(world),
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
        "cache_state_before": "warm" if starts_warm(phase["name"]) else "salted",
        "designed_hit_ratio": phase["designed"],
        "queries": queries,
        "hits": hits,
        "hit_rate": rate,
        "runtime_deviation": None if rate is None else rate - phase["designed"],
        "reason": world.gap if hits is None else None,
    }
