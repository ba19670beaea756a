"""What a run decides from its options and from the data set's own settings."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.run.options import RunOptions, RunSettings, resolve_settings
from prefixbench.run.schedule import Gate


def settings(config: dict[str, Any] | None = None, **options: Any) -> RunSettings:
    base = {"execution": {"mode": "warmup", "concurrency": 1}}
    manifest = DatasetManifest({"dataset_id": "d", "config": base | (config or {})}, "sha")
    given: dict[str, Any] = {"urls": ("http://h:1",)} | options
    return resolve_settings(RunOptions(dataset=Path("d"), **given), manifest)


def test_the_command_line_wins_over_the_data_set() -> None:
    config = {"execution": {"mode": "warmup", "concurrency": 7, "isolation": "reset"}}
    assert settings(config).mode == "warmup"
    assert settings(config).concurrency == 7
    assert settings(config).isolation == "reset"
    mine = settings(config, mode="cold", concurrency=2, isolation="none")
    assert (mine.mode, mine.concurrency, mine.isolation) == ("cold", 2, "none")


def test_a_closed_loop_has_a_limit_and_an_open_one_only_where_someone_gave_it() -> None:
    assert settings().concurrency == 1
    assert settings(request_rate=2.0).concurrency is None
    assert settings(request_rate=2.0, concurrency=1).concurrency == 1
    config = {"execution": {"mode": "cold", "concurrency": 8, "request_rate": 3.0}}
    assert (settings(config).concurrency, settings(config).request_rate) == (8, 3.0)


@pytest.mark.parametrize(
    ("mode", "configured", "asked", "rounds"),
    [
        ("warmup", None, None, 1),
        ("warmup", 2, None, 2),
        ("warmup", 2, 3, 3),
        ("cold", 1, None, 0),
        ("hot", 0, None, 0),
        ("hot", 2, 0, 0),
    ],
)
def test_rounds_of_warm_up(
    mode: str, configured: int | None, asked: int | None, rounds: int
) -> None:
    config = {"execution": {"mode": mode, "warmup_rounds": configured}}
    assert settings(config, warmup_rounds=asked).warmup_rounds == rounds


@pytest.mark.parametrize("mode", ["warmup", "hot", "compare"])
def test_a_data_set_for_a_cold_run_says_nothing_about_warm_up(mode: str) -> None:
    config = {"execution": {"mode": "progressive_prefix_fill", "warmup_rounds": 0}}
    assert settings(config, mode=mode).warmup_rounds == 1


@pytest.mark.parametrize("mode", ["warmup", "compare"])
def test_no_warm_up_of_a_warmed_mode_is_refused_naming_both(mode: str) -> None:
    with pytest.raises(ConfigError, match=f"--warmup-rounds 0 contradicts --mode {mode}"):
        settings(mode=mode, warmup_rounds=0)


def test_warm_up_of_a_cold_mode_is_refused_naming_both() -> None:
    with pytest.raises(ConfigError, match=r"--warmup-rounds 2 contradicts --mode cold"):
        settings(mode="cold", warmup_rounds=2)


@pytest.mark.parametrize(
    ("order", "gate"),
    [
        ({}, Gate.NONE),
        ({"leaders": "first"}, Gate.NONE),
        ({"leaders": "barrier"}, Gate.LEADER),
        ({"leaders": "barrier", "preserve_group_dependency": True}, Gate.PREDECESSOR),
    ],
)
def test_who_waits_for_whom(order: dict[str, Any], gate: Gate) -> None:
    assert settings({"request_order": order}).gate is gate


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "warm"}, "--mode"),
        ({"isolation": "salty"}, "--isolation"),
        ({"adapter": "vlm"}, "vlm"),
        ({"concurrency": 0}, "--concurrency"),
        ({"request_rate": -1.0}, "--request-rate"),
        ({"rounds": 0}, "--rounds"),
        ({"timeout_s": 0.0}, "--timeout"),
        ({"timeout_s": math.nan}, "--timeout"),
        ({"request_rate": math.nan}, "--request-rate"),
        ({"request_rate": math.inf}, "--request-rate"),
        ({"warmup_rounds": -1}, "--warmup-rounds"),
        ({"max_failure_rate": -0.1}, "--max-failure-rate"),
        ({"max_failure_rate": 1.5}, "--max-failure-rate must be at least 0 and at most 1"),
        ({"max_failure_rate": math.nan}, "--max-failure-rate"),
        ({"proxy": "nonsense"}, "proxy"),
        ({"api_key_env": "PREFIXBENCH_NO_SUCH_KEY"}, "not set"),
        ({"urls": ()}, "no server address"),
    ],
)
def test_a_wrong_option_is_named_with_a_hint(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        settings(**wrong)
    assert caught.value.exit_code == 2
    assert caught.value.hint


def test_the_nearest_word_is_named() -> None:
    with pytest.raises(ConfigError) as caught:
        settings(adapter="vlm")
    assert "did you mean vllm?" in caught.value.hint


def test_restart_isolates_a_single_phase() -> None:
    assert settings(isolation="restart").isolation == "restart"
    for more in ({"rounds": 2}, {"mode": "compare"}):
        with pytest.raises(ConfigError, match="restart"):
            settings(isolation="restart", **more)


def test_a_key_comes_from_the_environment_and_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PREFIXBENCH_TEST_KEY", "sk-12345")
    found = settings(api_key_env="PREFIXBENCH_TEST_KEY", headers=(("X-A", "b"),))
    assert found.headers == {"X-A": "b", "Authorization": "Bearer sk-12345"}
    assert "sk-12345" not in repr(found)


@pytest.mark.parametrize(
    ("answers", "prompt_format", "fields"),
    [
        ("served", "token_ids", {"return_token_ids": True}),
        ("served", "text", {"skip_special_tokens": False}),
        ("planned", "token_ids", {}),
        (None, "text", {}),
    ],
)
def test_served_answers_are_asked_for_as_they_are_gone_on_from(
    answers: str | None, prompt_format: str, fields: dict[str, bool]
) -> None:
    sessions = None if answers is None else {"turns": 2, "new_tokens": 8, "answers": answers}
    decided = settings({"sessions": sessions, "prompt_format": prompt_format})
    assert decided.answer_fields == fields
    assert decided.needs_token_ids == ("return_token_ids" in fields)
