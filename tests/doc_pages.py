"""The documents for people, and the fenced blocks in them.

The convention (CONTRIBUTING.md repeats it for authors):

- `console`: lines that start with `$ ` are commands, run in order in one folder for each document;
  the lines below a command are its output, compared word for word (`...` stands for anything).
- `yaml`: loads as a configuration, or as a part of one. With `# NAME.yaml` as its first line it is
  written under that name into the document's folder.
- `python`: runs in the same folder; a `text` block right behind it is its output.
- `json` parses. `text` is anything else: layouts, formulas, pages of a terminal.
- `<!-- not run: needs … -->` above a block keeps it from being run, for want of hardware alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from shared_folder import REPOSITORY

LANGUAGES = frozenset({"console", "yaml", "python", "json", "text"})

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NOT_RUN = re.compile(r"<!-- not run: (.+?) -->\n+\Z")
_FILE_NAME = re.compile(r"# ([\w.-]+\.(?:yaml|py))\n")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block. `start` and `end` bound its text in the document, fences left out.

    `is_adjoining`: nothing stands between the block before and this one.
    """

    language: str
    text: str
    start: int
    end: int
    is_adjoining: bool
    not_run: str | None

    @property
    def file_name(self) -> str | None:
        """The name that its first line gives it."""
        named = _FILE_NAME.match(self.text)
        return named.group(1) if named else None


def document_paths() -> list[Path]:
    """Every Markdown document of the repository that is for people."""
    top = [REPOSITORY / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")]
    return [*top, *sorted((REPOSITORY / "docs").rglob("*.md"))]


def name_of(document: Path) -> str:
    return document.relative_to(REPOSITORY).as_posix()


def blocks_of(document: Path) -> Iterator[Block]:
    """The document's blocks in their order."""
    content = document.read_text("utf-8")
    last_end = 0
    for fence in _FENCE.finditer(content):
        between = content[last_end : fence.start()]
        marker = _NOT_RUN.search(between)
        yield Block(
            language=fence.group(1),
            text=fence.group(2),
            start=fence.start(2),
            end=fence.end(2),
            is_adjoining=not between.strip(),
            not_run=marker.group(1) if marker else None,
        )
        last_end = fence.end()
