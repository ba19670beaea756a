"""Data sets of trees and sessions, read back as a server would: every hit is the planned one."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content_samples import builtin_tokenizer
from oracles import BlockCache
from prefixbench.config.load import parse_config
from prefixbench.core.errors import DatasetChangedError
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.dataset.rehearsal import rehearse
from prefixbench.pipeline import generate_prefix_cache_dataset, validate_dataset
from prefixbench.simulator.engine import Engine

BLOCK = 4
Row = dict[str, Any]


@st.composite
def trees(draw: st.DrawFn) -> list[Row]:
    levels = [
        {"name": f"level{k}", "count": draw(st.integers(1, 2)), "length": draw(st.integers(1, 18))}
        for k in range(draw(st.integers(1, 3)))
    ]
    if draw(st.booleans()):
        del levels[-1]["length"]
    return levels


@st.composite
def session_settings(draw: st.DrawFn) -> Row:
    return {
        "turns": draw(st.integers(1, 4)),
        "new_tokens": draw(st.integers(1, 12)),
        "answers": draw(st.sampled_from(["planned", "served"])),
    }


@st.composite
def configurations(draw: st.DrawFn) -> Row:
    return {
        "dataset_id": "forest",
        "seed": draw(st.integers(0, 99)),
        "request_count": draw(st.integers(36, 60)),
        "block_size": BLOCK,
        "input_length": {
            "mode": "truncated_normal",
            "min": 12,
            "max": 70,
            "mean": draw(st.integers(15, 60)),
            "std": 15,
        },
        "output_length": draw(st.integers(1, 9)),
        "target": {"hit_ratio": draw(st.integers(0, 80)) / 100},
        "prefix": draw(
            st.one_of(
                st.builds(lambda tree: {"tree": tree}, trees()),
                st.just({"group_count": 3, "mode": "multi_prefix"}),
            )
        ),
        "sessions": draw(st.one_of(st.none(), session_settings())),
        "suffix": {"divergence_block": draw(st.sampled_from([True, True, False]))},
        "execution": {"mode": draw(st.sampled_from(["cold", "warmup"]))},
        "prompt_format": draw(st.sampled_from(["text", "token_ids"])),
        "planning": {"concurrency": draw(st.sampled_from([1, 1, 3]))},
        "request_order": {"mode": draw(st.sampled_from(["shuffle", "grouped", "interleave"]))},
        "save_prompts": draw(st.sampled_from([True, True, False])),
        "validation": {"on_failure": "warn"},
    }


class Conversations:
    """The sequences a server sees, given that it answers with tokens that nobody else says."""

    def __init__(self, folder: Path) -> None:
        self.rows = list(open_dataset(folder).requests())
        self._ids: dict[str, list[Any]] = {}

    def prompt(self, row: Row) -> list[Any]:
        own = row.get("prompt_token_ids") or builtin_tokenizer().encode(row["prompt"])
        before = row.get("continues")
        said = [] if before is None else [*self._ids[before], *self.answer(before)]
        self._ids[row["request_id"]] = [*said, *own]
        return self._ids[row["request_id"]]

    def answer(self, request_id: str) -> list[Any]:
        length = next(row["max_tokens"] for row in self.rows if row["request_id"] == request_id)
        return [(request_id, place) for place in range(length)]


def hits_of_a_server(folder: Path) -> list[int]:
    """Tokens found by each request in sending order, every answer stored but its last token."""
    talk, cache = Conversations(folder), BlockCache(BLOCK)
    metadata = list(DatasetReader(folder).metadata())
    if DatasetReader(folder).manifest.data["warmed"]:
        for row, planned in zip(talk.rows, metadata, strict=True):
            if not planned.get("turn"):
                cache.serve(talk.prompt(row)[: planned["planned_prefix_len"]])
    hits = []
    for row, planned in zip(talk.rows, metadata, strict=True):
        ids = talk.prompt(row)
        assert len(ids) == planned["input_len"]
        hits.append(cache.serve(ids))
        cache.serve([*ids, *talk.answer(row["request_id"])[:-1]])
    return hits


@settings(max_examples=60, deadline=None)
@given(configurations())
def test_a_server_finds_what_trees_and_sessions_promise(settings: Row) -> None:
    with TemporaryDirectory() as folder:
        report = generate_prefix_cache_dataset(
            parse_config(settings), output_dir=folder, verify="full"
        ).report
        assert report["verification"]["mismatches"] == 0
        validate_dataset(folder)
        found = hits_of_a_server(Path(folder))
        planned = [row["expected_hit_len"] for row in DatasetReader(folder).metadata()]
        played = rehearse(DatasetReader(folder), lambda: Engine("vllm-0.33", block_size=BLOCK))
        if settings["planning"]["concurrency"] == 1:
            assert found == planned
            assert played.tally.hits == sum(planned)
        else:
            assert all(own >= hit for own, hit in zip(found, planned, strict=True))


@settings(max_examples=25, deadline=None)
@given(configurations())
def test_no_prompt_repeats_a_sample_unless_that_is_said(settings: Row) -> None:
    with TemporaryDirectory() as folder:
        generate_prefix_cache_dataset(
            parse_config(settings), output_dir=folder, verify="certificate"
        )
        reader = DatasetReader(folder)
        warnings = reader.manifest.data["collision"]["warnings"]
        if any("repeat samples" in warning for warning in warnings):
            return
        for row in reader.metadata():
            # A sample that a prefix is cut in may stand there once more, from its next sentence on.
            assert len(set(row["sample_ids"])) == len(row["sample_ids"])


def served_sessions(folder: Path) -> None:
    config = parse_config(
        {
            "dataset_id": "talks",
            "request_count": 30,
            "block_size": BLOCK,
            "input_length": 40,
            "output_length": 6,
            "target": {"hit_ratio": 0.6},
            "sessions": {"turns": 3, "new_tokens": 8, "answers": "served"},
            "validation": {"on_failure": "warn"},
        }
    )
    generate_prefix_cache_dataset(config, output_dir=folder)


def swap_first_and_last(path: Path) -> None:
    lines = path.read_text().splitlines()
    lines[0], lines[-1] = lines[-1], lines[0]
    path.write_text("\n".join(lines) + "\n")


def test_turns_out_of_turn_are_told(tmp_path: Path) -> None:
    served_sessions(tmp_path)
    for name in ("data.jsonl", "request_metadata.jsonl"):
        swap_first_and_last(tmp_path / name)
    with pytest.raises(DatasetChangedError, match="turns in turn"):
        validate_dataset(tmp_path)


def test_rows_of_served_sessions_hold_new_text_alone(tmp_path: Path) -> None:
    served_sessions(tmp_path)
    rows = list(DatasetReader(tmp_path).requests())
    metadata = list(DatasetReader(tmp_path).metadata())
    later = [row for row in rows if "continues" in row]
    assert len(later) == 20
    assert {len(builtin_tokenizer().encode(row["prompt"])) for row in later} == {8}
    for row, planned in zip(rows, metadata, strict=True):
        assert planned["history_request_id"] == row.get("continues")
        assert (planned["turn"] == 0) == ("continues" not in row)
    assert len({row["session_id"] for row in metadata}) == 10
    assert json.loads((tmp_path / "manifest.json").read_text())["config"]["sessions"]["turns"] == 3
