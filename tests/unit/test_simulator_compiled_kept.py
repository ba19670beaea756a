"""What was compiled is kept on disk, and never used for rules that have changed since."""

from __future__ import annotations

import importlib.util
import linecache
import os
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from extras import needs
from prefixbench.simulator.compiled import compiled_entry

pytestmark = pytest.mark.extras

needs("numba")

ENTRY = "def twice(number):\n    return rule(number) * 2\n"


def module_of(path: Path, text: str) -> ModuleType:
    """A fresh module of this text; the file keeps its time and its size, as a copied one may."""
    path.write_text(text)
    linecache.clearcache()  # a later process would read the file
    os.utime(path, (1, 1))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_rule_that_changed_in_another_file_is_compiled_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    answers = []
    for added in (1, 1, 5):
        rules = module_of(
            tmp_path / "kept_rules.py", f"def rule(number):\n    return number + {added}\n"
        )
        entries = module_of(tmp_path / "kept_entries.py", ENTRY)
        twice = compiled_entry(entries.twice, (rules, entries))
        answers.append((twice(1), sum(twice.stats.cache_hits.values())))
    assert answers == [(4, 0), (4, 1), (12, 0)]


def test_where_nothing_can_be_kept_it_is_compiled_all_the_same() -> None:
    """Code that stands in no file has no place beside it, like a file in a read-only folder."""
    namespace: dict[str, Any] = {}
    exec("def following(number):\n    return number + 1\n", namespace)
    assert compiled_entry(namespace["following"], ())(1) == 2
