"""Corpora: where the natural text of prefixes and suffixes comes from.

A corpus is a list of texts, numbered as in its file; the number is the sample id of manifests. A
row of GSM8K's schema `{question, answer}` becomes the text `question`, newline, `answer`.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from prefixbench.content.word_problems import generate_word_problems
from prefixbench.core.errors import CorpusError, ErrorContext, Stage

BUILTIN = "builtin"
GSM8K = "gsm8k"

#: Names the file or folder that `gsm8k` stands for.
GSM8K_VARIABLE = "PREFIXBENCH_GSM8K"

_GSM8K_FILE = "train.jsonl"
_GSM8K_HINT = (
    f"set {GSM8K_VARIABLE} to {_GSM8K_FILE} of github.com/openai/grade-school-math"
    " (grade_school_math/data), or give that file to --corpus"
)
_COLUMNS_HINT = "name a column question (and answer), text, prompt or content"
_ROW_HINT = 'a row is {"question": …, "answer": …} or {"text": …}'
_ENCODING = "utf-8-sig"  # UTF-8, with or without a byte order mark
_TEXT_KEYS = ("text", "prompt", "content", "question")


@dataclass(frozen=True, slots=True)
class Corpus:
    """Texts with a name for manifests and the SHA-256 of the bytes they were read from."""

    name: str
    texts: tuple[str, ...]
    sha256: str

    @property
    def rows(self) -> int:
        return len(self.texts)


def load_corpus(spec: str | Path, *, seed: int) -> Corpus:
    """`builtin` (generated from the seed), `gsm8k`, or a jsonl, txt, csv or parquet file."""
    if str(spec) == BUILTIN:
        return _builtin_corpus(seed)
    if str(spec) == GSM8K:
        return _gsm8k_corpus()
    return _file_corpus(Path(spec).expanduser())


def _builtin_corpus(seed: int) -> Corpus:
    rows = list(generate_word_problems(seed))
    raw = b"".join(orjson.dumps(row) + b"\n" for row in rows)
    return Corpus(BUILTIN, tuple(_row_text(row) for row in rows), sha256(raw).hexdigest())


def _gsm8k_corpus() -> Corpus:
    place = os.environ.get(GSM8K_VARIABLE)
    if place:
        path = Path(place).expanduser()
        if not path.exists():
            raise _unusable(GSM8K, f"{GSM8K_VARIABLE} names no file or folder", _GSM8K_HINT)
        corpus = _file_corpus(path / _GSM8K_FILE if path.is_dir() else path)
        return Corpus(GSM8K, corpus.texts, corpus.sha256)
    return _gsm8k_from_hub()


def _gsm8k_from_hub() -> Corpus:
    """The hub's parquet file, through the extra `hf`; never a silent substitute."""
    try:
        from pyarrow import parquet
    except ImportError:
        hint = f"{_GSM8K_HINT}; or install the extra `hf`"
        raise _unusable(GSM8K, "it is not on this machine", hint) from None
    from huggingface_hub import hf_hub_download

    try:
        path = hf_hub_download(
            "openai/gsm8k", "main/train-00000-of-00001.parquet", repo_type="dataset"
        )
        rows = parquet.read_table(path, columns=["question", "answer"]).to_pylist()
    except Exception as error:  # network, cache and format errors of three libraries
        reason = f"the hub did not give it ({type(error).__name__})"
        raise _unusable(GSM8K, reason, _GSM8K_HINT) from error
    return Corpus(
        GSM8K, tuple(_row_text(row) for row in rows), sha256(Path(path).read_bytes()).hexdigest()
    )


def _file_corpus(path: Path) -> Corpus:
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        reason = "its kind of file is not known" if path.exists() else "no such file"
        raise _unusable(path.name, reason, f"use one of: {', '.join(sorted(_READERS))}")
    try:
        raw = path.read_bytes()
        texts = tuple(reader(raw, path.name))
    except OSError as error:
        reason = (error.strerror or type(error).__name__).lower()
        raise _unusable(path.name, reason, "check the path") from error
    except UnicodeDecodeError as error:
        raise _unusable(path.name, "it is not UTF-8", "save the file as UTF-8") from error
    if not any(texts):
        raise _unusable(path.name, "it holds no text", "a row needs text")
    return Corpus(path.name, texts, sha256(raw).hexdigest())


