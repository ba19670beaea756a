"""Data sets of conversations, made by hand from one of single requests: their first turns."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator, Mapping
from itertools import count, islice
from pathlib import Path
from typing import Any

import orjson

from prefixbench.content.tokenizer import load_tokenizer
from prefixbench.content.words import word_atoms
from prefixbench.core.blocks import align_down
from prefixbench.dataset.layout import (
    DATA,
    METADATA,
    REPORT,
    canonical_sha256,
    document,
    file_sha256,
    row,
)
from prefixbench.dataset.reader import DatasetReader

#: Tokens of an answer, and of what a later turn adds behind it; neither ends on a block's edge.
ANSWER = 21
NEW = 13

Rows = tuple[dict[str, Any], dict[str, Any]]


def conversations(base: Path, folder: Path, *, answers: str, turns: int = 3, seed: int = 1) -> Path:
    """Each request of `base` goes on for so many turns, which come in an order of their own.

    `base` has answers of `ANSWER` tokens. First turns keep their order, so that they find what they
    found before; a later turn finds its history.
    """
    base_set = DatasetReader(base)
    step = base_set.manifest.hit_granularity
    draw, words = random.Random(seed), _words()
    placed: list[tuple[float, Rows]] = []
    for place, first in enumerate(zip(base_set.requests(), base_set.metadata(), strict=True)):
        key = float(place)
        for rows in _session(first, turns, words, served=answers == "served", step=step):
            placed.append((key, rows))
            key += draw.uniform(0, base_set.manifest.request_count / 2)
    placed.sort(key=lambda each: each[0])
    shutil.copytree(base, folder)
    _write(
        folder,
        [rows for _, rows in placed],
        {"turns": turns, "new_tokens": NEW} | {"answers": answers},
    )
    return folder


def _session(
    first: Rows, turns: int, words: Iterator[tuple[str, int]], *, served: bool, step: int
) -> Iterator[Rows]:
    data, metadata = first
    assert metadata["output_len"] == ANSWER
    session = {"session_id": f"s-{data['request_id']}", "turn": 0, "history_request_id": None}
    metadata = metadata | session
    yield data, metadata
    for turn in range(1, turns):
        before, history_len = data["request_id"], metadata["input_len"]
        added = list(islice(words, NEW if served else ANSWER + NEW))
        data = _turn(data, added, served=served) | {
            "request_id": f"{first[0]['request_id']}-{turn}"
        }
        stored_len = history_len + (ANSWER - 1 if served else 0)
        hit_len = align_down(stored_len, step)
        metadata = metadata | {
            "request_id": data["request_id"],
            "turn": turn,
            "history_request_id": before,
            "input_len": history_len + ANSWER + NEW,
            "planned_prefix_len": stored_len,
            "suffix_len": history_len + ANSWER + NEW - stored_len - metadata["divergence_len"],
            "expected_hit_len": hit_len,
            "cached_watermark_before": hit_len,
        }
        yield data, metadata


def _turn(
    before: Mapping[str, Any], added: list[tuple[str, int]], *, served: bool
) -> dict[str, Any]:
    text, ids = "".join(word for word, _ in added), [word_id for _, word_id in added]
    new: dict[str, Any] = (
        {"prompt_token_ids": ids} if "prompt_token_ids" in before else {"prompt": text}
    )
    if served:
        return {**before, **new, "continues": before["request_id"]}
    return {**before, **{name: before[name] + value for name, value in new.items()}}


def _words() -> Iterator[tuple[str, int]]:
    """Words of one token each, wherever they stand."""
    atoms = word_atoms(load_tokenizer("builtin"))
    return ((atoms[n * 7 % len(atoms)].text, atoms[n * 7 % len(atoms)].id) for n in count())


def _write(folder: Path, rows: list[Rows], sessions: Mapping[str, Any]) -> None:
    metadata = [dict(each) | {"order_index": place} for place, (_, each) in enumerate(rows)]
    report = orjson.loads((folder / REPORT).read_bytes())
    manifest = orjson.loads((folder / "manifest.json").read_bytes())
    report["input_tokens"] = sum(each["input_len"] for each in metadata)
    report["expected_hit_tokens"] = sum(each["expected_hit_len"] for each in metadata)
    report["designed_hit_ratio"] = report["expected_hit_tokens"] / report["input_tokens"]
    manifest["request_count"] = len(rows)
    manifest["config"]["sessions"] = sessions
    manifest["config_sha256"] = canonical_sha256(manifest["config"])
    (folder / DATA).write_bytes(b"".join(row(data) for data, _ in rows))
    (folder / METADATA).write_bytes(b"".join(map(row, metadata)))
    (folder / REPORT).write_bytes(document(report))
    manifest["files"] = {
        name: {"bytes": (folder / name).stat().st_size, "sha256": file_sha256(folder / name)}
        for name in (DATA, METADATA, REPORT)
    }
    (folder / "manifest.json").write_bytes(document(manifest))
