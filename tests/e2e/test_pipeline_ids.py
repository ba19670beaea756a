"""Token ids on demand: binary, in sending order, proved, resumed to the same bytes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest

from prefixbench.config.load import parse_config
from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.core.errors import ConfigError, DatasetChangedError, OutputExistsError
from prefixbench.dataset.layout import file_sha256
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset

IDS, OFFSETS = "prompt_ids.u32", "prompt_ids_offsets.u64"
CONFIG: dict[str, Any] = {
    "dataset_id": "ids",
    "request_count": 700,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 64, "max": 300, "mean": 150, "std": 50},
    "target": {"hit_ratio": 0.5},
    "prefix": {"group_count": 3},
    "request_order": {"mode": "shuffle"},
}


def generate(folder: Path, **options: Any) -> None:
    options = {"with_ids": True} | options
    config = parse_config(CONFIG | options.pop("changes", {}))
    generate_prefix_cache_dataset(config, output_dir=folder, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("ids") / "dataset"
    generate(folder)
    return folder


@pytest.fixture
def copy(whole: Path, tmp_path: Path) -> Path:
    shutil.copytree(whole, tmp_path / "copy")
    return tmp_path / "copy"


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_ids_are_those_of_the_prompts(whole: Path) -> None:
    """Read as the reference says, with nothing but numpy."""
    ids = np.fromfile(whole / IDS, dtype="<u4")
    offsets = np.fromfile(whole / OFFSETS, dtype="<u8").astype(int)
    tokenizer = load_tokenizer("builtin")
    rows = list(DatasetReader(whole).requests())
    assert len(rows) == len(offsets) - 1 == 700
    for row, start, stop in zip(rows, offsets[:-1], offsets[1:], strict=True):
        assert tokenizer.encode(row["prompt"], True) == ids[start:stop].tolist()
    read = list(DatasetReader(whole).prompt_ids())
    assert [len(own) for own in read] == np.diff(offsets).tolist()
    assert np.concatenate(read).tolist() == ids.tolist()


def test_nothing_else_changes(whole: Path, tmp_path: Path) -> None:
    generate(tmp_path / "plain", with_ids=False)
    plain = contents(tmp_path / "plain")
    assert set(contents(whole)) - set(plain) == {IDS, OFFSETS}
    manifest = orjson.loads(plain.pop("manifest.json"))
    files = DatasetReader(whole).manifest.files
    assert set(files) - set(manifest["files"]) == {IDS, OFFSETS}
    assert all(contents(whole)[name] == plain[name] for name in plain)


def test_workers_write_the_same_bytes(whole: Path, tmp_path: Path) -> None:
    generate(tmp_path / "two", workers=2)
    assert contents(tmp_path / "two") == contents(whole)


@pytest.mark.parametrize("cut", ["data.jsonl", IDS, OFFSETS, "all"])
@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 0.9, 1.0])
def test_a_killed_generation_resumes_to_the_same_bytes(
    whole: Path, copy: Path, cut: str, share: float
) -> None:
    """Whatever file was written how far."""
    manifest = orjson.loads((copy / "manifest.json").read_bytes())
    kept = ("dataset_id", "format_version", "prefixbench_version", "identity_sha256")
    partial = {key: manifest[key] for key in kept} | {"status": "partial"}
    (copy / "manifest.json").write_bytes(orjson.dumps(partial))
    (copy / "validation_report.json").unlink()
    names = ["data.jsonl", "request_metadata.jsonl", IDS, OFFSETS] if cut == "all" else [cut]
    for name in names:
        raw = (copy / name).read_bytes()
        (copy / name).write_bytes(raw[: int(len(raw) * share)])
    generate(copy, resume=True)
    assert contents(copy) == contents(whole)


def test_a_set_without_ids_is_not_resumed_with_them(copy: Path) -> None:
    with pytest.raises(OutputExistsError, match="other inputs"):
        generate(copy, resume=True, with_ids=False)


def test_ids_are_proved(whole: Path) -> None:
    proof = validate_dataset(whole)
    names = {check.name for check in proof.checks}
    assert {f"hash of {IDS}", f"hash of {OFFSETS}"} <= names
    assert {"lengths of the ids on disk", "ids on disk are those of the prompts"} <= names


@pytest.mark.parametrize("name", [IDS, OFFSETS])
def test_changed_ids_are_found_by_their_hash(copy: Path, name: str) -> None:
    raw = bytearray((copy / name).read_bytes())
    raw[-4] ^= 1
    (copy / name).write_bytes(raw)
    with pytest.raises(DatasetChangedError, match=f"hash of {name}"):
        validate_dataset(copy)
    with pytest.raises(DatasetChangedError, match="is not what the manifest describes"):
        DatasetReader(copy).check_hashes()


def signed(folder: Path, *names: str) -> None:
    """Let the manifest's hashes fit what was changed."""
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    for name in names:
        manifest["files"][name]["sha256"] = file_sha256(folder / name)
    (folder / "manifest.json").write_bytes(orjson.dumps(manifest))


def test_other_ids_are_found_whatever_the_hash_says(copy: Path) -> None:
    ids = np.fromfile(copy / IDS, dtype="<u4")
    ids[[5000, 5001]] = ids[[5001, 5000]]
    ids.tofile(copy / IDS)
    signed(copy, IDS)
    with pytest.raises(DatasetChangedError, match=r"1 of .* ids on disk are those of the prompts"):
        validate_dataset(copy)


def test_other_offsets_are_found_whatever_the_hash_says(copy: Path) -> None:
    offsets = np.fromfile(copy / OFFSETS, dtype="<u8")
    offsets[3] += 1
    offsets.tofile(copy / OFFSETS)
    signed(copy, OFFSETS)
    with pytest.raises(DatasetChangedError, match="2 requests have another number of ids"):
        validate_dataset(copy, verify="certificate")


@pytest.mark.parametrize("name", [IDS, OFFSETS])
def test_missing_or_short_ids_are_told(copy: Path, name: str) -> None:
    raw = (copy / name).read_bytes()
    (copy / name).write_bytes(raw[:-8])
    signed(copy, name)
    with pytest.raises(DatasetChangedError, match=r"rows_readable.*do not fit together"):
        validate_dataset(copy)
    (copy / name).unlink()
    with pytest.raises(DatasetChangedError, match="missing"):
        validate_dataset(copy)


def test_recipes_and_ids_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="save_prompts"):
        generate(tmp_path / "out", changes={"save_prompts": False})
    assert not (tmp_path / "out").exists()