def _read_jsonl(raw: bytes, name: str) -> Iterable[str]:
    """One row a line. Only a newline ends it: JSON may hold U+2028 or U+0085 as they are."""
    for number, line in enumerate(raw.decode(_ENCODING).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            yield _row_text(orjson.loads(line))
        except (orjson.JSONDecodeError, TypeError) as error:
            raise _unusable(
                f"{name} line {number}", "it is no JSON object with a text", _ROW_HINT
            ) from error


def _read_json(raw: bytes, name: str) -> Iterable[str]:
    """A list of rows, or one row a line."""
    text = raw.decode(_ENCODING)
    if not text.lstrip().startswith("["):
        return _read_jsonl(raw, name)
    try:
        return [_row_text(row) for row in orjson.loads(text)]
    except (orjson.JSONDecodeError, TypeError) as error:
        reason = "it is no JSON list of objects with a text"
        raise _unusable(name, reason, _ROW_HINT) from error


def _read_csv(raw: bytes, name: str) -> Iterable[str]:
    """Rows under a header; the columns are those of jsonl's rows."""
    # The limit holds for the whole process, so it is only ever raised.
    csv.field_size_limit(max(csv.field_size_limit(), len(raw)))
    rows = csv.DictReader(io.StringIO(raw.decode(_ENCODING), newline=""))
    try:
        for row in rows:
            yield _row_text(row)
    except (csv.Error, TypeError) as error:
        raise _unusable(
            f"{name} line {rows.line_num}", "it has no column with a text", _COLUMNS_HINT
        ) from error


def _read_parquet(raw: bytes, name: str) -> Iterable[str]:
    """Rows of a table, through the extra `hf`."""
    try:
        from pyarrow import ArrowException, BufferReader, parquet
    except ImportError:
        raise _unusable(
            name,
            "parquet files need the extra `hf`",
            "pip install 'prefixbench[hf]', or save the table as csv or jsonl",
        ) from None
    try:
        table = parquet.ParquetFile(BufferReader(raw))
        # Other columns may hold what Python has no value for, such as nanoseconds.
        columns = [key for key in (*_TEXT_KEYS, "answer") if key in table.schema_arrow.names]
        rows = table.read(columns=columns).to_pylist()
    except ArrowException as error:
        raise _unusable(name, "it is no table with a text", _COLUMNS_HINT) from error
    for number, row in enumerate(rows):
        try:
            yield _row_text(row)
        except TypeError as error:
            reason = "it has no column with a text"
            raise _unusable(f"{name} row {number}", reason, _COLUMNS_HINT) from error


def _read_txt(raw: bytes, _name: str) -> Iterable[str]:
    """Paragraphs, parted by empty lines; the lines, where no line is empty."""
    text = raw.decode(_ENCODING).replace("\r\n", "\n").strip()
    parts = text.split("\n\n") if "\n\n" in text else text.split("\n")
    return (part.strip() for part in parts if part.strip())


_READERS: dict[str, Callable[[bytes, str], Iterable[str]]] = {
    ".csv": _read_csv,
    ".parquet": _read_parquet,
    ".jsonl": _read_jsonl,
    ".json": _read_json,
    ".txt": _read_txt,
    ".text": _read_txt,
    ".md": _read_txt,
}


def _row_text(row: Any) -> str:
    """The text of a row; TypeError if it has none."""
    if isinstance(row, str):
        return row.strip()
    key = next((key for key in _TEXT_KEYS if key in row), None)
    if key is None or not isinstance(row[key], str):
        raise TypeError("no text in this row")
    answer = _answer_text(row.get("answer")) if key == "question" else ""
    return f"{row[key].strip()}\n{answer}" if answer else row[key].strip()


def _answer_text(answer: Any) -> str:
    """An answer may be missing, or a number; TypeError if it is anything else but text."""
    if answer is None:
        return ""
    if isinstance(answer, bool) or not isinstance(answer, str | int | float):
        raise TypeError("no text in this answer")
    return str(answer).strip()


def _unusable(name: str, reason: str, hint: str) -> CorpusError:
    return CorpusError(
        f"corpus {name!r} cannot be used: {reason}",
        context=ErrorContext(stage=Stage.CONTENT, field="corpus"),
        hint=hint,
    )
