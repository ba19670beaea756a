"""The run directory (contract section 4): readable at every moment, whatever ends the run.

Rows are written one by one, documents are replaced as a whole, and `run.json` says from the first
moment on that the run is going on.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prefixbench.core.errors import (
    ErrorContext,
    OutputExistsError,
    PrefixBenchError,
    Stage,
    StorageError,
)
from prefixbench.core.shapes import Shape
from prefixbench.dataset.json_files import json_object, read_document
from prefixbench.dataset.layout import DATA, MANIFEST, METADATA, REPORT, document
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.results import RowWriter

#: A larger data.jsonl is referred to by its hash instead of being copied.
COPY_UP_TO_BYTES = 16 * 2**20

DATA_REFERENCE = "data.reference.json"
RUN = "run.json"
RESULTS = "request_results.jsonl"
PERFORMANCE = "performance_metrics.json"
CACHE = "prefix_cache_metrics.json"
EVENTS = "events.jsonl"

_DEFAULT_PARENT = Path("outputs")
_RUN_NAME = re.compile(r"run_(\d+)")


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """Paths of one run, and how its files are written."""

    path: Path

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def runtime(self) -> Path:
        return self.path / "runtime"

    @property
    def holds_a_run(self) -> bool:
        return (self.runtime / RUN).is_file()

    def write(self, name: str, content: Mapping[str, Any]) -> None:
        """Replace a document of runtime/ in one step."""
        target = self.runtime / name
        draft = target.with_suffix(".tmp")
        draft.write_bytes(document(content))
        draft.replace(target)

    def read(self, name: str, shape: Shape) -> dict[str, Any]:
        """A document of runtime/; StorageError if it is not of this shape."""
        return read_document(self.runtime / name, _cannot_go_on, shape, complete=True)

    def rows(self, name: str) -> RowWriter:
        """A JSON lines file of runtime/, continued where it ends."""
        return RowWriter(self.runtime / name, append=True)

    def keep_rows(
        self, name: str, shape: Shape, wanted: Callable[[Mapping[str, Any]], bool]
    ) -> None:
        """Drop the other rows of a JSON lines file, and a last line that is not whole."""
        source = self.runtime / name
        draft = source.with_suffix(".tmp")
        with source.open("rb") as lines, draft.open("wb") as kept:
            for number, line in enumerate(lines, start=1):
                if not line.endswith(b"\n"):
                    break
                where = f"line {number} of {name}"
                if wanted(json_object(line, where, _cannot_go_on, shape)):
                    kept.write(line)
        draft.replace(source)


def _cannot_go_on(why: str) -> StorageError:
    return StorageError(
        f"this run cannot be resumed: {why}",
        context=ErrorContext(stage=Stage.RUN, field="--resume"),
        hint="restore the file, or start again with --overwrite",
    )


def open_directory(path: Path | None, *, resume: bool, overwrite: bool) -> RunDirectory:
    """The directory of a new run, or of the one to go on with; refuses one that is in use."""
    target = path or _next_default()
    if target.exists() and any(target.iterdir()):
        if not (resume or overwrite):
            raise OutputExistsError(
                "the output folder is not empty",
                context=ErrorContext(stage=Stage.RUN, field="--output"),
                hint="choose an empty folder, or say --resume or --overwrite",
            )
        if overwrite and not resume:
            _clear(target)
    for folder in ("dataset", "runtime"):
        (target / folder).mkdir(parents=True, exist_ok=True)
    return RunDirectory(target)


def copy_dataset(dataset: DatasetReader, directory: RunDirectory) -> None:
    """Copy what describes the data set; of a large data.jsonl only its size and hash."""
    target = directory.path / "dataset"
    for name in (MANIFEST, METADATA, REPORT):
        shutil.copyfile(dataset.folder / name, target / name)
    data = dataset.manifest.files[DATA]
    if data["bytes"] <= COPY_UP_TO_BYTES:
        shutil.copyfile(dataset.folder / DATA, target / DATA)
    else:
        (target / DATA_REFERENCE).write_bytes(document({"file": DATA, **data}))


@contextmanager
def storage_errors(dataset_id: str) -> Iterator[None]:
    """Turn a full disk or a missing permission into an error that says so."""
    try:
        yield
    except PrefixBenchError:
        raise
    except OSError as error:
        raise StorageError(
            f"the run directory cannot be written: {error.strerror}",
            context=ErrorContext(stage=Stage.RUN, dataset_id=dataset_id, field="--output"),
            hint="free some space or choose another --output; what is written stays readable",
        ) from error


@contextmanager
def naming(directory: RunDirectory) -> Iterator[None]:
    """Let an error say where the run stands that it ended."""
    try:
        yield
    except PrefixBenchError as error:
        error.context = replace(error.context, run_dir=str(directory.path))
        raise


def _next_default() -> Path:
    taken = [
        int(match[1])
        for entry in (_DEFAULT_PARENT.iterdir() if _DEFAULT_PARENT.is_dir() else ())
        if (match := _RUN_NAME.fullmatch(entry.name))
    ]
    return _DEFAULT_PARENT / f"run_{max(taken, default=0) + 1:03d}"


def _clear(target: Path) -> None:
    """Remove what a run left; a folder that is no run directory is never touched."""
    if not RunDirectory(target).holds_a_run:
        raise OutputExistsError(
            "the output folder holds something else than a run",
            context=ErrorContext(stage=Stage.RUN, field="--output"),
            hint="choose an empty folder; --overwrite replaces run directories alone",
        )
    for folder in ("dataset", "runtime", "report"):
        shutil.rmtree(target / folder, ignore_errors=True)
