"""Files of lines, gzipped or not, with errors that name the line and never quote it."""

from __future__ import annotations

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import closing, suppress
from io import BufferedReader
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import orjson

from prefixbench.exchange.fields import FieldError
from prefixbench.exchange.trace import broken_trace

T = TypeVar("T")

_GZIP_MAGIC = b"\x1f\x8b"


def open_bytes(path: Path) -> BufferedReader | gzip.GzipFile:
    """The file's content, unpacked if it is gzipped."""
    with path.open("rb") as file:
        is_packed = file.read(len(_GZIP_MAGIC)) == _GZIP_MAGIC
    return gzip.open(path) if is_packed else path.open("rb")


def json_rows(
    path: Path, row_of: Callable[[Any], T], *, fields: str, skipped: int = 0
) -> Iterator[T]:
    """What each JSON line stands for, the first `skipped` left out.

    `fields` says what a line must hold.
    """
    for number, line in islice(enumerate(_lines(path), start=1), skipped, None):
        if line.isspace():
            continue
        try:
            yield row_of(orjson.loads(line))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise broken_trace(
                f"{path.name}, line {number}: {_reason(error)}",
                hint=f"one JSON value a line: {fields}",
            ) from error


def csv_rows(path: Path, row_of: Callable[[Mapping[str, str]], T], *, fields: str) -> Iterator[T]:
    """What each row of a table with a header stands for; empty cells are left out."""
    with open_bytes(path) as file:
        rows = csv.DictReader(io.TextIOWrapper(file, "utf-8-sig"), restkey="")
        try:
            for row in rows:
                yield row_of({name: cell for name, cell in row.items() if name and cell})
        except (FieldError, csv.Error, UnicodeDecodeError) as error:
            reason = error if isinstance(error, FieldError) else "no valid CSV in UTF-8"
            raise broken_trace(
                f"{path.name}, line {rows.line_num}: {reason}",
                hint=f"CSV with the columns {fields}",
            ) from error


def _lines(path: Path) -> Generator[bytes]:
    try:
        with open_bytes(path) as file:
            yield from file
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise broken_trace(
            f"{path.name} cannot be unpacked to its end", hint="fetch or pack the file again"
        ) from error


def first_line(path: Path) -> bytes:
    with closing(_lines(path)) as lines:
        return next(lines, b"")


def stated_block_size(path: Path) -> int | None:
    """`block_size` of the first line, where it has one."""
    with suppress(ValueError, TypeError, KeyError):
        return int(orjson.loads(first_line(path))["block_size"])
    return None


def _reason(error: Exception) -> str:
    """What is wrong, without a word of what the line says."""
    match error:
        case FieldError():
            return str(error)
        case AttributeError():
            return "the line is no object"
        case KeyError():
            return f"{error.args[0]} is missing"
        case orjson.JSONDecodeError():
            return f"no valid JSON at column {error.colno}"
        case _:
            return "a value has the wrong type"
