"""`prefixbench simulate --trace` and `prefixbench trace`, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from prefixbench.cli.main import main

#: Five requests with every number worked out by hand in tests/unit/test_simulator_small_trace.py.
ROWS = [(10, [1, 2, 3]), (11, [1, 2, 4]), (10, [1, 2, 3]), (5, [5, 6]), (11, [1, 2, 4])]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PREFIXBENCH_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(tmp_path: Path) -> Path:
    path = tmp_path / "small.jsonl"
    rows = [
        {"timestamp": 1000 * second, "input_length": tokens, "output_length": 2, "hash_ids": ids}
        for second, (tokens, ids) in enumerate(ROWS)
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, list(map(str, arguments)))


def simulated(path: Path, *arguments: object) -> dict[str, Any]:
    options = ("--format", "mooncake", "--block-size", 4, "--json")
    result = run("simulate", "--trace", path, *options, *arguments)
    assert result.exit_code == 0, result.output
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_every_definition_is_reported_with_what_it_needs(small: Path) -> None:
    document = simulated(small)
    found = {
        row["definition"]: (row["hits"], row["queries"], row["unit"])
        for row in document["hit_ratios"]
    }
    assert found == {
        "blocks": (8, 14, "block"),
        "tokens_capped": (29, 47, "token"),
        "tokens_engine": (24, 47, "token"),
        "full_blocks": (6, 9, "block"),
        "mean_block_ratio": (None, None, None),
        "mean_token_ratio": (None, None, None),
    }
    assert document["hit_ratio"] == 24 / 47
    for row in document["hit_ratios"]:
        assert (row["window"], row["block_size"], row["requests"]) == (1, 4, "all requests")
    assert "in blocks of 4 tokens" in document["comparable_with"]


def test_capacity_policy_lag_and_ttl(small: Path) -> None:
    def hits(*arguments: object) -> int:
        found: int = simulated(small, *arguments)["blocks"]["hits"]
        return found

    assert hits("--capacity-blocks", 4) == 7
    assert hits("--capacity-blocks", 4, "--policy", "fifo") == 5
    assert hits("--capacity-blocks", 4, "--policy", "optimal") == 8
    assert hits("--concurrency", 2) == 6
    assert hits("--ttl", 1) == 4


def test_the_curve_stands_beside_the_optimum(small: Path) -> None:
    options = ("--curve", "--hit-definition", "blocks")
    document = simulated(small, *options)
    assert [
        (row["capacity_blocks"], row["capacity_tokens"], row["hit_ratio"], row["optimal_hit_ratio"])
        for row in document["curve"]
    ] == [
        (1, 4, 2 / 14, 3 / 14),
        (2, 8, 4 / 14, 6 / 14),
        (4, 16, 7 / 14, 8 / 14),
        (6, 24, 8 / 14, 8 / 14),
    ]
    assert document["blocks"]["lossless_capacity"] == 6
    assert {row["share"]: row["blocks"] for row in document["reuse"]} == {
        0.25: 1,
        0.5: 2,
        0.75: 4,
        0.9: 4,
        0.99: 6,
        1.0: 6,
    }
    assert document["popularity"]["most_used"] == 4
    lagging = simulated(small, *options, "--concurrency", 2)["curve"]
    assert all(row["optimal_hit_ratio"] is None for row in lagging)


def test_lengths_and_arrivals(small: Path) -> None:
    document = simulated(small)
    assert document["input_length"]["mean"] == 47 / 5
    assert document["output_length"]["count"] == 5
    assert document["arrivals"] == {"duration_s": 4.0, "requests_per_s": 1.25}


def test_the_page_says_the_same(small: Path) -> None:
    arguments = ("--trace", small, "--format", "mooncake", "--block-size", 4, "--curve")
    result = run("simulate", *arguments, "--capacity-blocks", 4)
    assert result.exit_code == 0
    assert "5 requests, 14 block accesses, 6 different blocks of 4 tokens" in result.stdout
    assert "lru, 4 blocks, 1 request in flight" in result.stdout
    assert "tokens_capped" in result.stdout
    assert "1.25 requests/s over 4 s" in result.stdout


def test_a_trace_without_blocks_has_lengths_alone(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,48,10\n")
    arguments = ("simulate", "--trace", path, "--format", "azure")
    document = json.loads(run(*arguments, "--json").stdout)
    assert document["hit_ratio"] is None
    assert document["input_length"]["mean"] == 48
    page = run(*arguments)
    assert "lengths and arrivals alone" in page.stdout
    assert page.exit_code == 0


def test_ids_that_contradict_each_other_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "content.jsonl"
    rows = [{"input_length": 8, "hash_ids": ids} for ids in ([1, 2], [3, 4], [1, 4])]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    document = simulated(path)
    assert document["blocks"]["hits"] == 1
    assert "1 of the ids stand behind different parents" in document["notes"][0]
    assert "more blocks than their input fills" in simulated(path, "--block-size", 8)["notes"][1]


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--trace", "x"], "a trace needs --format"),
        (["--trace", "x", "--dataset", "y"], "give one of"),
        (["--dataset", "x", "--policy", "fifo"], "--policy goes with --trace"),
        (["--dataset", "x", "--format", "weka"], "--format goes with --trace"),
        (["--trace", "x", "--format", "weka", "--profile", "vllm-0.33"], "takes --policy"),
        (["--trace", "x", "--format", "weka", "--policy", "fifo", "--ttl", "1"], "policy lru"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], told: str) -> None:
    result = run("simulate", *arguments)
    assert result.exit_code == 2
    assert told in result.output
