"""The command line `prefixbench`: a group of verbs, each loaded when it is used."""

from __future__ import annotations

import difflib
import gc
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import INTERRUPTED
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.version import __version__

#: In the order of work; each is a module of this package with a `command`.
VERBS = (
    *("generate", "validate", "plan", "simulate", "trace", "fit"),
    *("serve", "run", "report", "demo"),
)

#: New objects after which the interpreter looks for cycles. The usual 700 make it look thousands
#: of times while rows by the hundred thousand come and go, which hold no cycles.
_OBJECTS_BETWEEN_SEARCHES = 200_000

#: No verb multiplies matrices; numpy would start threads for it that only wait, at 0.1 CPU seconds.
_NO_MATRIX_THREADS = ("OPENBLAS_NUM_THREADS", "1")


class LazyGroup(click.Group):
    """Knows the names of its commands and imports one when it is asked for."""

    def list_commands(self, _: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, _: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in VERBS:
            return None
        command: click.Command = import_module(f"prefixbench.cli.{cmd_name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"there is no verb {args[0]!r}.{_meant(args[0])}", ctx)
        return super().resolve_command(ctx, args)

    def main(self, args: Sequence[str] | None = None, *_: Any, **settings: Any) -> Any:
        """Run one verb and exit; wrong usage is told as JSON too where --json was asked for."""
        arguments = list(sys.argv[1:] if args is None else args)
        settings |= {"standalone_mode": False, "prog_name": "prefixbench"}
        try:
            exit_code = super().main(arguments, **settings)
        except click.Abort:
            exit_code = INTERRUPTED
        except click.ClickException as error:
            _tell_usage(error, as_json="--json" in arguments)
            exit_code = error.exit_code
        sys.exit(exit_code or 0)


def _meant(word: str) -> str:
    nearest = difflib.get_close_matches(word, VERBS, n=1)
    return f" Did you mean {nearest[0]!r}?" if nearest else ""


def _tell_usage(error: click.ClickException, *, as_json: bool) -> None:
    if not as_json:
        error.show()
        return
    context = getattr(error, "ctx", None)
    where = context.command_path if context is not None else "prefixbench"
    Output(as_json=True).fail(
        ConfigError(
            error.format_message(),
            context=ErrorContext(stage=Stage.CONFIG),
            hint=f"`{where} --help` lists the options",
        )
    )


@click.command(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="prefixbench")
def main() -> None:
    """Plan, prove, run and explain prefix-cache benchmarks of LLM servers."""
    gc.set_threshold(_OBJECTS_BETWEEN_SEARCHES)
    os.environ.setdefault(*_NO_MATRIX_THREADS)
