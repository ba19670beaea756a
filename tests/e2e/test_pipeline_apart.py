"""Data sets that differ in anything that was planned share no block beyond their head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixbench.config.load import parse_config
from prefixbench.dataset.reader import DatasetReader
from prefixbench.pipeline import generate_prefix_cache_dataset

BLOCK = 4
CONFIG: dict[str, Any] = {
    "dataset_id": "apart",
    "seed": 7,
    "request_count": 60,
    "block_size": BLOCK,
    "prompt_format": "token_ids",
    "input_length": {"mode": "truncated_normal", "min": 40, "max": 120, "mean": 80, "std": 20},
    "target": {"hit_ratio": 0.5, "semantics": "order_aware_global"},
    "prefix": {"group_count": 3},
}
OTHERS: dict[str, dict[str, Any]] = {
    "semantics": {"target": {"hit_ratio": 0.5, "semantics": "static_prefix_ratio"}},
    "mode": {"execution": {"mode": "warmup"}},
    "lengths": {"input_length": {**CONFIG["input_length"], "mean": 81}},
    "count": {"request_count": 61},
    "block size": {"block_size": 2 * BLOCK},
    "groups": {"prefix": {"group_count": 2}},
    "weights": {
        "prefix": {"groups": [{"id": f"group_{n}", "request_weight": n + 1} for n in range(3)]}
    },
    "tree": {"prefix": {"tree": [{"name": "top", "length": 16}, {"name": "leaf", "count": 3}]}},
    "deeper tree": {
        "prefix": {"tree": [{"name": "top", "length": 8}, {"name": "leaf", "count": 3}]}
    },
    "sessions": {"sessions": {"turns": 2, "new_tokens": 20}},
    "nesting": {"prefix": {"group_count": 3, "nested_prefix": False}},
    "suffix": {"suffix": {"separator": " "}},
    "seed": {"seed": 8},
    "dataset_id": {"dataset_id": "other"},
    "target": {"target": {"hit_ratio": 0.51, "semantics": "order_aware_global"}},
}


def blocks_beyond_the_head(folder: Path, **options: Any) -> set[tuple[int, ...]]:
    """Every block with all before it, as a cache of chained blocks knows it."""
    generate_prefix_cache_dataset(output_dir=folder, **options)
    dataset = DatasetReader(folder)
    assert dataset.manifest.head_len < BLOCK
    return {
        tuple(row["prompt_token_ids"][:end])
        for row in dataset.requests()
        for end in range(BLOCK, len(row["prompt_token_ids"]) + 1, BLOCK)
    }


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[int, ...]]:
    folder = tmp_path_factory.mktemp("apart") / "dataset"
    blocks = blocks_beyond_the_head(folder, config=parse_config(CONFIG))
    assert len(blocks) > 500
    return blocks


@pytest.mark.parametrize("changes", OTHERS.values(), ids=OTHERS)
def test_another_plan_shares_no_block(
    known: set[tuple[int, ...]], tmp_path: Path, changes: dict[str, Any]
) -> None:
    config = parse_config(CONFIG | {"validation": {"on_failure": "warn"}} | changes)
    assert not known & blocks_beyond_the_head(tmp_path / "other", config=config)


def test_another_corpus_shares_no_block(known: set[tuple[int, ...]], tmp_path: Path) -> None:
    corpus = tmp_path / "own.txt"
    corpus.write_text("\n\n".join(f"Line {n} counts {n * 7} small boats." for n in range(200)))
    config = parse_config(CONFIG)
    assert not known & blocks_beyond_the_head(tmp_path / "other", config=config, corpus=str(corpus))


def test_the_same_plan_is_the_same_prompts_in_any_format(
    known: set[tuple[int, ...]], tmp_path: Path
) -> None:
    config = parse_config(CONFIG | {"output_length": 5, "execution": {"concurrency": 4}})
    assert known == blocks_beyond_the_head(tmp_path / "again", config=config)
