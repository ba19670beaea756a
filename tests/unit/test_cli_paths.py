"""Every verb with every kind of wrong path: the same mistake ends the same way, as one object."""

from __future__ import annotations

import errno
import io
import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from prefixbench.cli import main as cli

SMALL = "request_count: 4\ninput_length: 100\ntarget: {hit_ratio: 0.2}\n"

#: A verb with `@` where the path goes, and exit codes: nothing there, and something unusable.
READERS: dict[str, tuple[list[str], int, set[int]]] = {
    "plan --config": (["plan", "--config", "@"], 2, {2}),
    "generate --config": (["generate", "--config", "@", "--output", "out"], 2, {2}),
    "generate --server-profile": (
        ["generate", "--config", "small.yaml", "--output", "out", "--server-profile", "@"], 2, {2},
    ),
    "generate --corpus": (
        ["generate", "--config", "small.yaml", "--output", "out", "--corpus", "@"], 4, {4},
    ),
    "validate --dataset": (["validate", "--dataset", "@"], 2, {2, 3}),
    "simulate --dataset": (["simulate", "--dataset", "@"], 2, {2, 3}),
    "simulate --trace": (["simulate", "--trace", "@", "--format", "mooncake"], 2, {2}),
    "simulate --replay": (["simulate", "--replay", "@"], 2, {2}),
    "simulate --story": (["simulate", "--story", "@"], 2, {2}),
    "trace convert": (
        ["trace", "convert", "@", "--format", "mooncake", "--output", "trace.out"], 2, {2},
    ),
    "run --dataset": (["run", "--url", "http://127.0.0.1:9", "--dataset", "@"], 2, {2, 3}),
    "run --config": (
        ["run", "--url", "http://127.0.0.1:9", "--dataset", "none", "--config", "@"], 2, {2},
    ),
    "report --run-dir": (["report", "--run-dir", "@"], 2, {2}),
}  # fmt: skip

NO_NAME = os.fsdecode(b"n\xff")
ABSENT = ("absent", "empty/below", NO_NAME)
UNUSABLE = {"empty": b"", "latin": b"\xff\xfe: \xe9\n", "list": b"[1]"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "small.yaml").write_text(SMALL)
    (tmp_path / "folder").mkdir()
    for name, content in UNUSABLE.items():
        (tmp_path / name).write_bytes(content)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def ended(command: list[str], path: str) -> tuple[int, dict[str, str]]:
    words = [path if word == "@" else word for word in command]
    done = CliRunner().invoke(cli.main, [*words, "--json"])
    told = json.loads(done.stdout)
    assert told["code"] != "internal", told
    assert told["message"]
    assert told["hint"]
    return done.exit_code, told


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("path", [*ABSENT, "folder"])
def test_a_path_that_names_nothing_readable_is_wrong_usage(
    folder: Path, verb: str, path: str
) -> None:
    command, exit_code, _ = READERS[verb]
    assert ended(command, path)[0] == exit_code


@pytest.mark.parametrize("verb", READERS)
@pytest.mark.parametrize("path", UNUSABLE)
def test_a_file_of_something_else_is_told_by_its_name(folder: Path, verb: str, path: str) -> None:
    command, _, exit_codes = READERS[verb]
    assert ended(command, path)[0] in exit_codes


@pytest.mark.parametrize("verb", READERS)
def test_a_file_that_may_not_be_read_is_no_internal_error(
    folder: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The superuser may read every file, so the refusal is played."""
    usual = io.open

    def refusing(file: Any, *args: Any, **settings: Any) -> Any:
        if str(file).endswith("list"):
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return usual(file, *args, **settings)

    monkeypatch.setattr("io.open", refusing)
    monkeypatch.setattr("builtins.open", refusing)
    assert ended(READERS[verb][0], "list")[0] in (1, 2, 4)


def test_a_name_that_is_no_utf_8_can_be_written_and_told(folder: Path) -> None:
    command = ["generate", "--config", "small.yaml", "--output", NO_NAME]
    done = CliRunner().invoke(cli.main, [*command, "--json"])
    assert done.exit_code == 0
    told = json.loads(done.stdout)
    assert Path(told["manifest_path"]).is_file()
    plain = CliRunner().invoke(cli.main, ["validate", "--dataset", NO_NAME])
    assert plain.exit_code == 0


@pytest.mark.parametrize("path", ["empty", "empty/below"])
def test_output_that_cannot_be_a_folder_is_told(folder: Path, path: str) -> None:
    assert ended(["generate", "--config", "small.yaml", "--output", "@"], path)[0] in (1, 2)
