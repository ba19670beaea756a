"""From a configuration to a proved data set: what the files promise, and what edits leave."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipeline_samples import FILES, SMALL, contents, edit_json, generate
from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.core.errors import (
    DatasetChangedError,
    OutputExistsError,
    StorageError,
)
from prefixbench.dataset import compose as compose_module
from prefixbench.dataset import writer as writer_module
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import validate_dataset
from prefixbench.run.runner import RunOptions, run_dataset


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("small") / "dataset"
    generate(folder)
    return folder


@pytest.fixture
def copy(small: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(small, tmp_path / "copy"))


def test_a_data_set_meets_its_target_and_is_proved_from_its_files(small: Path) -> None:
    report = orjson.loads((small / "validation_report.json").read_bytes())
    half_block = 16 / 2 / report["input_tokens"]
    assert report["absolute_deviation"] <= half_block
    assert report["verification"]["prompts_checked"] == 200
    assert report["verification"]["mismatches"] == 0
    proof = validate_dataset(small, verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == 600
    assert proof.verification.mismatches == 0
    assert "block walk over the final ids" in {check.name for check in proof.checks}


def test_groups_carry_their_salt_and_model(small: Path) -> None:
    reader = DatasetReader(small)
    for data, row in zip(reader.requests(), reader.metadata(), strict=True):
        assert data.get("cache_salt") == ("b-salt" if row["prefix_group_id"] == "b" else None)
        assert data.get("model") == ("c-lora" if row["prefix_group_id"] == "c" else None)
        assert data["max_tokens"] == 4


def test_a_warm_up_is_the_planned_prefix_and_one_token(small: Path) -> None:
    reader = DatasetReader(small)
    tokenizer = load_tokenizer("builtin")
    filler = reader.manifest.data["warmup_filler"]
    rows = list(zip(reader.requests(), reader.metadata(), strict=True))[:50]
    for data, row in rows:
        ids = tokenizer.encode(data["prompt"])
        warm = tokenizer.encode(data["prompt"][: row["prefix_chars"]] + filler["text"])
        assert warm == [*ids[: row["planned_prefix_len"]], filler["id"]]
        assert warm[-1] != ids[row["planned_prefix_len"]]


def test_same_inputs_same_bytes_from_any_process(small: Path, tmp_path: Path) -> None:
    file = tmp_path / "small.yaml"
    file.write_bytes(orjson.dumps(SMALL))  # JSON is YAML
    for workers, hash_seed in ((1, "0"), (2, "1")):
        output = tmp_path / f"by_{workers}"
        command = [sys.executable, "-m", "prefixbench", "generate", "--quiet"]
        command += ["--config", str(file), "--output", str(output), "--workers", str(workers)]
        subprocess.run(command, check=True, env=os.environ | {"PYTHONHASHSEED": hash_seed})
        assert contents(output) == contents(small)


def blocks_of(folder: Path, size: int) -> Iterator[tuple[int, ...]]:
    """First blocks of every prompt as the server sees them: all that a foreign chain can share."""
    tokenizer = load_tokenizer("builtin")
    rows = list(DatasetReader(folder).requests())
    for ids in tokenizer.encode_batch([row["prompt"] for row in rows], add_special_tokens=True):
        yield tuple(ids[:size])


@pytest.mark.parametrize("size", [4, 16])
def test_data_sets_that_differ_in_seed_id_or_target_share_no_block(
    size: int, tmp_path: Path
) -> None:
    variants = {
        "base": (),
        "seed": ("seed=8",),
        "id": ("dataset_id=other",),
        "target": ("target.hit_ratio=0.55",),
        "no_prefix": ("target.hit_ratio=0.0", "dataset_id=unshared"),
    }
    common = (f"block_size={size}", "request_count=300")
    seen: dict[tuple[int, ...], str] = {}
    for name, changes in variants.items():
        generate(tmp_path / name, *common, *changes, verify="certificate")
        for block in set(blocks_of(tmp_path / name, size)):
            assert seen.setdefault(block, name) == name


def test_reordered_lines_are_told_and_refused(copy: Path) -> None:
    lines = (copy / "data.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "data.jsonl").write_bytes(b"".join(reversed(lines)))
    with pytest.raises(DatasetChangedError, match="edited or reordered"):
        validate_dataset(copy)
    with pytest.raises(DatasetChangedError, match="edited or reordered"):
        run_dataset(RunOptions(dataset=copy, urls=("http://127.0.0.1:9",)))


def test_a_new_order_is_told_even_where_the_hashes_were_made_to_agree(copy: Path) -> None:
    """Both row files reversed and hashed anew: only the walk over the order finds out."""
    import hashlib

    files = orjson.loads((copy / "manifest.json").read_bytes())["files"]
    for name in ("data.jsonl", "request_metadata.jsonl"):
        lines = (copy / name).read_bytes().splitlines(keepends=True)[::-1]
        (copy / name).write_bytes(b"".join(lines))
        files[name]["sha256"] = hashlib.sha256(b"".join(lines)).hexdigest()
    edit_json(copy / "manifest.json", files=files)
    with pytest.raises(DatasetChangedError, match="watermark walk"):
        validate_dataset(copy)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("data.jsonl", lambda raw: raw.replace(b"The ", b"An ", 1)),
        ("data.jsonl", lambda raw: raw[: len(raw) // 2]),
        ("request_metadata.jsonl", lambda raw: raw.replace(b'"input_len":', b'"input_len":1', 1)),
        ("validation_report.json", lambda raw: raw.replace(b"0.6", b"0.7", 1)),
        ("request_metadata.jsonl", lambda raw: b"not json\n" + raw),
    ],
)
def test_any_edit_is_told(copy: Path, name: str, change: Any) -> None:
    raw = (copy / name).read_bytes()
    assert change(raw) != raw
    (copy / name).write_bytes(change(raw))
    with pytest.raises(DatasetChangedError):
        validate_dataset(copy)
    with pytest.raises(DatasetChangedError):
        DatasetReader(copy).check_hashes()


def test_a_missing_file_is_told(copy: Path) -> None:
    (copy / "request_metadata.jsonl").unlink()
    with pytest.raises(DatasetChangedError, match="missing"):
        validate_dataset(copy)


def test_validation_changes_nothing_on_disk(copy: Path) -> None:
    before = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in copy.iterdir()}
    validate_dataset(copy)
    after = {path.name: (path.read_bytes(), path.stat().st_mtime_ns) for path in copy.iterdir()}
    assert after == before


@pytest.mark.parametrize("prompt_format", ["text", "token_ids"])
@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("target.semantics=static_prefix_ratio", "execution.mode=compare"),
        ("suffix.divergence_block=false",),
        ("routing.cache_scope=dp_local", "routing.dp_size=2", "routing.policy=round_robin"),
        ("prefix.nested_prefix=false", "validation.on_failure=warn"),
        ("block_size=16", "hit_granularity=32", "target.hit_ratio=0.4"),
        ("suffix.source=random",),
        ("request_order.mode=prefix_len_desc",),
    ],
)
def test_every_kind_of_data_set_is_proved(
    tmp_path: Path, changes: tuple[str, ...], prompt_format: str
) -> None:
    generate(tmp_path / "out", "request_count=120", f"prompt_format={prompt_format}", *changes)
    validate_dataset(tmp_path / "out", verify="full")


def test_a_full_folder_is_refused_unless_told_otherwise(copy: Path) -> None:
    with pytest.raises(OutputExistsError):
        generate(copy)
    generate(copy, "request_count=40", overwrite=True)
    assert DatasetManifest.load(copy).request_count == 40


@pytest.mark.parametrize("keep", [0, 1, 99_999, 250_000])
def test_a_killed_generation_resumes_to_the_same_bytes(small: Path, copy: Path, keep: int) -> None:
    """A kill at any moment leaves a partial manifest and some whole and some broken lines."""
    partial = orjson.loads((copy / "manifest.json").read_bytes())
    kept = ("dataset_id", "format_version", "prefixbench_version", "identity_sha256")
    fields = {key: partial[key] for key in kept}
    (copy / "manifest.json").write_bytes(orjson.dumps(fields | {"status": "partial"}))
    (copy / "validation_report.json").unlink()
    for name in ("data.jsonl", "request_metadata.jsonl"):
        raw = (copy / name).read_bytes()
        (copy / name).write_bytes(raw[: min(keep, len(raw) * keep // 300_000)])
    with pytest.raises(DatasetChangedError, match="partial"):
        validate_dataset(copy)
    generate(copy, resume=True)
    assert contents(copy) == contents(small)


def test_resuming_with_other_inputs_is_refused(copy: Path) -> None:
    with pytest.raises(OutputExistsError, match="other inputs"):
        generate(copy, "seed=8", resume=True)


def test_a_full_disk_is_a_clear_error_that_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, chunks = writer_module.DatasetWriter.write, []

    def failing(self: Any, chunk: Any) -> None:
        chunks.append(chunk)
        if len(chunks) > 1:
            raise OSError(28, "No space left on device")
        write(self, chunk)

    monkeypatch.setattr(writer_module.DatasetWriter, "write", failing)
    monkeypatch.setattr(compose_module, "_CHUNKS_AT_ONCE", 1)
    with pytest.raises(StorageError, match="No space left") as caught:
        generate(tmp_path / "out")
    assert "--resume" in caught.value.hint
    manifest = DatasetManifest.load(tmp_path / "out")
    assert manifest.status == "partial"
    assert manifest.data["error"]["code"] == "storage"
    assert len((tmp_path / "out" / "data.jsonl").read_bytes().splitlines()) == 256


def test_manifests_hold_neither_paths_nor_prompts(small: Path) -> None:
    prompts = [row["prompt"] for row in DatasetReader(small).requests()]
    for name in FILES[1:]:
        text = (small / name).read_text()
        assert str(small.parent) not in text
        assert not any(prompt[20:80] in text for prompt in prompts[:50])
