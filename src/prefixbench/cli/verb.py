"""What all verbs share: three options, one way to fail, exit codes."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import click

from prefixbench.cli.output import Output
from prefixbench.core.errors import (
    ErrorContext,
    InputPathError,
    PrefixBenchError,
    Stage,
    StorageError,
)

#: Exit code of a program that was interrupted (128 + SIGINT), as shells count it.
INTERRUPTED = 130


class Verb(click.Command):
    """A command with the common options; its function is given them as one `Output`.

    The function returns its exit code, None for 0. Errors a user can meet are printed in three
    lines (or as JSON) and end with their own exit code; nothing shows a traceback unless asked.
    """

    def __init__(self, *args: Any, stage: Stage = Stage.CONFIG, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.stage = stage
        self.params += _common_options()

    def invoke(self, ctx: click.Context) -> Any:
        output = Output(
            as_json=ctx.params.pop("as_json"),
            verbosity=ctx.params.pop("verbose"),
            quiet=ctx.params.pop("quiet"),
        )
        ctx.params["output"] = output
        output.start_logging()
        try:
            exit_code = super().invoke(ctx) or 0
        except (click.exceptions.Exit, click.ClickException, click.Abort, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            output.say("interrupted")
            exit_code = INTERRUPTED
        except Exception as error:
            told = _as_told(error, self.stage)
            output.fail(told)
            exit_code = told.exit_code
        ctx.exit(exit_code)


def _common_options() -> list[click.Parameter]:
    return [
        click.Option(
            ["--json", "as_json"], is_flag=True, help="Print one JSON object and nothing else."
        ),
        click.Option(
            ["-v", "--verbose"], count=True, help="Log events to stderr; twice: everything."
        ),
        click.Option(["--quiet"], is_flag=True, help="Print neither tables nor warnings."),
    ]


def _as_told(error: Exception, stage: Stage) -> PrefixBenchError:
    """The error as a user meets it."""
    if isinstance(error, PrefixBenchError):
        return error
    told = _told_of(error, stage)
    told.__cause__ = error
    return told


def _told_of(error: Exception, stage: Stage) -> PrefixBenchError:
    if isinstance(error, OSError):
        return _storage_error(error, stage)
    context = ErrorContext(stage=stage)
    if isinstance(error, MemoryError):
        return StorageError(
            "this does not fit into memory",
            context=context,
            hint="ask for fewer requests, or use a machine with more memory",
        )
    return PrefixBenchError(
        f"internal error: {type(error).__name__}",
        context=context,
        hint="run it again with -v and report the traceback",
    )


#: What a path that was typed wrongly leads to; the disk is in order.
_WRONG_PATHS = frozenset({errno.ENOENT, errno.EISDIR, errno.ENOTDIR})

_STORAGE_HINTS = {
    errno.ENOSPC: "free some room, or choose another folder",
    errno.EDQUOT: "free some room, or choose another folder",
    errno.EACCES: "allow access to it, or choose another folder",
    errno.EPERM: "allow access to it, or choose another folder",
    errno.EROFS: "choose a folder that can be written",
}


def _storage_error(error: OSError, stage: Stage) -> StorageError:
    name = Path(str(error.filename)).name if error.filename else None
    reason = (error.strerror or type(error).__name__).lower()
    kind = InputPathError if error.errno in _WRONG_PATHS else StorageError
    return kind(
        f"{name}: {reason}" if name else reason,
        context=ErrorContext(stage=stage, field=name),
        hint=_STORAGE_HINTS.get(error.errno or 0, "look at the file or folder that is named"),
    )
