"""Writes the reference of commands and settings: `python -m prefixbench.cli.reference [FOLDER]`.

Both pages are made of the code that they describe, so they cannot say anything else.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeGuard

import click

from prefixbench.cli.main import VERBS, main
from prefixbench.cli.markdown import MADE_BY, table
from prefixbench.cli.reference_settings import configuration_page
from prefixbench.cli.verb import INTERRUPTED
from prefixbench.core import errors
from prefixbench.core.errors import PrefixBenchError

FOLDER = Path("docs/reference")


def cli_page() -> str:
    """All verbs with their options, and the exit codes."""
    context = click.Context(main, info_name="prefixbench")
    lines = ["# Commands", "", MADE_BY, ""]
    for name in VERBS:
        command = main.get_command(context, name)
        assert command is not None
        for verb, own in _verbs(command, click.Context(command, info_name=name, parent=context)):
            lines += _verb_lines(verb, own)
    codes = ((str(code), "; ".join(whens)) for code, whens in sorted(_exit_codes().items()))
    return "\n".join([*lines, "## Exit codes", "", *table(("code", "when"), codes)])


def _verbs(
    command: click.Command, context: click.Context
) -> Iterator[tuple[click.Command, click.Context]]:
    """The command itself, or the ones below it."""
    if not isinstance(command, click.Group):
        yield command, context
        return
    for name, verb in command.commands.items():
        yield from _verbs(verb, click.Context(verb, info_name=name, parent=context))


def _verb_lines(command: click.Command, context: click.Context) -> Iterator[str]:
    yield from (f"## {context.command_path}", "", command.help or "", "")
    arguments = [one for one in command.params if isinstance(one, click.Argument)]
    options = [option for option in command.params if isinstance(option, click.Option)]
    if arguments:
        yield from (f"Takes {', '.join(f'`{one.human_readable_name}`' for one in arguments)}.", "")
    yield from table(
        ("option", "default", ""), (_option_row(option, context) for option in options)
    )


def _option_row(option: click.Option, context: click.Context) -> tuple[str, str, str]:
    usage, _ = option.get_help_record(context) or ("", "")
    return f"`{usage}`", _default(option, context), option.help or ""


def _default(option: click.Option, context: click.Context) -> str:
    if option.required:
        return "required"
    default = option.get_default(context)
    is_switch = option.is_flag or option.count
    return f"`{default}`" if isinstance(default, int | float | str) and not is_switch else ""


def _exit_codes() -> dict[int, list[str]]:
    """Exit code to the first sentences of the errors that end with it."""
    codes = {0: ["Done"], 1: ["Anything else"], INTERRUPTED: ["The program was interrupted"]}
    for error in vars(errors).values():
        if _is_error_kind(error):
            sentence = (error.__doc__ or "").partition(".")[0]
            codes.setdefault(error.exit_code, []).append(" ".join(sentence.split()))
    return codes


def _is_error_kind(value: Any) -> TypeGuard[type[PrefixBenchError]]:
    is_class = isinstance(value, type) and issubclass(value, PrefixBenchError)
    return is_class and value is not PrefixBenchError


def write_pages(folder: Path) -> None:
    """Write both pages; an existing one is replaced."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in (("cli.md", cli_page()), ("configuration.md", configuration_page())):
        (folder / name).write_text(text, "utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER)
