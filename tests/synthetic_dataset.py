"""The files of a data set that was never generated, without its prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from synthetic_world import ANSWER, DATASET_ID, Row, World


def write_dataset(folder: Path, world: World, rows: list[Row]) -> str:
    folder.mkdir(parents=True)
    hits, tokens = sum(row.hits for row in rows), sum(row.input_len for row in rows)
    designed = hits / tokens
    deviation = designed - world.target
    metadata = [_metadata(world, index, row) for index, row in enumerate(rows)]
    write_lines(folder / "request_metadata.jsonl", metadata)
    status = "PASS" if abs(deviation) <= 0.01 else "FAIL"
    write_json(
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
    write_json(folder / "manifest.json", manifest)
    return _sha256(folder / "manifest.json")


def _metadata(world: World, index: int, row: Row) -> dict[str, Any]:
    divergence = min(world.block, row.input_len - row.prefix)
    return {
        "request_id": row.request_id,
        "prefix_group_id": row.group,
        "order_index": index,
        "input_len": row.input_len,
        "output_len": ANSWER,
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
            "planning": {
                "concurrency": world.planned_flight,
                "capacity_blocks": world.planned_blocks,
            },
            "request_order": {"leaders": "none"},
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


def write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(_public(value), indent=2), encoding="utf-8")


def write_lines(path: Path, rows: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(_public(row)) + "\n" for row in rows), encoding="utf-8")


def _public(value: Any) -> Any:
    """Without the keys that only this module reads."""
    return {key: part for key, part in value.items() if key != "_cached"}


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
