"""`validate` proves what `generate` wrote, whatever the plan allows for, and only that."""

from __future__ import annotations

import shutil
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


PER_GROUP = (
    "target.hit_ratio=null",
    "target.scope=per_group",
    "target.groups=[{id: group_0, hit_ratio: 0.31}, {id: group_1, hit_ratio: 0.57},"
    " {id: group_2, hit_ratio: 0.1}]",
)


@pytest.mark.parametrize(
    "changes",
    [
        PER_GROUP,
        (*PER_GROUP, WARMED),
        ("target.hit_ratio=0.99", "validation.on_failure=warn"),
        ("planning.block_residual_calibration=false",),
        ("prefix.nested_prefix=false", "target.hit_ratio=0.2"),
    ],
)
def test_figures_of_every_kind_of_plan_are_computed_again(
    tmp_path: Path, changes: tuple[str, ...]
) -> None:
    assert validate_dataset(generate(tmp_path / "out", *changes)).passed


@pytest.fixture(scope="module")
def proved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return generate(tmp_path_factory.mktemp("proved") / "out")


@pytest.fixture
def copied(proved: Path, tmp_path: Path) -> Path:
    return shutil.copytree(proved, tmp_path / "copy")


def changed(document: Any, path: str, value: Any) -> Any:
    here = document
    *steps, last = path.split(".")
    for step in steps:
        here = here[int(step)] if isinstance(here, list) else here[step]
    here[last] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("validation_status", "FAIL"),
        ("designed_hit_ratio", 0.9),
        ("signed_deviation", -0.1),
        ("deviation_pp", 3.0),
        ("expected_hit_tokens", 1),
        ("target_hit_ratio", 0.9),
        ("reachable", False),
        ("max_reachable_hit_ratio", 0.2),
        ("per_group.1.designed_hit_ratio", 0.9),
        ("per_group.1.absolute_deviation", 0.9),
    ],
)
def test_a_report_that_says_other_than_its_rows_is_found(
    copied: Path, path: str, value: Any
) -> None:
    report = copied / "validation_report.json"
    report.write_bytes(orjson.dumps(changed(orjson.loads(report.read_bytes()), path, value)))
    stated = orjson.loads((copied / "manifest.json").read_bytes())["files"]
    edit_manifest(copied, files=stated | {report.name: {"sha256": file_sha256(report)}})
    with pytest.raises(DatasetChangedError, match=r"figures of the (validation report|manifest)"):
        validate_dataset(copied)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("theoretical_result.designed_hit_ratio", 0.9),
        ("theoretical_result.validation_status", "FAIL"),
        ("groups.2.designed_hit_tokens", 1),
        ("groups.0.master_prefix_len", 16),
        ("groups.0.request_count", 1),
        ("config.concurrency", 4),
        ("seed", 5),
        ("target.hit_ratio", 0.9),
        ("block_size", 32),
    ],
)
def test_a_manifest_that_says_other_than_its_rows_is_found(
    copied: Path, path: str, value: Any
) -> None:
    manifest = copied / "manifest.json"
    manifest.write_bytes(orjson.dumps(changed(orjson.loads(manifest.read_bytes()), path, value)))
    with pytest.raises(DatasetChangedError, match=r"figures of the manifest|config is not what"):
        validate_dataset(copied)


@pytest.mark.parametrize("key", ["config", "tokenizer", "groups", "head_len", "warmed"])
@pytest.mark.parametrize("value", ["absent", None, "text"])
def test_a_manifest_without_its_keys_is_refused(copied: Path, key: str, value: Any) -> None:
    manifest = copied / "manifest.json"
    document = orjson.loads(manifest.read_bytes())
    del document[key]
    manifest.write_bytes(orjson.dumps(document | ({} if value == "absent" else {key: value})))
    for use in (validate_dataset, lambda folder: run_dataset(RunOptions(dataset=folder))):
        with pytest.raises(DatasetChangedError, match=rf"manifest\.json is broken: {key} is "):
            use(copied)


@pytest.mark.parametrize("files", [{}, None])
def test_a_manifest_that_states_no_hashes_proves_nothing(tmp_path: Path, files: Any) -> None:
    folder = generate(tmp_path / "out")
    edit_manifest(folder, files=files)
    with pytest.raises(DatasetChangedError, match=r"hash of data\.jsonl"):
        validate_dataset(folder)
    with pytest.raises(DatasetChangedError, match=r"data\.jsonl is not what the manifest"):
        run_dataset(RunOptions(dataset=folder, urls=("http://127.0.0.1:9",)))


def test_salted_groups_with_a_head_of_whole_blocks_are_proved(tmp_path: Path) -> None:
    """In blocks of one token the opening word is a block, which each salt computes anew."""
    groups = "prefix.groups=[{id: a, cache_salt: own}, {id: b, model: adapter}, {id: c}]"
    folder = generate(tmp_path / "out", "block_size=1", "prefix.group_count=null", groups)
    validate_dataset(folder)
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    assert [group["head_cold_loss"] for group in manifest["groups"]] == [1, 1, 1]


@pytest.mark.parametrize(
    ("name", "key", "value", "check"),
    [
        ("data.jsonl", "max_tokens", 5, "same requests in both files"),
        ("request_metadata.jsonl", "output_len", 5, "same requests in both files"),
        ("request_metadata.jsonl", "expected_hit_ratio", 0.25, "lengths add up"),
        ("request_metadata.jsonl", "expected_hit_len", 16, "lengths add up"),
    ],
)
def test_a_figure_of_one_row_is_proved_although_all_hashes_fit(
    copied: Path, name: str, key: str, value: Any, check: str
) -> None:
    path = copied / name
    first, *others = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(orjson.dumps(orjson.loads(first) | {key: value}) + b"\n" + b"".join(others))
    files = orjson.loads((copied / "manifest.json").read_bytes())["files"]
    edit_manifest(copied, files=files | {name: {"sha256": file_sha256(path)}})
    with pytest.raises(DatasetChangedError, match=check):
        validate_dataset(copied)
