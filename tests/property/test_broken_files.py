"""Whatever was done to a file, who reads it says so, names the file, and shows no traceback."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broken_files import break_file
from prefixbench.cli.demo import background_server
from prefixbench.cli.simulate_dataset import dataset_document
from prefixbench.core.errors import DatasetChangedError, PrefixBenchError, StorageError
from prefixbench.dataset.recipes import open_dataset
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.charts import charts
from prefixbench.explain.first_screen import first_screen
from prefixbench.explain.html import SECTIONS
from prefixbench.explain.report import report_of
from prefixbench.explain.run_files import read_run
from prefixbench.pipeline import validate_dataset
from prefixbench.run.directory import RunDirectory
from prefixbench.run.journal import RunJournal, RunStatus
from prefixbench.run.runner import run_dataset
from prefixbench.server.app import ServeOptions
from run_samples import STATIC, options, sample

Seeds = st.integers(0, 2**32)

DATASET = ("data.jsonl", "manifest.json", "request_metadata.jsonl", "validation_report.json")
RUNTIME = tuple(
    f"runtime/{name}"
    for name in (
        "request_results.jsonl", "run.json", "performance_metrics.json",
        "prefix_cache_metrics.json",
    )
)  # fmt: skip
RUN = (*RUNTIME, *(f"dataset/{name}" for name in DATASET[1:]))
RESUMED = (*RUNTIME, "runtime/events.jsonl")

SMALL = {"request_count": 9}
MODEST: dict[str, Any] = {**SMALL, "target": {"hit_ratio": 0.3}}


@cache
def finished_run() -> Path:
    """A comparison: two measured phases, so that one can be resumed behind the other."""
    dataset = sample(STATIC, **SMALL)
    folder = dataset.with_name(f"{dataset.name}-run")
    with background_server(ServeOptions(time_scale=0)) as url:
        run_dataset(options(dataset, folder, url, mode="compare"))
    return folder


@contextmanager
def broken(source: Path, name: str, seed: int) -> Iterator[Path]:
    """A copy of a folder with one broken file."""
    with TemporaryDirectory() as parent:
        copy = Path(shutil.copytree(source, Path(parent) / "copy"))
        break_file(copy / name, seed)
        yield copy


def report(folder: Path) -> None:
    """All that `report` makes but the files."""
    analysis = Analysis(read_run(folder))
    made = report_of(analysis)
    orjson.dumps(made.to_json())
    first_screen(made)
    drawn = {name: chart.caption for name, chart in charts(analysis).items()}
    for build, _, _ in SECTIONS:
        build(made, drawn)


def resume(folder: Path) -> None:
    """All that `run --resume` makes of the files before it sends anything."""
    stated = orjson.loads((finished_run() / "runtime/run.json").read_bytes())
    identity = {key: stated[key] for key in ("dataset_id", "manifest_sha256")}
    journal = RunJournal(
        RunDirectory(folder), identity=identity, headline="hot", description=stated
    )
    journal.resume()
    with journal:
        journal.finish(RunStatus.COMPLETE)


def simulate(folder: Path) -> None:
    dataset_document(
        folder,
        None,
        capacity_blocks=None,
        curve=True,
        concurrency=None,
        routing="planned",
        dp_size=1,
    )


def compose(folder: Path) -> None:
    list(open_dataset(folder).requests())


@pytest.mark.parametrize("name", RUN)
@settings(max_examples=8, deadline=None)
@given(seed=Seeds)
def test_a_report_of_a_broken_run_is_refused_or_made(name: str, seed: int) -> None:
    with broken(finished_run(), name, seed) as folder:
        assert_names_the_file(refusal(report, folder), name)


@pytest.mark.parametrize("name", RESUMED)
@settings(max_examples=8, deadline=None)
@given(seed=Seeds)
def test_a_broken_run_is_not_resumed_or_is(name: str, seed: int) -> None:
    with broken(finished_run(), name, seed) as folder:
        assert_names_the_file(refusal(resume, folder), name)


@pytest.mark.parametrize("use", [validate_dataset, simulate, compose])
@pytest.mark.parametrize("save_prompts", [True, False])
@pytest.mark.parametrize("name", DATASET)
@settings(max_examples=3, deadline=None)
@given(seed=Seeds)
def test_a_broken_data_set_is_refused_or_as_good_as_before(
    name: str, save_prompts: bool, use: Callable[[Path], object], seed: int
) -> None:
    source = sample(save_prompts=save_prompts, **MODEST)
    with broken(source, name, seed) as folder, suppress(DatasetChangedError):
        use(folder)


def refusal(use: Callable[[Path], object], folder: Path) -> PrefixBenchError | None:
    """How the files were refused; None if they were not."""
    try:
        use(folder)
    except (StorageError, DatasetChangedError) as error:
        return error
    return None


def assert_names_the_file(error: PrefixBenchError | None, name: str) -> None:
    if error is not None:
        assert Path(name).name in error.message or "set is partial" in error.message
        assert error.hint


@pytest.mark.parametrize("line", [b"[1]", b'"x"', b"null", b'{"a": "\xff"}', b"", b'{"dataset_id"'])
def test_the_line_that_is_no_object_is_named(line: bytes, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_run(), tmp_path / "run"))
    results = folder / "runtime" / "request_results.jsonl"
    lines = results.read_bytes().splitlines(keepends=True)
    lines[4] = line + b"\n"
    results.write_bytes(b"".join(lines))
    for use in (report, resume):
        with pytest.raises(StorageError, match=r"line 5 of \S*request_results\.jsonl is not"):
            use(folder)


def test_the_key_that_is_of_another_kind_is_named(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(finished_run(), tmp_path / "run"))
    counters = folder / "runtime" / "prefix_cache_metrics.json"
    document = orjson.loads(counters.read_bytes())
    document["phases"][1]["hits"] = "many"
    counters.write_bytes(orjson.dumps(document))
    for use in (report, resume):
        with pytest.raises(StorageError, match=r"phases\[1\]\.hits is not a count") as caught:
            use(folder)
        assert "restore" in caught.value.hint
