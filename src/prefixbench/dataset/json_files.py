"""Reads files of JSON that others may have touched: nothing is handed on that does not fit.

What is refused names the file, the line and the key. Which error that is, and what to do about it,
says the reader of the file by `Refuse`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import orjson

from prefixbench.core.errors import PrefixBenchError
from prefixbench.core.shapes import OBJECT, Needed, Shape, misfit

#: Makes the error out of a sentence that names the file, and the line and key where it has such.
Refuse = Callable[[str], PrefixBenchError]

ANY_OBJECT = Needed(OBJECT)


def read_document(
    path: Path,
    refuse: Refuse,
    shape: Shape = ANY_OBJECT,
    *,
    name: str | None = None,
    complete: bool = False,
) -> dict[str, Any]:
    """A file that is one JSON object of this shape; `name` is what to call it in an error."""
    name = name or path.name
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise refuse(_unreadable(name, error)) from error
    return json_object(raw, name, refuse, shape, complete=complete)


def read_rows(
    path: Path, refuse: Refuse, shape: Shape = ANY_OBJECT, *, name: str | None = None
) -> Iterator[dict[str, Any]]:
    """The lines of a file, each a JSON object of this shape."""
    name = name or path.name
    try:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                yield json_object(line, f"line {number} of {name}", refuse, shape)
    except OSError as error:
        raise refuse(_unreadable(name, error)) from error


def json_object(
    raw: bytes, name: str, refuse: Refuse, shape: Shape = ANY_OBJECT, *, complete: bool = False
) -> dict[str, Any]:
    """Bytes that are one JSON object of this shape."""
    try:
        value = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise refuse(f"{name} is not JSON") from error
    if not isinstance(value, dict):
        raise refuse(f"{name} is not a JSON object")
    wrong = misfit(value, shape, complete=complete)
    if wrong is not None:
        raise refuse(f"{name} is broken: {wrong}")
    return value


def _unreadable(name: str, error: OSError) -> str:
    return f"{name} cannot be read ({error.strerror or type(error).__name__})"
