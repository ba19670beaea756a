"""The simulator against traces of the real engines, every field, step by step.

`data/` holds a share of the recorded files; where the whole set lies beside the repository, it is
replayed too. The files were made from vLLM 0.32.0's own scheduler and SGLang 0.5.23's own radix
tree, and change only with those versions.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from loop_paths import BOTH, NUMBA, take_loops
from prefixbench.core.errors import ConfigError
from prefixbench.simulator import play
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.replay import replay_file
from shared_folder import shared_folder

DATA = Path(__file__).parent / "data"
OWN = sorted(DATA.glob("*/*.json"))
OWN_STEPS = sorted(DATA.glob("vllm-*/*.json"))
WHOLE_SET = sorted((shared_folder() / "goldens").glob("*/*.json"))


@pytest.mark.parametrize("path", OWN, ids=lambda path: path.stem)
def test_a_recorded_trace_is_replayed_exactly(path: Path) -> None:
    assert replay_file(path).difference is None


@pytest.mark.parametrize("loops", BOTH)
def test_the_compiled_path_replays_the_own_share_exactly(
    loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take_loops(loops, monkeypatch)
    monkeypatch.setattr(play, "WORTH_LOADING", 0)
    replays = {path.name: replay_file(path) for path in OWN_STEPS}
    assert {name: str(row.difference) for name, row in replays.items() if row.difference} == {}
    readable = {name for name, row in replays.items() if row.path is PlayPath.PURE}
    assert {name[0] for name in readable} == {"k", "l", "m"}, (
        "drafts and KV groups alone are not compiled"
    )


def test_the_own_share_covers_every_family() -> None:
    families = {path.stem.split("-")[0] for path in OWN}
    assert families == set("abcdefghi") | set("klm") | {"r"}


@pytest.mark.skipif(not WHOLE_SET, reason="the whole set of recorded traces is not here")
def test_the_whole_recorded_set_is_replayed_exactly() -> None:
    differences = {path.name: replay_file(path).difference for path in WHOLE_SET}
    assert {name: str(found) for name, found in differences.items() if found} == {}


@pytest.mark.extras
@pytest.mark.skipif(not WHOLE_SET, reason="the whole set of recorded traces is not here")
def test_the_compiled_path_replays_the_whole_set_exactly(monkeypatch: pytest.MonkeyPatch) -> None:
    take_loops(NUMBA, monkeypatch)
    steps = [path for path in WHOLE_SET if path.parent.name.startswith("vllm")]
    replays = {path.name: replay_file(path, path=PlayPath.COMPILED) for path in steps}
    assert {name: str(row.difference) for name, row in replays.items() if row.difference} == {}


def trace_of(name: str) -> dict:
    return json.loads(next(DATA.glob(f"*/{name}.json")).read_text())


def difference_of(trace: dict, tmp_path: Path) -> str:
    path = tmp_path / "changed.json"
    path.write_text(json.dumps(trace))
    return str(replay_file(path).difference)


def test_a_wrong_step_is_named_with_its_request(tmp_path: Path) -> None:
    trace = trace_of("i-edge-unchunked-hit-makes-it-fit")
    trace["expected"]["steps"][0]["scheduled"]["r1"] = 5
    assert difference_of(trace, tmp_path) == "step 0, request r1, scheduled: expected 5, got 4"


def test_the_order_of_a_step_counts(tmp_path: Path) -> None:
    trace = trace_of("i-edge-unchunked-hit-makes-it-fit")
    trace["expected"]["steps"][0]["scheduled"] = {"r1": 4, "r0": 100}
    assert "step 0, scheduled request: expected r1, got r0" in difference_of(trace, tmp_path)


def test_a_missing_repetition_of_a_step_is_found(tmp_path: Path) -> None:
    trace = trace_of("i-edge-preempted-60-30-resumes-with-32")
    repeated = next(step for step in trace["expected"]["steps"] if "times" in step)
    repeated["times"] -= 1
    assert "step" in difference_of(trace, tmp_path)


@pytest.mark.parametrize("field", ["queries", "hits", "evicted_keys", "cached_blocks"])
def test_a_wrong_counter_is_named(field: str, tmp_path: Path) -> None:
    trace = trace_of("i-edge-identical-64-hits-48")
    right = trace["expected"][field]
    trace["expected"][field] = -1
    assert difference_of(trace, tmp_path) == f"{field}: expected -1, got {right}"


def test_a_wrong_operation_of_a_tree_is_named(tmp_path: Path) -> None:
    trace = trace_of("r-edge-page16-70-hits-64")
    trace["ops"][1]["expect"]["hit"] = 65
    assert difference_of(trace, tmp_path) == "step 1, hit: expected 65, got 64"


def test_the_replayed_trace_has_the_form_of_the_file() -> None:
    path = next(DATA.glob("*/b-concurrent-018.json"))
    trace = json.loads(path.read_text())
    assert replay_file(path).trace == trace
    assert list(replay_file(path).trace["expected"]) == list(trace["expected"])


def test_a_trace_without_results_is_filled_and_cannot_be_checked(tmp_path: Path) -> None:
    trace = trace_of("i-edge-identical-64-hits-48")
    bare = copy.deepcopy(trace) | {"expected": {}}
    path = tmp_path / "bare.json"
    path.write_text(json.dumps(bare))
    assert replay_file(path, check=False).trace["expected"] == trace["expected"]
    with pytest.raises(ConfigError, match="expects nothing"):
        replay_file(path)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "other"}', '{"format": "prefixbench-replay/1"}'],
)
def test_a_file_that_is_no_trace_is_refused_in_words(text: str, tmp_path: Path) -> None:
    path = tmp_path / "no-trace.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"cannot replay no-trace\.json"):
        replay_file(path)


def test_a_setting_that_is_not_simulated_is_refused(tmp_path: Path) -> None:
    trace = trace_of("i-edge-identical-64-hits-48")
    trace["config"]["speculative_tokens"] = 3
    path = tmp_path / "unknown.json"
    path.write_text(json.dumps(trace))
    with pytest.raises(ConfigError, match="speculative_tokens"):
        replay_file(path)


def test_a_step_too_many_is_found_though_it_says_nothing(tmp_path: Path) -> None:
    trace = trace_of("i-edge-identical-64-hits-48")
    steps = trace["expected"]["steps"]
    count = sum(step.get("times", 1) for step in steps)
    steps.append({})
    assert difference_of(trace, tmp_path) == f"step {count}, step: expected {{}}, got None"


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("engine_version",), 32, "engine_version is not text"),
        (("config", "block_size"), 0, "config.block_size is not a positive count"),
        (("config", "max_num_seqs"), -1, "config.max_num_seqs is not a positive count"),
        (("config", "usable_blocks"), None, "config.usable_blocks is missing"),
        (("requests", 0), 5, "requests[0] is not an object"),
        (("requests", 0, "arrive_step"), -1, "requests[0].arrive_step is not a count"),
        (("requests", 0, "prompt"), [["s", 1, -2]], "requests[0].prompt[0] is not"),
        (("requests", 0, "prompt"), [["out", "r9", 2]], "answer of 'r9', which is no request"),
        (("requests", 1, "id"), "r0", "two requests are named 'r0'"),
        (("expected",), [1], "expected is not an object"),
        (("expected", "steps"), [1], "expected.steps[0] is not an object"),
        (("expected", "steps", 0, "times"), "x", "expected.steps[0].times is not a positive"),
        (("expected", "steps", 0, "scheduled"), [1], "expected.steps[0].scheduled is not an"),
        (("expected", "requests", "r0"), 7, "expected.requests is not objects by"),
        (("expected", "columns"), 7, "expected.columns is not lists by name"),
    ],
)
def test_a_value_of_a_wrong_kind_is_refused_with_its_place(
    place: tuple[str | int, ...], value: object, told: str, tmp_path: Path
) -> None:
    trace: dict = trace_of("i-edge-identical-64-hits-48")
    assert_refused(trace, place, value, told, tmp_path)


@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        (("config", "page_size"), 0, "config.page_size is not a positive count"),
        (("ops", 1, "expect"), 3, "ops[1].expect is not an object"),
        (("ops", 1, "key"), [["s", 1]], "ops[1].key[0] is not"),
        (("ops",), None, "ops is missing"),
    ],
)
def test_an_operation_of_a_wrong_kind_is_refused_with_its_place(
    place: tuple[str | int, ...], value: object, told: str, tmp_path: Path
) -> None:
    assert_refused(trace_of("r-edge-page16-70-hits-64"), place, value, told, tmp_path)


def assert_refused(
    trace: dict, place: tuple[str | int, ...], value: object, told: str, tmp_path: Path
) -> None:
    inner: dict = trace
    for key in place[:-1]:
        inner = inner[key]
    inner[place[-1]] = value
    with pytest.raises(ConfigError) as caught:
        difference_of(trace, tmp_path)
    assert told in str(caught.value)


def test_a_salt_that_is_null_is_none(tmp_path: Path) -> None:
    trace = trace_of("i-edge-identical-64-hits-48")
    trace["requests"][0] |= {"salt": None, "priority": None}
    assert difference_of(trace, tmp_path) == "None"


def test_a_cut_file_is_refused_with_the_place_of_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "cut.json"
    path.write_text(json.dumps(trace_of("i-edge-identical-64-hits-48"), indent=1)[:300])
    with pytest.raises(ConfigError, match=r"cut\.json: no valid JSON in UTF-8 \(.*line \d+"):
        replay_file(path)
