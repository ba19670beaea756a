"""Breaks files of JSON in the ways that disks, editors and other programs do."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

JUNK: tuple[Any, ...] = (None, True, -1, 1.5, 10**6, 10**30, "x", "", [], [1], {}, {"x": [None]})
LINES = (b"[1]", b'"x"', b"null", b"3", b"", b"{", b'{"a": \xff\xfe}', b"\x00")


def break_file(path: Path, seed: int) -> str:
    """Break a file of JSON or of JSON lines, and say how."""
    rng = random.Random(seed)
    raw = path.read_bytes()
    way = rng.choice(("line", "cut", "key", "key", "key", "key"))
    if way == "line":
        lines = raw.splitlines(keepends=True) or [b""]
        place = rng.randrange(len(lines))
        line = rng.choice(LINES)
        lines[place] = line + b"\n"
        path.write_bytes(b"".join(lines))
        return f"line {place + 1} of {path.name} is {line!r}"
    if way == "cut":
        length = rng.randrange(len(raw))
        path.write_bytes(raw[:length])
        return f"{path.name} ends after {length} bytes"
    return _break_value(path, raw, rng)


def _break_value(path: Path, raw: bytes, rng: random.Random) -> str:
    is_lines = path.suffix == ".jsonl"
    documents = [json.loads(line) for line in raw.splitlines()] if is_lines else [json.loads(raw)]
    number = rng.randrange(len(documents))
    holder, key = rng.choice(list(_places(documents[number])))
    how = "gone"
    if rng.random() < 0.3:
        del holder[key]
    else:
        holder[key] = rng.choice(JUNK)
        how = repr(holder[key])
    text = [json.dumps(document, indent=None if is_lines else 2) for document in documents]
    path.write_text("\n".join(text) + "\n", "utf-8")
    return f"{key!r} in document {number + 1} of {path.name} is {how}"


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Every value inside another, as its holder and its key."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items):
        yield value, key
        if isinstance(part, dict | list) and part:
            yield from _places(part)
