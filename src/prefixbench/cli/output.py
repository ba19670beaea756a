"""Where a verb's words go: data to stdout, everything else to stderr."""

from __future__ import annotations

import json
import logging
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prefixbench.core.errors import ErrorContext, OutputExistsError, PrefixBenchError, Stage

if TYPE_CHECKING:
    from rich.console import Console

#: Width of tables where stdout is a file or a pipe, in characters.
_PIPE_WIDTH = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """How one verb was asked to speak."""

    as_json: bool = False
    verbosity: int = 0
    quiet: bool = False

    def start_logging(self) -> None:
        """Send the log to stderr: warnings, with -v events, with -vv everything."""
        if isinstance(sys.stdout, TextIOWrapper):  # names of files need not be UTF-8
            sys.stdout.reconfigure(errors="backslashreplace")
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        logger = logging.getLogger("prefixbench")
        logger.handlers = [handler]
        logger.propagate = False
        logger.setLevel(self._level())

    def _level(self) -> int:
        if self.quiet:
            return logging.ERROR
        return (logging.WARNING, logging.INFO, logging.DEBUG)[min(self.verbosity, 2)]

    def show(self, document: Mapping[str, Any], page: Callable[[Console], None]) -> None:
        """Print a result: the document with --json, else the page for a person."""
        if self.as_json:
            self.show_json(document)
        elif not self.quiet:
            page(console())

    def show_json(self, document: Mapping[str, Any]) -> None:
        import orjson

        options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_SERIALIZE_NUMPY
        try:
            text = orjson.dumps(document, option=options).decode()
        except TypeError:  # a path whose name is no UTF-8: only its escaped form is JSON
            text = f"{json.dumps(_plain(document), indent=2)}\n"
        sys.stdout.write(text)

    def say(self, line: str) -> None:
        """A word to the person in front, beside the result."""
        if not self.quiet:
            sys.stderr.write(f"{line}\n")

    def warn(self, warnings: tuple[str, ...]) -> None:
        for warning in warnings:
            self.say(f"warning: {warning}")

    def fail(self, error: PrefixBenchError) -> None:
        """Print an error: one JSON object with --json, else its three lines."""
        if self.verbosity and error.code == PrefixBenchError.code and error.__cause__ is not None:
            sys.stderr.write(_frames_of(error.__cause__))
        if self.as_json:
            self.show_json(error.to_json())
        else:
            sys.stderr.write(f"{error.render()}\n")

    @property
    def shows_progress(self) -> bool:
        """Whether somebody watches stderr."""
        return not self.quiet and sys.stderr.isatty()


def _plain(value: Any) -> Any:
    """The same document of built-in types alone."""
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    return value.item() if hasattr(value, "item") else value


def _frames_of(bug: BaseException) -> str:
    """Where a bug came from, without what was said about it: that may hold an address or a text."""
    cause = _frames_of(bug.__cause__) if bug.__cause__ is not None else ""
    frames = "".join(traceback.format_tb(bug.__traceback__))
    return f"{cause}Traceback (most recent call last):\n{frames}{type(bug).__name__}\n"


def refuse_existing(target: Path) -> None:
    """Raise OutputExistsError where a file would be replaced unasked."""
    if target.exists():
        raise OutputExistsError(
            f"{target.name} exists",
            context=ErrorContext(stage=Stage.CONFIG, field="output"),
            hint="name another file, or give --overwrite",
        )


def console() -> Console:
    """A console on stdout, wide enough for tables where it is no terminal."""
    from rich.console import Console

    is_terminal = sys.stdout.isatty()
    return Console(file=sys.stdout, width=None if is_terminal else _PIPE_WIDTH, highlight=False)
