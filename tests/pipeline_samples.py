"""A small configuration, and what generating it leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson

from prefixbench.config.load import parse_config, with_changes
from prefixbench.pipeline import generate_prefix_cache_dataset

FILES = ("data.jsonl", "manifest.json", "request_metadata.jsonl", "validation_report.json")
SMALL: dict[str, Any] = {
    "dataset_id": "small",
    "seed": 7,
    "request_count": 600,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 64, "max": 512, "mean": 200, "std": 90},
    "output_length": 4,
    "target": {"hit_ratio": 0.6},
    "prefix": {
        "mode": "multi_prefix",
        "groups": [
            {"id": "a", "request_weight": 0.5},
            {"id": "b", "request_weight": 0.3, "cache_salt": "b-salt"},
            {"id": "c", "request_weight": 0.2, "model": "c-lora"},
        ],
    },
}


def generate(folder: Path, *changes: str, **options: Any) -> dict[str, Any]:
    config = with_changes(parse_config(SMALL), changes)
    return generate_prefix_cache_dataset(config, output_dir=folder, **options).report


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def edit_json(path: Path, **changes: Any) -> None:
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | changes))
