"""Which block size holds, who said so, and what happens when they disagree (RFC 3.2.3)."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from config_samples import parsed
from prefixbench.core.errors import ConfigError
from prefixbench.dataset.block_size import resolve_block_size
from prefixbench.dataset.server_profile import (
    ServerStatement,
    read_server_profile,
    statement_of_arguments,
    statement_of_profile,
)

PROBED = ServerStatement(source="server_profile", block_size=32, hit_granularity=64)
STARTED = ServerStatement(source="server_args", block_size=32)


def test_the_first_source_in_order_is_named() -> None:
    config, block_size = resolve_block_size(parsed(block_size=32), [PROBED, STARTED])
    assert (block_size.tokens, block_size.source) == (32, "server_profile")
    assert config.hit_granularity == 64
    _, started = resolve_block_size(parsed(block_size=32), [STARTED])
    assert (started.tokens, started.source) == (32, "server_args")
    same, configured = resolve_block_size(parsed(block_size=8, hit_granularity=16))
    assert (configured.tokens, configured.source) == (8, "configuration")
    assert same.hit_granularity == 16


def test_without_a_source_the_engine_decides_with_a_warning(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger("prefixbench"), "propagate", True)
    config, block_size = resolve_block_size(parsed(engine_profile="vllm-ascend-0.23"))
    assert (block_size.tokens, block_size.source) == (128, "engine_default")
    assert config.hit_granularity is None
    assert "config.block_size_assumed block_size=128" in caplog.text


@pytest.mark.parametrize(
    ("settings", "said", "words"),
    [
        ({"block_size": 16}, [STARTED], "32 by the server_args and 16 by the configuration"),
        (
            {},
            [PROBED, ServerStatement(source="server_args", block_size=16)],
            "32 by the server_profile and 16 by the server_args",
        ),
        ({"hit_granularity": 16}, [PROBED], "hit_granularity is 64 by the server_profile"),
    ],
)
def test_sources_that_disagree_are_named(
    settings: dict[str, int], said: list[ServerStatement], words: str
) -> None:
    with pytest.raises(ConfigError, match=words):
        resolve_block_size(parsed(**settings), said)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("vllm serve model --block-size 16", 16),
        ("--block-size=32 --other", 32),
        ("--block_size 8", 8),
        ("--page-size 64", 64),
        ("--tokens-per-block=128", 128),
        ("--max-model-len 4096", None),
        ("", None),
    ],
)
def test_start_parameters_of_several_engines_are_read(text: str, expected: int | None) -> None:
    assert statement_of_arguments(text).block_size == expected


@pytest.mark.parametrize("text", ["--block-size", "--block-size x", "--block-size=0", "'open"])
def test_start_parameters_that_cannot_be_read_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--server-args"):
        statement_of_arguments(text)


def test_a_server_profile_is_read(tmp_path: Path) -> None:
    file = tmp_path / "server.json"
    file.write_text(json.dumps({"block_size": 32, "hit_granularity": 64, "engine": "vllm"}))
    assert statement_of_profile(file) == PROBED


@pytest.mark.parametrize("text", ["", "[]", '{"block_size": 0}', '{"block_size": "16"}'])
def test_a_server_profile_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "server.json"
    file.write_text(text)
    for read in (statement_of_profile, read_server_profile):
        with pytest.raises(ConfigError, match=r"server profile server\.json"):
            read(file)
