"""`validate` proves what `generate` wrote, whatever the plan allows for, and only that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixbench.config.load import parse_config, with_changes
from prefixbench.core.errors import DatasetChangedError
from prefixbench.dataset.layout import file_sha256
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset
from prefixbench.run.options import RunOptions
from prefixbench.run.runner import run_dataset

SMALL: dict[str, Any] = {
    "dataset_id": "proved",
    "request_count": 90,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 80, "max": 500, "mean": 250, "std": 90},
    "output_length": 4,
    "target": {"hit_ratio": 0.5},
    "prefix": {"mode": "multi_prefix", "group_count": 3},
}


def generate(folder: Path, *changes: str) -> Path:
    config = with_changes(parse_config(SMALL), changes)
    generate_prefix_cache_dataset(config, output_dir=folder)
    return folder


def edit_manifest(folder: Path, **changes: Any) -> None:
    path = folder / "manifest.json"
    path.write_bytes(orjson.dumps(orjson.loads(path.read_bytes()) | changes))


WARMED = "target.semantics=static_prefix_ratio"
RANKS = ("routing.dp_size=3", "routing.policy=round_robin", "routing.cache_scope=dp_local")


@pytest.mark.parametrize(
    "changes",
    [
        (WARMED, *RANKS),
        (WARMED, "routing.instances=2", "routing.cache_scope=instance_local", *RANKS[1:2]),
        ("planning.concurrency=16",),
        ("planning.concurrency=16", *RANKS),
        ("planning.concurrency=8", "request_order.leaders=barrier"),
        (WARMED, "planning.concurrency=16", *RANKS),
        ("planning.capacity_blocks=120",),
        ("planning.capacity_blocks=240", "block_size=8", "hit_granularity=16"),
        (WARMED, "planning.capacity_blocks=200", "target.hit_ratio=0.3"),
        ("suffix.collision_detection.cache_match_semantics=independent_block",),
        ("suffix.collision_detection.cache_match_semantics=content_defined_chunk",),
    ],
)
def test_what_a_plan_allows_for_is_proved(tmp_path: Path, changes: tuple[str, ...]) -> None:
    proof = validate_dataset(generate(tmp_path / "out", *changes), verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == SMALL["request_count"]


@pytest.mark.parametrize(
    "changes", [(), ("planning.concurrency=16",), ("planning.capacity_blocks=120",)]
)
def test_an_order_that_nobody_planned_is_found_although_all_hashes_fit(
    tmp_path: Path, changes: tuple[str, ...]
) -> None:
    folder = generate(tmp_path / "out", *changes)
    files = {
        name: (folder / name).read_bytes() for name in ("data.jsonl", "request_metadata.jsonl")
    }
    for name, raw in files.items():
        rows = [orjson.loads(line) for line in raw.splitlines()][::-1]
        for place, row in enumerate(rows):
            row |= {"order_index": place} if "order_index" in row else {}
        (folder / name).write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    names = (*files, "validation_report.json")
    edit_manifest(folder, files={name: {"sha256": file_sha256(folder / name)} for name in names})
    with pytest.raises(DatasetChangedError, match="watermark walk in the order on disk"):
        validate_dataset(folder)


@pytest.mark.parametrize("files", [{}, None])
def test_a_manifest_that_states_no_hashes_proves_nothing(tmp_path: Path, files: Any) -> None:
    folder = generate(tmp_path / "out")
    edit_manifest(folder, files=files)
    with pytest.raises(DatasetChangedError, match=r"hash of data\.jsonl"):
        validate_dataset(folder)
    with pytest.raises(DatasetChangedError, match=r"data\.jsonl is not what the manifest"):
        run_dataset(RunOptions(dataset=folder, urls=("http://127.0.0.1:9",)))
