"""Hits that no plan foresees: stated, counted in the designed ratio, proved over the final ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from prefixbench.config.load import parse_config
from prefixbench.core.errors import CollisionError, DatasetChangedError, ValidationFailedError
from prefixbench.dataset.layout import file_sha256
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset

CONFIG: dict[str, Any] = {
    "dataset_id": "accidents",
    "request_count": 150,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 64, "max": 400, "mean": 200, "std": 60},
    "target": {"hit_ratio": 0.5},
    "prefix": {"group_count": 3},
}


def generate(folder: Path, **changes: Any) -> dict[str, Any]:
    config = parse_config(CONFIG | changes)
    return generate_prefix_cache_dataset(config, output_dir=folder, verify="certificate").report


def detection(semantics: str) -> dict[str, Any]:
    return {"collision_detection": {"cache_match_semantics": semantics}}


def test_more_siblings_than_markers_cost_a_stated_number_of_tokens(tmp_path: Path) -> None:
    """Blocks of one token: the vocabulary has not enough first tokens for all."""
    report = generate(
        tmp_path / "out",
        request_count=16_000,
        block_size=1,
        input_length=8,
        target={"hit_ratio": 0.25},
        prefix={},
    )
    rows = list(DatasetReader(tmp_path / "out").metadata())
    repeated = [row for row in rows if row["collision_status"] == "repeats_marker"]
    assert len(repeated) > 100
    assert report["repeated_marker_hit_tokens"] == len(repeated)
    assert report["accidental_hit_tokens"] == sum(row["accidental_hit_len"] for row in rows)
    hits = sum(row["expected_hit_len"] for row in rows)
    assert report["designed_hit_ratio"] == hits / report["input_tokens"]
    assert report["validation_status"] == "PASS"
    validate_dataset(tmp_path / "out", verify="full")


@pytest.mark.parametrize("semantics", ["independent_block", "content_defined_chunk"])
def test_hits_without_a_chain_are_counted_and_proved(tmp_path: Path, semantics: str) -> None:
    report = generate(
        tmp_path / "out", suffix=detection(semantics), validation={"on_failure": "warn"}
    )
    assert report["accidental_hit_tokens"] > 100
    assert report["validation_status"] != "PASS"
    proof = validate_dataset(tmp_path / "out")
    assert "accidental hits over the final ids" in {check.name for check in proof.checks}


def test_a_ratio_missed_by_accident_is_refused_before_any_row(tmp_path: Path) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        generate(tmp_path / "out", suffix=detection("independent_block"), block_size=4)
    assert "tokens are found by accident" in caught.value.hint
    assert DatasetManifest.load(tmp_path / "out").status == "partial"
    assert not (tmp_path / "out" / "data.jsonl").exists()


def test_a_hit_counted_at_another_request_is_found(tmp_path: Path) -> None:
    """One block moved from one row to another, with hashes made to fit."""
    folder = tmp_path / "out"
    generate(folder, suffix=detection("independent_block"), validation={"on_failure": "warn"})
    rows = list(DatasetReader(folder).metadata())
    donor = next(row for row in rows if row["accidental_hit_len"])
    taker = next(row for row in rows if not row["accidental_hit_len"])
    for row, step in ((donor, -16), (taker, 16)):
        row["accidental_hit_len"] += step
        row["expected_hit_len"] += step
        row["expected_hit_ratio"] = row["expected_hit_len"] / row["input_len"]
    path = folder / "request_metadata.jsonl"
    path.write_bytes(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    manifest["files"][path.name]["sha256"] = file_sha256(path)
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest))
    with pytest.raises(DatasetChangedError, match=r"1 of \d+ checks failed: accidental hits"):
        validate_dataset(folder)


@pytest.mark.parametrize("policy", ["error", "warn", "accept_with_warning"])
def test_natural_texts_that_begin_alike_are_told_as_the_user_wants(
    tmp_path: Path, policy: str
) -> None:
    corpus = tmp_path / "few.txt"
    corpus.write_text("\n\n".join(f"Boat {n} carries {n * 7} boxes of tea home." for n in range(9)))
    config = parse_config(
        CONFIG
        | {
            "block_size": 4,
            "target": {"hit_ratio": 0.3},
            "validation": {"on_failure": "warn"},
            "suffix": {
                "divergence_block": False,
                "collision_detection": {"on_collision": policy, "max_retries": 1},
            },
        }
    )

    def run() -> dict[str, Any]:
        result = generate_prefix_cache_dataset(
            config, output_dir=tmp_path / "out", corpus=str(corpus)
        )
        return result.report

    if policy == "error":
        with pytest.raises(CollisionError, match="still repeat") as caught:
            run()
        assert caught.value.context.retry == 1
        assert DatasetManifest.load(tmp_path / "out").failure["code"] == "collision"
        return
    report = run()
    collision = DatasetManifest.load(tmp_path / "out").data["collision"]
    assert (report["accidental_hit_tokens"] > 0) == (policy == "accept_with_warning")
    assert (collision["uncounted_hit_tokens"] > 0) == (policy == "warn")
    validate_dataset(tmp_path / "out", verify="full")
