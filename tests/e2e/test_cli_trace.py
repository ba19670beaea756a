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
        0.9: 6,
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
    assert document["arrivals"] == {"duration_s": 4.0, "requests_per_s": 1.0}


def test_the_page_says_the_same(small: Path) -> None:
    arguments = ("--trace", small, "--format", "mooncake", "--block-size", 4, "--curve")
    result = run("simulate", *arguments, "--capacity-blocks", 4)
    assert result.exit_code == 0
    assert "5 requests, 14 block accesses, 6 different blocks of 4 tokens" in result.stdout
    assert "lru, 4 blocks, 1 request in flight" in result.stdout
    assert "tokens_capped" in result.stdout
    assert "1.00 requests/s over 4 s" in result.stdout


def test_engines_of_a_profile_find_what_their_rules_let_them(small: Path) -> None:
    document = simulated(small, "--profile", "vllm-0.33")
    # Full blocks, and never the last token: as `tokens_engine`, for nobody asks for an answer.
    assert document["engine"]["hits"] == 24
    assert document["engine"]["queries"] == 47
    routed = simulated(small, "--profile", "vllm-0.33", "--routing", "round_robin", "--dp-size", 2)[
        "engine"
    ]
    assert [row["hits"] for row in routed["ranks"]] == [8 + 8, 0]
    assert routed["routing"] == "round_robin"
    assert simulated(small)["engine"] is None
    arguments = ("simulate", "--trace", small, "--format", "mooncake", "--block-size", 4)
    page = run(*arguments, "--profile", "vllm-0.33", "--capacity-blocks", 5)
    assert "hit by 1 engine of vllm-0.33" in page.stdout
    tiny = run(*arguments, "--profile", "vllm-0.33", "--capacity-blocks", 2)
    assert tiny.exit_code == 2
    assert "do not fit into 2 blocks" in tiny.output


@pytest.mark.parametrize("ranks", [1, 2])
def test_tiers_below_give_what_a_small_cache_lost(ranks: int, tmp_path: Path) -> None:
    """Four prompts of two blocks and a token, in turn, three times; a cache has room for one."""
    path = tmp_path / "cycle.jsonl"
    rows = [{"input_length": 9, "hash_ids": [10 * k, 10 * k + 1, 10 * k + 2]} for k in range(4)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows * 3))
    small = ("--capacity-blocks", 3)
    if ranks > 1:
        small += ("--routing", "round_robin", "--dp-size", ranks)
    alone = simulated(path, *small, "--profile", "vllm-0.33")["engine"]
    assert (alone["hits"], alone["tiers"], alone["combined_hit_ratio"]) == (0, [], 0)
    engine = simulated(path, *small, "--profile", "vllm-0.33+host100")["engine"]
    assert engine["hits"] == 0
    assert engine["tiers"] == [
        {"name": "host", "queries": 12 * 9, "hits": 8 * 8, "hit_ratio": 64 / 108}
    ]
    assert engine["combined_hit_ratio"] == 64 / 108
    options = ("--trace", path, "--format", "mooncake", "--block-size", 4)
    page = run("simulate", *options, *small, "--profile", "vllm-0.33+host100").stdout
    assert "59.26 % found in all tiers together" in page


def test_a_request_of_no_conversation_is_routed_alone(small: Path) -> None:
    for routing, served in (("sticky", [10 + 10 + 11, 11 + 5]), ("round_robin", [31, 16])):
        engine = simulated(small, "--profile", "ideal", "--routing", routing, "--dp-size", 2)[
            "engine"
        ]
        assert [row["queries"] for row in engine["ranks"]] == served


def test_requests_without_a_token_are_left_out_of_an_engine(tmp_path: Path) -> None:
    rows = [{"input_length": 0, "hash_ids": []}, {"input_length": 9, "hash_ids": [1, 2, 3]}]
    path = tmp_path / "empty.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in (*rows, *rows)))
    engine = simulated(path, "--profile", "vllm-0.33")["engine"]
    assert (engine["hits"], engine["queries"]) == (8, 18)
    assert engine["notes"] == [
        "2 requests without a prompt token left out by the engine: servers refuse them"
    ]
    path.write_text(json.dumps(rows[0]))
    assert simulated(path, "--profile", "vllm-0.33")["engine"] is None


@pytest.mark.parametrize(
    ("times", "in_time"), [([0, 0, 0], True), ([0, 0, 1], True), ([2, 1, 0], False)]
)
def test_requests_come_as_the_trace_says(times: list[int], in_time: bool, tmp_path: Path) -> None:
    """Three at once share the steps; one after the other, each waits for the one before."""
    cost = tmp_path / "cost.json"
    cost.write_text(json.dumps({"format": "prefixbench-cost/1", "step_ns": 1_000_000}))
    trace = tmp_path / "burst.jsonl"
    rows = [
        {"timestamp": time, "input_length": 4, "output_length": 10, "hash_ids": [number]}
        for number, time in enumerate(times)
    ]
    trace.write_text("".join(json.dumps(row) + "\n" for row in rows))
    engine = simulated(trace, "--profile", "vllm-0.33", "--cost", cost)["engine"]
    assert engine["times"]["duration_s"] == pytest.approx(
        0.010 + (times[-1] / 1000) if in_time else 0.030
    )
    assert [("no times in order" in note) for note in engine["notes"]] == [True] * (not in_time)


