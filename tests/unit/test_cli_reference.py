"""The reference pages say what the code says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from prefixbench.cli.main import VERBS, main
from prefixbench.cli.reference import cli_page, write_pages
from prefixbench.cli.reference_settings import configuration_page
from prefixbench.config.base import Section
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from shared_folder import REPOSITORY

FOLDER = REPOSITORY / "docs" / "reference"


@pytest.mark.parametrize("name", ["cli.md", "configuration.md"])
def test_the_committed_pages_are_up_to_date(name: str, tmp_path: Path) -> None:
    write_pages(tmp_path)
    committed, made = (FOLDER / name).read_text("utf-8"), (tmp_path / name).read_text("utf-8")
    assert committed == made, "run `python -m prefixbench.cli.reference`"


def verbs(command: click.Command, name: str) -> Iterator[tuple[str, click.Command]]:
    if isinstance(command, click.Group):
        for below, verb in command.commands.items():
            yield from verbs(verb, f"{name} {below}")
    else:
        yield name, command


def test_every_verb_and_option_occurs() -> None:
    page = cli_page()
    for word in VERBS:
        found = main.get_command(click.Context(main), word)
        assert found is not None
        for name, command in verbs(found, word):
            assert f"## prefixbench {name}\n" in page
            section = page.partition(f"## prefixbench {name}\n")[2].partition("\n## ")[0]
            for option in command.params:
                assert option.human_readable_name in section or option.opts[-1] in section


def sections(kind: type[Section]) -> Iterator[type[Section]]:
    for subclass in kind.__subclasses__():
        yield subclass
        yield from sections(subclass)


def test_every_setting_occurs_with_a_description() -> None:
    page = configuration_page()
    own = [kind for kind in sections(Section) if kind.__module__.startswith("prefixbench.config")]
    assert PrefixCacheDatasetConfig in own
    for kind in own:
        for name, field in kind.model_fields.items():
            assert field.description, f"{kind.__name__}.{name}"
            assert f"| `{name}` |" in page
            assert field.description.replace("|", "\\|") in page


def test_every_exit_code_occurs() -> None:
    codes = cli_page().partition("## Exit codes")[2]
    for code in (0, 1, 2, 3, 4, 5, 6, 130):
        assert f"| {code} | " in codes
