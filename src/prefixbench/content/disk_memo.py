"""What is found out once about a tokenizer or a corpus, kept in the user's cache folder.

An entry is named by all it depends on, the rules' and the tokenizer library's versions included. A
file that cannot be read or written costs time, never correctness.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import IO, Any, TypeVar

import orjson

from prefixbench.content.atoms import ATOM_RULE_VERSION
from prefixbench.core.version import RULE_VERSION

T = TypeVar("T")

#: Names the folder of kept files; an empty value switches keeping off.
CACHE_VARIABLE = "PREFIXBENCH_CACHE"


def cache_folder() -> Path | None:
    """PREFIXBENCH_CACHE, else a folder in the user's cache; None for nowhere."""
    named = os.environ.get(CACHE_VARIABLE)
    if named is not None:
        return Path(named).expanduser() if named else None
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "prefixbench"


def memo_key(*parts: object) -> str:
    """A name for what depends on these parts and on the rules in force."""
    versions = (ATOM_RULE_VERSION, RULE_VERSION, _library_version())
    return sha256(repr((parts, versions)).encode()).hexdigest()[:32]


@cache
def _library_version() -> str:
    """Of `tokenizers`, whose import costs more than all that is remembered."""
    return version("tokenizers")


def remembered(kind: str, parts: object, make: Callable[[], T]) -> T:
    """A JSON value out of the cache folder, else made and put there."""
    folder = cache_folder()
    if folder is None:
        return make()
    path = folder / f"{kind}-{memo_key(parts)}.json"
    with suppress(OSError, orjson.JSONDecodeError):
        kept: T = orjson.loads(path.read_bytes())
        return kept
    value = make()
    write_whole(path, lambda file: file.write(orjson.dumps(value)))
    return value


def write_whole(path: Path, fill: Callable[[IO[bytes]], Any]) -> None:
    """Write beside the place and move there, so that no one reads half a file."""
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        with NamedTemporaryFile(dir=path.parent, suffix=path.suffix, delete=False) as file:
            try:
                fill(file)
                file.close()
                Path(file.name).replace(path)
            except OSError:
                Path(file.name).unlink(missing_ok=True)
                raise
