"""The reference lists all: verbs, options, settings, keys of files, metrics, names."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest

import prefixbench
from doc_pages import document_paths, name_of
from prefixbench.cli.demo import background_server
from prefixbench.cli.main import VERBS, main
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.load import parse_config
from prefixbench.explain.causes import Cause
from prefixbench.explain.report import write_report
from prefixbench.explain.verdict import ScenarioClass
from prefixbench.pipeline import generate_prefix_cache_dataset
from prefixbench.run.families import ADAPTERS, CountingRule
from prefixbench.run.options import RunOptions
from prefixbench.run.runner import run_dataset
from prefixbench.server.faults import Fault
from prefixbench.server.options import ServeOptions
from shared_folder import REPOSITORY

#: Mappings whose keys are names that users or machines give.
_NAMED = frozenset(
    {"config", "bindings", "files"}
    | {"designed_hit_ratio_at_concurrency", "hit_blocks_at_concurrency"}
)


def page(name: str) -> str:
    return (REPOSITORY / "docs" / name).read_text("utf-8")


def words_of(text: str) -> set[str]:
    """What stands in backticks, and its parts."""
    spans = re.findall(r"`([^`\n]+)`", text)
    return {word for span in spans for word in re.split(r"[^\w-]+", span)}


def test_every_verb_and_option_is_in_the_reference() -> None:
    text = page("reference/cli.md")
    for verb in VERBS:
        command = main.get_command(click.Context(main), verb)
        assert command is not None
        section = text.partition(f"## prefixbench {verb}\n")[2].partition("\n## ")[0]
        options = [
            name
            for param in command.params
            for name in (
                [param.human_readable_name] if isinstance(param, click.Argument) else param.opts
            )
        ]
        assert [option for option in options if option not in section] == []


def test_every_setting_is_in_the_reference() -> None:
    words = words_of(page("reference/configuration.md"))
    config = parse_config(
        {"request_count": 1, "input_length": 64, "target": {"hit_ratio": 0}}
    ).effective()
    assert set(_keys(config)) | set(PrefixCacheDatasetConfig.model_fields) <= words


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield key
            if key not in _NAMED:
                yield from _keys(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _keys(inner)


@pytest.fixture(scope="module")
def run_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("reference")
    config = parse_config(
        {
            "request_count": 6,
            "block_size": 16,
            "input_length": {"mode": "truncated_normal", "min": 64, "max": 512, "mean": 200}
            | {"std": 80},
            "target": {"hit_ratio": 0.3},
        }
    )
    generate_prefix_cache_dataset(config, output_dir=folder / "dataset")
    with background_server(ServeOptions(block_size=16, time_scale=0)) as url:
        run_dataset(
            RunOptions(
                dataset=folder / "dataset", urls=(url,), output=folder / "run", mode="compare"
            )
        )
    write_report(folder / "run")
    return folder / "run"


def test_every_key_on_disk_is_in_the_reference(run_directory: Path) -> None:
    known = words_of(page("reference/files.md") + page("reference/metrics.md"))
    known |= words_of(page("reference/configuration.md"))
    files = [path for path in run_directory.rglob("*.json*") if path.is_file()]
    assert len(files) == 10
    unknown = {
        f"{path.name}: {key}"
        for path in files
        for line in _documents(path)
        for key in _keys(line)
        if key not in known
    }
    assert not unknown


def _documents(path: Path) -> list[Any]:
    text = path.read_text("utf-8")
    parts = text.splitlines() if path.suffix == ".jsonl" else [text]
    return [json.loads(part) for part in parts]


def test_every_adapter_and_its_families_are_in_the_reference() -> None:
    text = page("reference/metrics.md")
    for adapter in ADAPTERS.values():
        families = {
            term.family for read in adapter.readings for term in (*read.queries, *read.hits)
        }
        assert [name for name in {adapter.name, *families} if f"`{name}`" not in text] == []
    assert [rule for rule in CountingRule if f"`{rule}`" not in text] == []


def test_every_cause_scenario_and_fault_is_explained() -> None:
    causes = words_of(page("concepts/attribution.md"))
    assert {*map(str, Cause), *map(str, ScenarioClass)} <= causes
    assert set(map(str, Fault)) <= words_of(page("how-to/faults.md"))


def test_every_public_name_is_in_the_guide_and_exists() -> None:
    words = words_of(page("how-to/python-api.md"))
    for name in set(prefixbench.__all__) - {"__version__"}:
        assert name in words
        assert getattr(prefixbench, name) is not None


@pytest.mark.parametrize("document", document_paths(), ids=name_of)
def test_names_in_documents_exist(document: Path) -> None:
    dotted = set(re.findall(r"`(prefixbench(?:\.\w+)+)`", document.read_text("utf-8")))
    assert [name for name in dotted if not _exists(name)] == []


def _exists(name: str) -> bool:
    parts = name.split(".")
    found: Any = prefixbench
    for depth, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            try:
                found = import_module(".".join(parts[:depth]))
            except ImportError:
                return False
        else:
            found = getattr(found, part)
    return True


@pytest.mark.parametrize("document", document_paths(), ids=name_of)
def test_documents_speak_plainly(document: Path) -> None:
    text = document.read_text("utf-8").lower()
    assert [word for word in ("simply", "todo", "/work/", "/tmp/") if word in text] == []
