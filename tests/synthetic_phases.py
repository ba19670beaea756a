"""Plays the phases of a run: who is sent when, what is found, what comes back."""

from __future__ import annotations

import heapq
from typing import Any

from synthetic_world import ANSWER, MS, BlockCache, Row, World, found_by, is_warm


def phase_names(world: World) -> tuple[str, ...]:
    return ("cold", "hot") if world.mode == "compare" else (world.mode,)


def starts_warm(name: str) -> bool:
    return name in ("warmup", "hot")


def play(world: World, rows: list[Row], name: str, number: int) -> dict[str, Any]:
    """Send every request through `concurrency` slots; blocks show at the first token."""
    cache = BlockCache(world, world.server_step, world.served_blocks)
    if starts_warm(name):
        cache.warm_up(rows)
    elif world.residue:
        for row in rows:
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
        finished = first + (ANSWER - 1) * 2 * MS
        failed = index in world.failing
        if not failed:
            heapq.heappush(unpublished, (first, index))
        heapq.heappush(slots, finished)
        result = _timeout(row, name, number, planned, sent)
        if not failed:
            result |= _answer(world, row, index, sent, first, finished, cached)
            result["schedule_ttft_ms"] = (first - planned) / MS
            result["schedule_e2e_ms"] = (finished - planned) / MS
        results.append(result)
    ok = [row for row in results if row["status"] == "ok"]
    return {
        "name": name,
        "round": number,
        "results": results,
        "hits": sum(row["_cached"] for row in ok) + world.foreign_hits,
        "queries": sum(row["prompt_tokens"] for row in ok) + world.foreign_queries,
        "designed": _designed(world, rows, warm=starts_warm(name)),
        "duration_s": max(slots) / 1e9,
    }


def _rank(world: World, row: Row, index: int) -> int:
    return index % 2 if world.misrouted else row.rank


def _designed(world: World, rows: list[Row], *, warm: bool) -> float:
    as_planned = warm == is_warm(world)
    hits = sum(hits for _, hits in found_by(world, rows, warm=warm, as_planned=as_planned))
    return hits / sum(row.input_len for row in rows)


def _answer(
    world: World, row: Row, index: int, sent: int, first: int, finished: int, cached: int
) -> dict[str, Any]:
    return {
        "actual_dp_id": _rank(world, row, index) if world.ranks > 1 or world.misrouted else None,
        "actual_instance_id": 0,
        "first_token_ns": first,
        "finished_ns": finished,
        "ttft_ms": (first - sent) / MS,
        "tpot_ms": 2.0,
        "e2e_ms": (finished - sent) / MS,
        "prompt_tokens": row.input_len + world.extra_tokens,
        "cached_tokens": cached if world.reports_cached else None,
        "output_tokens": ANSWER,
        "status": "ok",
        "http_status": 200,
        "error": None,
        "_cached": cached,
    }


def _timeout(row: Row, name: str, number: int, planned: int, sent: int) -> dict[str, Any]:
    """A request of which nothing came back; an answer fills in what it tells."""
    unknown = dict.fromkeys(
        (
            "actual_dp_id", "actual_instance_id", "first_token_ns", "finished_ns",
            "server_prefill_start_ns", "server_prefill_end_ns", "ttft_ms", "tpot_ms", "e2e_ms",
            "schedule_ttft_ms", "schedule_e2e_ms", "prompt_tokens", "cached_tokens",
            "output_tokens", "http_status",
        )
    )  # fmt: skip
    return {
        "request_id": row.request_id,
        "phase": name,
        "round": number,
        "prefix_group_id": row.group,
        "planned_dp_id": row.rank,
        "planned_instance_id": 0,
        "endpoint": "http://127.0.0.1:8000",
        "attempt": 1,
        "planned_send_ns": planned,
        "sent_ns": sent,
        **unknown,
        "status": "timeout",
        "error": "SECRET error body",
        "_cached": 0,
    }
