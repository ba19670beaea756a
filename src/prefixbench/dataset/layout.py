"""Names of the files of a data set, and how its JSON is written.

The bytes of a data set are part of its promise: sorted nothing, indented nothing but the two
documents that people read, no time stamps, no host names.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson

DATA = "data.jsonl"
METADATA = "request_metadata.jsonl"
REPORT = "validation_report.json"
MANIFEST = "manifest.json"
#: On demand; the endings say what numbers they hold, least significant byte first.
IDS = "prompt_ids.u32"
ID_OFFSETS = "prompt_ids_offsets.u64"

FILES = (DATA, METADATA, REPORT)
ID_FILES = (IDS, ID_OFFSETS)


def document(value: Any) -> bytes:
    """A JSON document for people: two spaces, a final newline, keys in the order given."""
    return orjson.dumps(value, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def row(value: Any) -> bytes:
    """One line of a JSON lines file."""
    return orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE)


def canonical_sha256(value: Any) -> str:
    """SHA-256 of a JSON value, independent of the order of its keys."""
    return hashlib.sha256(orjson.dumps(value, option=orjson.OPT_SORT_KEYS)).hexdigest()


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