def test_a_trace_without_blocks_has_lengths_alone(tmp_path: Path) -> None:
    path = tmp_path / "azure.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,48,10\n")
    arguments = ("simulate", "--trace", path, "--format", "azure")
    document = json.loads(run(*arguments, "--json").stdout)
    assert document["hit_ratio"] is None
    assert document["input_length"]["mean"] == 48
    page = run(*arguments, "--profile", "vllm-0.33")
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


def test_nothing_told_of_sharing_is_not_nothing_shared(tmp_path: Path) -> None:
    source, trace = tmp_path / "azure.csv", tmp_path / "trace.jsonl"
    source.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,480,10\n")
    assert run("trace", "convert", source, "--format", "azure", "--output", trace).exit_code == 0
    result = run("simulate", "--trace", trace, "--format", "mooncake", "--json")
    document = json.loads(result.stdout)
    assert document["hit_ratio"] is None
    assert document["block_size"] is None
    assert any("nothing is known of what they share" in note for note in document["notes"])


def test_a_time_to_live_needs_arrivals(tmp_path: Path) -> None:
    path = tmp_path / "timeless.jsonl"
    path.write_text('{"input_length": 8, "hash_ids": [1]}\n' * 2)
    result = run("simulate", "--trace", path, "--format", "mooncake", "--ttl", 1)
    assert (result.exit_code, "--ttl needs arrival times" in result.output) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--trace", "x"], "a trace needs --format"),
        (["--trace", "x", "--dataset", "y"], "give one of"),
        (["--dataset", "x", "--policy", "fifo"], "--policy goes with --trace"),
        (["--dataset", "x", "--format", "weka"], "--format goes with --trace"),
        (["--trace", "x", "--format", "weka", "--routing", "sticky"], "and --profile"),
        (["--dataset", "x", "--window", "0.5"], "--window goes with --trace"),
        (["--story", "x", "--curve"], "--curve goes with --dataset or --trace"),
        (["--replay", "x", "--profile", "ideal"], "--profile goes with --dataset or --trace or"),
        (["--trace", "x", "--check"], "--check goes with --replay"),
        (["--trace", "x", "--format", "weka", "--engine-path", "pure"], "where --profile names"),
        (["--trace", "x", "--format", "weka", "--policy", "fifo", "--ttl", "1"], "policy lru"),
    ],
)
def test_wrong_usage_is_told(arguments: list[str], told: str) -> None:
    result = run("simulate", *arguments)
    assert result.exit_code == 2
    assert told in result.output


SECRET = "the launch is on Tuesday, tell nobody before; "


def log_of(tmp_path: Path) -> Path:
    """Texts that share a beginning of many tokens, and one that shares nothing."""
    path = tmp_path / "log.jsonl"
    rows = [
        {"prompt": SECRET * 20 + f"question {number}", "max_tokens": 5, "arrival_ms": 10 * number}
        for number in range(3)
    ]
    rows.append({"prompt": "something else entirely", "max_tokens": 9, "arrival_ms": 40})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_logs_become_an_anonymised_trace(tmp_path: Path) -> None:
    log, trace = log_of(tmp_path), tmp_path / "trace.jsonl"
    source = ("--format", "requests", "--tokenizer", "builtin", "--block-size", 16)
    done = run("trace", "convert", log, *source, "--output", trace)
    assert done.exit_code == 0, done.output
    assert "4 requests, blocks of 16 tokens, mooncake" in " ".join(done.stdout.split())
    written = trace.read_text()
    assert "Tuesday" not in written
    assert set(json.loads(written.splitlines()[0])) == {
        "timestamp",
        "input_length",
        "output_length",
        "hash_ids",
        "block_size",
    }
    direct = json.loads(run("simulate", "--trace", log, *source, "--json").stdout)
    again = run("simulate", "--trace", trace, "--format", "mooncake", "--json")
    converted = json.loads(again.stdout)
    assert direct["blocks"]["hits"] > 20
    for key in ("hit_ratios", "blocks", "input_length", "output_length", "arrivals"):
        assert converted[key] == direct[key]


