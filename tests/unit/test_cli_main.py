"""The command line itself: verbs, common options, errors and exit codes."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from collections.abc import Callable

import click
import pytest
from click.testing import CliRunner

from prefixbench.cli import main as cli
from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import (
    CollisionError,
    ConfigError,
    EndpointError,
    ErrorContext,
    MetricsError,
    PrefixBenchError,
    Stage,
    TokenizerError,
    TooManyFailuresError,
    UnreachableTargetError,
)

#: What answering `--help` must not cost.
HEAVY = ("numpy", "aiohttp", "tokenizers", "plotly", "pydantic", "rich", "orjson", "yaml")


def ending_with(result: Callable[[], object]) -> Verb:
    @click.command("sample", cls=Verb, stage=Stage.PLAN)
    def command(output: Output) -> object:
        """A sample."""
        return result()

    return command  # type: ignore[return-value]


def raising(error: BaseException) -> Verb:
    def fail() -> None:
        raise error

    return ending_with(fail)


def test_help_lists_every_verb() -> None:
    shown = CliRunner().invoke(cli.main, ["--help"])
    assert shown.exit_code == 0
    for verb in cli.VERBS:
        assert f"\n  {verb} " in shown.stdout


def test_help_loads_nothing_heavy() -> None:
    script = (
        "import sys\n"
        "from prefixbench.cli.main import main\n"
        "try:\n    main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "Commands:" in ended.stdout
    assert ended.stderr.strip() == "[]"


def test_the_flow_loads_engines_and_process_pools_only_when_they_are_used() -> None:
    script = "import sys, prefixbench.pipeline; print({'tokenizers', 'loky'} & {*sys.modules})"
    ended = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == "set()"


@pytest.mark.parametrize("verb", cli.VERBS)
def test_every_verb_explains_itself_and_takes_the_common_options(verb: str) -> None:
    command = cli.main.get_command(click.Context(cli.main), verb)
    assert command is not None
    assert command.help
    below = command.commands if isinstance(command, click.Group) else {}
    for words in [[verb, name] for name in below] or [[verb]]:
        shown = CliRunner().invoke(cli.main, [*words, "--help"])
        assert shown.exit_code == 0
        for option in ("--json", "--verbose", "--quiet"):
            assert option in shown.stdout
    for one in (command, *below.values()):
        assert one.help
        for parameter in one.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{verb} {parameter.name} has no help"


def test_the_version_is_told() -> None:
    assert "0.1" in CliRunner().invoke(cli.main, ["--version"]).stdout


@pytest.mark.parametrize("words", [["generat"], ["plan", "--confg", "x"], ["plan"], []])
def test_wrong_usage_ends_with_2(words: list[str]) -> None:
    ended = CliRunner().invoke(cli.main, words)
    assert ended.exit_code == 2
    assert ended.stdout == ""
    assert ended.stderr


def test_a_misspelled_verb_names_the_nearest() -> None:
    assert "Did you mean 'generate'?" in CliRunner().invoke(cli.main, ["generat"]).stderr


def test_wrong_usage_is_json_where_json_is_asked_for() -> None:
    ended = CliRunner().invoke(cli.main, ["plan", "--json", "--confg", "x"])
    assert ended.exit_code == 2
    told = json.loads(ended.stdout)
    assert told["code"] == "config"
    assert "--confg" in told["message"]
    assert "prefixbench plan --help" in told["hint"]


@pytest.mark.parametrize(
    ("kind", "exit_code"),
    [
        (PrefixBenchError, 1),
        (ConfigError, 2),
        (UnreachableTargetError, 3),
        (TokenizerError, 4),
        (CollisionError, 4),
        (EndpointError, 5),
        (MetricsError, 5),
        (TooManyFailuresError, 6),
    ],
)
def test_errors_end_with_their_exit_code_in_three_lines(
    kind: type[PrefixBenchError], exit_code: int
) -> None:
    error = kind("it broke", context=ErrorContext(stage=Stage.RUN, field="x"), hint="mend it")
    ended = CliRunner().invoke(raising(error), [])
    assert ended.exit_code == exit_code
    assert ended.stdout == ""
    assert ended.stderr.splitlines() == ["it broke", "  at: stage=run field=x", "  hint: mend it"]


def test_an_error_is_one_json_object_with_json() -> None:
    error = EndpointError("gone", context=ErrorContext(stage=Stage.RUN), hint="look")
    ended = CliRunner().invoke(raising(error), ["--json"])
    assert ended.exit_code == 5
    assert json.loads(ended.stdout) == {
        "code": "endpoint",
        "message": "gone",
        "context": {"stage": "run"},
        "hint": "look",
    }
    assert ended.stderr == ""


def test_a_full_disk_is_a_storage_error() -> None:
    full = OSError(errno.ENOSPC, "No space left on device", "/secret/folder/data.jsonl")
    ended = CliRunner().invoke(raising(full), [])
    assert ended.exit_code == 1
    lines = ended.stderr.splitlines()
    assert lines == [
        "data.jsonl: no space left on device",
        "  at: stage=plan field=data.jsonl",
        "  hint: free some room, or choose another folder",
    ]


def test_a_denied_folder_is_a_storage_error() -> None:
    denied = PermissionError(errno.EACCES, "Permission denied", "/nowhere/x")
    told = json.loads(CliRunner().invoke(raising(denied), ["--json"]).stdout)
    assert told["code"] == "storage"
    assert "/root" not in json.dumps(told)


def test_too_little_memory_is_said_plainly() -> None:
    told = json.loads(CliRunner().invoke(raising(MemoryError()), ["--json"]).stdout)
    assert (told["code"], told["message"]) == ("storage", "this does not fit into memory")


def test_a_bug_shows_its_traceback_only_when_asked() -> None:
    quiet = CliRunner().invoke(raising(ValueError("prompt text")), [])
    assert quiet.exit_code == 1
    assert "Traceback" not in quiet.output
    assert "prompt text" not in quiet.output
    assert "internal error: ValueError" in quiet.stderr
    loud = CliRunner().invoke(raising(ValueError("prompt text")), ["-v"])
    assert "Traceback" in loud.stderr
    assert "prompt text" not in loud.stderr


def test_what_a_user_can_mend_never_shows_a_traceback() -> None:
    mendable = EndpointError("no", context=ErrorContext(stage=Stage.RUN), hint="yes")
    mendable.__cause__ = OSError("cannot connect to gpu.internal.example")
    for error in (mendable, FileNotFoundError(errno.ENOENT, "No such file", "x"), MemoryError()):
        ended = CliRunner().invoke(raising(error), ["-vv"])
        assert "Traceback" not in ended.output
        assert "internal.example" not in ended.output


def test_an_interrupt_ends_with_130() -> None:
    ended = CliRunner().invoke(raising(KeyboardInterrupt()), [])
    assert ended.exit_code == 130
    assert ended.stderr.strip() == "interrupted"


def test_a_verb_may_choose_its_exit_code() -> None:
    assert CliRunner().invoke(ending_with(lambda: 3), []).exit_code == 3
    assert CliRunner().invoke(ending_with(lambda: None), []).exit_code == 0


def test_a_reader_that_leaves_early_is_told_nothing() -> None:
    script = (
        "from prefixbench.cli.main import main; main(['simulate', '--profile', 'list', '--json'])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        told = process.stderr.read()
    assert told == b""
