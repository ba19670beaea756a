"""The verbs from end to end, on built-in parts and the embedded server."""

from __future__ import annotations

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extras import needs
from prefixbench.cli.demo import background_server
from prefixbench.cli.main import main
from prefixbench.server.options import ServeOptions

CONFIG = """\
prefix_cache_dataset:
  dataset_id: sample
  request_count: 24
  block_size: 16
  input_length: {mode: truncated_normal, min: 128, max: 512, mean: 300, std: 80}
  output_length: 2
  target: {hit_ratio: 0.5}
  prefix:
    groups:
      - {id: a, request_weight: 2}
      - {id: b, request_weight: 1}
"""


def prefixbench(*words: str | Path, exit_code: int = 0) -> Result:
    ended = CliRunner().invoke(main, [str(word) for word in words])
    assert ended.exit_code == exit_code, f"{ended.stdout}\n{ended.stderr}"
    return ended


def document(*words: str | Path, exit_code: int = 0) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(prefixbench(*words, "--json", exit_code=exit_code).stdout)
    return told


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("config") / "sample.yaml"
    file.write_text(CONFIG)
    return file


@pytest.fixture(scope="module")
def generated(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A data set, and what its generation printed."""
    folder = tmp_path_factory.mktemp("made") / "dataset"
    return folder, prefixbench("generate", "--config", config, "--output", folder).stdout


@pytest.fixture(scope="module")
def dataset(generated: tuple[Path, str]) -> Path:
    return generated[0]


def test_plan_prints_a_page(config: Path) -> None:
    page = prefixbench("plan", "--config", config).stdout
    assert "sample  50.00 % asked" in page
    assert "PASS" in page
    for words in ("hit ratio", "cold loss", "in flight", "blocks a cache", "proof in blocks"):
        assert words in page


def test_plan_notes_what_concurrency_costs(config: Path) -> None:
    words = ("--set", "execution.concurrency=8", "--set", "request_order.mode=grouped")
    page = prefixbench("plan", "--config", config, *words).stdout
    assert "note 8 requests in flight find" in page


def test_plan_as_json_has_the_report_and_the_certificate(config: Path) -> None:
    plan = document("plan", "--config", config)
    assert plan["target_hit_ratio"] == 0.5
    assert plan["validation_status"] == "PASS"
    assert plan["reachable"] is True
    certificate = plan["certificate"]
    parts = ("sum_prefix_blocks", "cold_loss_blocks", "head_loss_blocks")
    planned, cold, head = (certificate[part] for part in parts)
    assert planned - cold - head == certificate["hit_blocks"] > 0


def test_an_unreachable_plan_suggests_what_reaches_it(config: Path) -> None:
    lonely = ("--config", config, "--set", "request_count=2", "--set", "target.hit_ratio=0.9")
    ended = prefixbench("plan", *lonely, exit_code=3)
    assert "why the target is out of reach" in ended.stdout
    assert "what would reach it" in ended.stdout
    assert ended.stderr.splitlines()[-1].startswith("  hint: ")
    told = document("plan", *lonely, exit_code=3)
    assert told["unreachable_reasons"]
    for suggestion in told["suggestions"]:
        changes = [word for change in suggestion["change"] for word in ("--set", change)]
        assert document("plan", *lonely, *changes)["reachable"] is True


def test_generate_prints_the_verdict_and_the_folder(generated: tuple[Path, str]) -> None:
    folder, told = generated
    assert "sample  50.00 % asked" in told
    assert "24 prompts encoded again, 0 mismatches" in told
    assert str(folder) in told.replace("\n", "")


def test_the_command_line_wins_and_json_names_the_files(config: Path, tmp_path: Path) -> None:
    options = ("--seed", "7", "--profile", "sglang-0.5", "--set", "request_count=40")
    server = ("--set", "block_size=null", "--server-args", "-tp 2 --page-size=32")
    words = ("generate", "--config", config, "--output", tmp_path / "set", *options, *server)
    told = document(*words, "--quiet")
    for name in ("data", "manifest", "request_metadata", "validation_report"):
        assert Path(told[f"{name}_path"]).is_file()
    manifest = json.loads(Path(told["manifest_path"]).read_text())
    assert (manifest["seed"], manifest["request_count"]) == (7, 40)
    assert manifest["engine_profile"] == "sglang-0.5"
    assert (manifest["block_size"], manifest["block_size_source"]) == (32, "server_args")


def test_a_folder_that_is_not_empty_is_refused(config: Path, dataset: Path) -> None:
    words = ("generate", "--config", config, "--output", dataset)
    before = (dataset / "data.jsonl").read_bytes()
    assert document(*words, exit_code=2)["code"] == "output_exists"
    prefixbench(*words, "--overwrite")
    assert (dataset / "data.jsonl").read_bytes() == before


def test_a_wrong_configuration_is_told_in_lines(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    file.write_text(CONFIG.replace("request_count: 24", "request_cuont: 24").replace("0.5", "1.5"))
    ended = prefixbench("plan", "--config", file, exit_code=2)
    lines = ended.stderr.splitlines()
    assert lines[0] == "2 problems in the configuration:"
    assert "did you mean request_count?" in lines[1]
    assert lines[2].startswith("  - target.hit_ratio: must lie between 0 and 1")
    told = document("plan", "--config", file, exit_code=2)
    assert [problem["path"] for problem in told["problems"]] == [
        "request_cuont",
        "target.hit_ratio",
    ]


def test_warnings_go_to_stderr_and_can_be_silenced(config: Path) -> None:
    words = ("plan", "--config", config, "--set", "routing.cache_scope=dp_local")
    assert "warning: routing.cache_scope: dp_local equals global" in prefixbench(*words).stderr
    quiet = prefixbench(*words, "--quiet")
    assert (quiet.stdout, quiet.stderr) == ("", "")


def test_events_are_logged_when_asked(config: Path) -> None:
    told = prefixbench("plan", "--config", config, "-v").stderr
    assert "INFO plan.done dataset_id=sample groups=2" in told


def test_block_sizes_that_disagree_are_refused(config: Path) -> None:
    told = prefixbench("plan", "--config", config, "--server-args", "--page-size 64", exit_code=2)
    assert "64 by the server_args and 16 by the configuration" in told.stderr


def test_validate_proves_and_names_every_check(dataset: Path) -> None:
    told = prefixbench("validate", "--dataset", dataset).stdout
    assert "sample  proved" in told
    proof = document("validate", "--dataset", dataset)
    assert proof["status"] == "ok"
    assert proof["verification"]["prompts_checked"] == 24


def test_a_reordered_data_set_is_refused(dataset: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    for file in dataset.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    lines = (copy / "data.jsonl").read_bytes().splitlines(keepends=True)
    (copy / "data.jsonl").write_bytes(b"".join([lines[1], lines[0], *lines[2:]]))
    for words in (
        ("validate", "--dataset", copy),
        ("simulate", "--dataset", copy),
        ("run", "--dataset", copy, "--url", "http://127.0.0.1:9", "--output", tmp_path / "run"),
    ):
        assert document(*words, exit_code=3)["code"] == "dataset_changed"


@pytest.mark.parametrize("verb", ["validate", "simulate", "run"])
def test_a_folder_without_a_data_set_is_told(verb: str, tmp_path: Path) -> None:
    told = prefixbench(verb, "--dataset", tmp_path, exit_code=2).stderr
    assert "no data set here" in told
    assert str(tmp_path) not in told


@pytest.mark.parametrize(
    ("fault", "exit_code"), [("metrics_404", 5), ("http_error=0.5", 6), ("extra_prompt_token", 5)]
)
def test_a_run_that_ends_with_an_error_names_its_directory(
    fault: str, exit_code: int, dataset: Path, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    with background_server(ServeOptions(time_scale=0, faults=(fault,))) as url:
        run = ("run", "--dataset", dataset, "--url", url, "--output", run_dir)
        assert f"run_dir={run_dir}" in prefixbench(*run, exit_code=exit_code).stderr
        told = document(*run, "--overwrite", exit_code=exit_code)
    assert told["context"]["run_dir"] == str(run_dir)
    assert str(tmp_path) not in (run_dir / "runtime" / "run.json").read_text()


def test_a_run_without_a_rate_says_so_once(dataset: Path, tmp_path: Path) -> None:
    with background_server(ServeOptions(time_scale=0, faults=("metrics_404",))) as url:
        run = ("run", "--dataset", dataset, "--url", url, "--output", tmp_path / "run")
        page = prefixbench(*run, "--metrics-optional").stdout
    assert "designed, not measured\n" in page


def test_simulate_finds_what_was_designed(dataset: Path) -> None:
    played = document("simulate", "--dataset", dataset, "--curve")
    assert played["predicted_hit_ratio"] == played["designed_hit_ratio"] > 0
    assert played["curve"][-1]["hit_ratio"] == played["designed_hit_ratio"]
    page = prefixbench("simulate", "--dataset", dataset, "--curve").stdout
    assert "predicted (0.00 pp)" in page
    assert "blocks a cache" in page


def test_a_small_cache_hits_less(dataset: Path) -> None:
    played = document("simulate", "--dataset", dataset, "--capacity-blocks", "40")
    assert played["predicted_hit_ratio"] < played["designed_hit_ratio"]
    assert played["evicted_blocks"] > 0


def test_a_cache_too_small_for_a_request_is_told(dataset: Path) -> None:
    told = document("simulate", "--dataset", dataset, "--capacity-blocks", "2", exit_code=2)
    assert told["code"] == "length"


def test_the_table_of_profiles_is_printed() -> None:
    names = [row["name"] for row in document("simulate", "--profile", "list")["profiles"]]
    assert "vllm-0.33" in names
    page = prefixbench("simulate", "--profile", "list").stdout
    assert all(name in page for name in names)


def test_simulate_spreads_requests_as_a_router_would(dataset: Path) -> None:
    spread = ("--routing", "round_robin", "--dp-size", "3")
    played = document("simulate", "--dataset", dataset, *spread)
    assert [row["rank"] for row in played["ranks"]] == [0, 1, 2]
    assert len(played["domains"]) == 6
    for part in ("ranks", "domains"):
        assert sum(row["queries"] for row in played[part]) == played["queries"]
        assert sum(row["hits"] for row in played[part]) == played["hits"]
    assert played["predicted_hit_ratio"] < played["designed_hit_ratio"]
    page = prefixbench("simulate", "--dataset", dataset, *spread).stdout
    assert "\n2 " in page[page.index("rank") :]


def test_simulate_shows_what_tiers_below_give(dataset: Path) -> None:
    words = ("--profile", "lmcache", "--capacity-blocks", "60")
    played = document("simulate", "--dataset", dataset, *words)
    (tier,) = played["tiers"]
    assert tier["queries"] == played["queries"] - played["hits"]
    assert played["combined_hit_ratio"] == (played["hits"] + tier["hits"]) / played["queries"]
    assert (
        "found in all tiers together"
        in prefixbench("simulate", "--dataset", dataset, *words).stdout
    )


@pytest.mark.parametrize(
    "words", [("--dp-size", "2", "--dataset", "x"), ("--routing", "hash", "--replay", "x")]
)
def test_simulate_refuses_a_router_without_requests_to_route(words: tuple[str, ...]) -> None:
    prefixbench("simulate", *words, exit_code=2)


@pytest.mark.parametrize("words", [(), ("--check",), ("--dataset", "a", "--replay", "b")])
def test_simulate_needs_one_thing_to_play(words: tuple[str, ...]) -> None:
    prefixbench("simulate", *words, exit_code=2)


@pytest.fixture(scope="module")
def replay(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three requests of 96 shared and 64 own tokens in steps of 128 (engine-semantics, case 5)."""
    prompts = [[["s", 1, 96], ["s", own, 64]] for own in (2, 3, 4)]
    requests = [
        {"id": f"r{index}", "arrive_step": 0, "prompt": prompt, "max_tokens": 1}
        for index, prompt in enumerate(prompts)
    ]
    sizes = {"usable_blocks": 100, "max_num_batched_tokens": 128, "max_num_seqs": 8}
    file = tmp_path_factory.mktemp("replay") / "three.json"
    trace = {
        "format": "prefixbench-replay/1",
        "engine": "vllm",
        "engine_version": "0.32.0",
        "config": {"block_size": 16, **sizes},
        "requests": requests,
        "expected": {"queries": 480, "hits": 192},
    }
    file.write_text(json.dumps(trace))
    return file


def test_a_replay_is_checked(replay: Path) -> None:
    assert "hits 192" in prefixbench("simulate", "--replay", replay).stdout
    played = document("simulate", "--replay", replay)
    complete = replay.with_name("complete.json")
    complete.write_text(json.dumps(played))
    prefixbench("simulate", "--replay", complete, "--check")
    complete.write_text(json.dumps(played | {"expected": played["expected"] | {"hits": 193}}))
    differing = prefixbench("simulate", "--replay", complete, "--check", exit_code=1)
    assert "first difference: hits: expected 193, got 192" in differing.stderr


def test_a_replay_says_how_its_steps_were_taken(replay: Path) -> None:
    assert document("simulate", "--replay", replay)["engine_path"] == "pure"
    asked = ("simulate", "--replay", replay, "--engine-path", "compiled")
    if find_spec("numba") is None:
        assert "numba is not installed" in prefixbench(*asked, exit_code=2).stderr


@pytest.mark.extras
def test_a_replay_is_compiled_when_that_is_asked_for(replay: Path) -> None:
    needs("numba")
    asked = ("simulate", "--replay", replay, "--engine-path", "compiled")
    assert document(*asked)["engine_path"] == "compiled"


def test_run_and_report_measure_what_was_designed(dataset: Path, tmp_path: Path) -> None:
    run_dir = tmp_path / "run"
    with background_server(ServeOptions(block_size=16, time_scale=0)) as url:
        words = ("--dataset", dataset, "--url", f"{url}/v1/completions", "--output", run_dir)
        told = prefixbench("run", *words).stdout
    assert "progressive prefix fill: " in told
    assert "measured (0.00 pp)" in told
    report = document("report", "--run-dir", run_dir)
    assert report["actual_hit_rate"] == report["designed_hit_ratio"] > 0
    assert report["runtime_deviation"] == 0
    page = prefixbench("report", "--run-dir", run_dir).stdout
    assert "50.00 % asked" in page
    for name in ("json", "html"):
        assert (run_dir / f"report/prefix_cache_report.{name}").is_file()
        assert f"prefix_cache_report.{name}" in page


def test_a_run_measures_its_client_where_asked(dataset: Path, tmp_path: Path) -> None:
    with background_server(ServeOptions(time_scale=0)) as url:
        words = ("run", "--dataset", dataset, "--url", url, "--output", tmp_path / "run")
        prefixbench(*words, "--calibrate")
    run = json.loads((tmp_path / "run" / "runtime" / "run.json").read_text())
    assert run["calibration"]["requests"] >= 50


def test_run_takes_addresses_from_a_configuration(
    config: Path, dataset: Path, tmp_path: Path
) -> None:
    with background_server(ServeOptions(block_size=16, time_scale=0)) as url:
        own = tmp_path / "own.yaml"
        own.write_text(CONFIG + f"  execution: {{urls: ['{url}']}}\n")
        words = ("--dataset", dataset, "--output", tmp_path / "run")
        told = document("run", *words, "--config", own)
    assert told["status"] == "complete"
    assert document("run", *words, "--overwrite", exit_code=2)["code"] == "config"


def test_a_server_that_is_not_there_ends_with_5(dataset: Path, tmp_path: Path) -> None:
    with background_server(ServeOptions(time_scale=0)) as url:
        pass
    words = ("run", "--dataset", dataset, "--url", url, "--output", tmp_path / "run")
    assert document(*words, exit_code=5)["code"] == "endpoint"


@pytest.mark.parametrize("header", ["no colon", ": nothing"])
def test_a_header_is_checked_and_never_repeated(header: str, dataset: Path) -> None:
    told = prefixbench("run", "--dataset", dataset, "--header", header, exit_code=2).stderr
    assert "NAME: VALUE" in told
    assert header not in told


def test_a_report_needs_a_run(tmp_path: Path) -> None:
    assert prefixbench("report", "--run-dir", tmp_path, exit_code=2).stderr.count("\n") == 3


def test_a_server_that_cannot_be_started_is_told() -> None:
    assert document("serve", "--profile", "vlm", exit_code=2)["code"] == "config"
    assert document("serve", "--tokenizer", "nowhere.json", exit_code=4)["code"] == "tokenizer"


def test_demo_shows_the_whole_flow(tmp_path: Path) -> None:
    folder = tmp_path / "demo"
    ended = prefixbench("demo", "--output", folder)
    assert "60.00 % asked, 60.00 % planned, 60.00 % measured" in ended.stdout
    assert "prefix_cache_report.html" in ended.stdout
    report = json.loads((folder / "run/report/prefix_cache_report.json").read_text())
    assert report["actual_hit_rate"] == report["designed_hit_ratio"]
    assert report["status"] == "PASS"
    measured = json.loads((folder / "run/runtime/prefix_cache_metrics.json").read_text())
    designed = json.loads((folder / "dataset/validation_report.json").read_text())
    assert measured["global"]["hits"] == designed["expected_hit_tokens"] > 0