@pytest.mark.parametrize("form", ["mooncake", "runs"])
def test_content_ids_become_prefix_ids_where_a_form_wants_them(form: str, tmp_path: Path) -> None:
    path, written = tmp_path / "chats.jsonl", tmp_path / "written"
    rows = [
        {"chat_id": chat, "parent_chat_id": -1, "timestamp": 1, "input_length": 32}
        | {"output_length": 1, "hash_ids": ids}
        for chat, ids in enumerate(([1, 2], [3, 4], [1, 4], [1, 2]))
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = run("trace", "convert", path, "--format", "bailian", "--to", form, "--output", written)
    assert done.exit_code == 0, done.output
    document = json.loads(run("simulate", "--trace", written, "--format", form, "--json").stdout)
    assert document["blocks"]["hits"] == 3
    assert document["block_size"] == 16
    assert not document["notes"]
    if form == "mooncake":
        ids = [json.loads(line)["hash_ids"] for line in written.read_text().splitlines()]
        assert ids == [[0, 1], [2, 3], [0, 4], [0, 1]]


def test_a_file_is_not_replaced_unasked(tmp_path: Path) -> None:
    log = log_of(tmp_path)
    arguments = ("trace", "convert", log, "--format", "requests", "--tokenizer", "builtin")
    existing = tmp_path / "existing"
    existing.write_text("mine")
    refused = run(*arguments, "--output", existing)
    assert refused.exit_code == 2
    assert "existing exists" in refused.output
    assert existing.read_text() == "mine"
    assert run(*arguments, "--output", existing, "--overwrite").exit_code == 0


def synthesized(source: Path, target: Path, *arguments: object) -> dict[str, Any]:
    done = run("trace", "synthesize", source, *arguments, "--output", target, "--json")
    assert done.exit_code == 0, done.output
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def test_a_configuration_has_the_lengths_groups_and_hits_of_its_trace(tmp_path: Path) -> None:
    """Two conversations behind a common head of one block, and a request on its own."""
    source, target = tmp_path / "trace.jsonl", tmp_path / "made.yaml"
    rows = [
        (120, [0, 1, 2, 3, 4, 20, 21, 22]),
        (60, [0, 5, 6, 7]),
        (90, [0, 1, 2, 3, 8, 9]),
        (20, [0, 10]),
        (100, [0, 1, 2, 3, 8, 11, 12]),
        (90, [0, 5, 6, 13, 14, 15]),
    ]
    source.write_text(
        "".join(
            json.dumps({"input_length": tokens, "output_length": 3, "hash_ids": ids}) + "\n"
            for tokens, ids in rows
        )
    )
    source_options = ("--format", "mooncake", "--block-size", 16)
    document = synthesized(source, target, *source_options)
    # Hits in blocks: 0, 1, 4, 1, 5, 3. Those of requests 1 and 3 are asked of the first group.
    assert document["trace_hit_ratio"] == pytest.approx(14 * 16 / 480)
    assert document["designed_hit_ratio"] == pytest.approx(14 * 16 / 480)
    assert (document["requests"], document["groups"]) == (6, 3)
    # The lone request has nobody to share with; the first group's requests take its hit.
    assert document["fidelity"]["equal_requests"] < 1
    assert any("the head of 16 tokens" in sentence for sentence in document["not_kept"])
    planned = run("plan", "--config", target, "--json")
    assert planned.exit_code == 0, planned.output
    groups = {row["id"]: row for row in json.loads(planned.stdout)["per_group"]}
    assert list(groups) == ["group_0", "group_1", "group_2"]
    assert groups["group_2"]["designed_hit_ratio"] == 0
    assert groups["group_0"]["designed_hit_ratio"] == pytest.approx(11 * 16 / 310)

    dataset = tmp_path / "dataset"
    generated = run("generate", "--config", target, "--output", dataset)
    assert generated.exit_code == 0, generated.output
    rows_on_disk = (dataset / "request_metadata.jsonl").read_text().splitlines()
    metadata = list(map(json.loads, rows_on_disk))
    assert [row["input_len"] for row in metadata] == [tokens for tokens, _ids in rows]
    assert [row["output_len"] for row in metadata] == [3] * 6
    assert [row["prefix_group_id"][-1] for row in metadata] == list("010201")


def test_the_configuration_says_where_it_comes_from(small: Path, tmp_path: Path) -> None:
    target = tmp_path / "made.yaml"
    document = synthesized(
        small, target, "--format", "mooncake", "--block-size", 4, "--requests", 3
    )
    assert document["requests"] == 3
    head = target.read_text().partition("prefix_cache_dataset:")[0]
    assert f"# made of the trace small.jsonl (SHA-256 {document['source_sha256']})" in head
    for sentence in document["not_kept"]:
        assert f"# - {sentence}" in head
    assert any("--request-rate 1 " in sentence for sentence in document["not_kept"])


def test_lengths_alone_make_a_configuration_without_sharing(tmp_path: Path) -> None:
    source, target = tmp_path / "azure.csv", tmp_path / "made.yaml"
    source.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03,480,10\n2023-11-16 18:17:04,3,0\n"
    )
    document = synthesized(source, target, "--format", "azure")
    assert document["designed_hit_ratio"] == 0
    told = " ".join(document["not_kept"])
    assert "target.hit_ratio is 0" in told
    assert "lengths below 8 tokens, 1 in all" in told
    page = run(
        "trace", "synthesize", source, "--format", "azure", "--output", target, "--overwrite"
    )
    assert "unknown in the trace, 0.00 % designed" in " ".join(page.stdout.split())
