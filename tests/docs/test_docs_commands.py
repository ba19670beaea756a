"""What a document tells its reader to do is done here, and must print what the document shows.

`PREFIXBENCH_RENEW_DOCS=1 python -m pytest tests/docs` writes what was printed into the documents.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest

from doc_pages import LANGUAGES, Block, blocks_of, document_paths, name_of
from doc_session import Session, reader_environment
from shared_folder import REPOSITORY

RENEW = os.environ.get("PREFIXBENCH_RENEW_DOCS") == "1"

#: What cannot be run here, by document; a new entry needs hardware that a laptop has not.
NOT_RUN = {
    "docs/tutorial/first-benchmark.md": ["needs a GPU and vLLM"] * 3,
    "docs/how-to/dp-ranks.md": ["needs GPUs and vLLM"],
}


_BUSY = "note The client was "


def _with_commands() -> list[Path]:
    return [
        document
        for document in document_paths()
        if any(block.language in ("console", "python") for block in blocks_of(document))
    ]


@dataclass(slots=True)
class Step:
    """One command of a `console` block and the output that the document shows."""

    command: str
    shown: list[str]

    @property
    def is_background(self) -> bool:
        return self.command.endswith("&")

    def __str__(self) -> str:
        return "\n".join([f"$ {self.command}", *self.shown]) + "\n"


def steps_of(block: Block) -> list[Step]:
    """A command goes on behind a backslash, and up to the end of its here-document."""
    steps: list[Step] = []
    for line in block.text.splitlines():
        if steps and _is_unfinished(steps[-1]):
            steps[-1].command += "\n" + line
        elif line.startswith("$ "):
            steps.append(Step(line.removeprefix("$ "), []))
        else:
            steps[-1].shown.append(line)
    return steps


def _is_unfinished(step: Step) -> bool:
    here = re.search(r"<<'(\w+)'", step.command)
    last = step.command.rpartition("\n")[2]
    return last.endswith("\\") or (here is not None and last != here.group(1))


def without_noise(printed: list[str]) -> list[str]:
    """Output without the note that this machine was busy, which no document shows."""
    return [line for line in printed if not line.startswith(_BUSY)]


def is_as_shown(shown: list[str], printed: list[str]) -> bool:
    """Whether output is what a document shows; `...` stands for anything, also for lines."""
    wanted = "\n".join(shown).strip("\n")
    pattern = re.escape(wanted).replace(re.escape("..."), ".*")
    return re.fullmatch(pattern, "\n".join(printed), re.DOTALL) is not None


@pytest.mark.parametrize("document", _with_commands(), ids=name_of)
def test_commands_print_what_the_document_shows(document: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    folder.mkdir()
    (folder / "examples").symlink_to(REPOSITORY / "examples")
    printed: list[tuple[Block, str]] = []
    with Session(folder) as session:
        for block, follower in _pairs(document):
            text = _performed(block, follower, folder, session)
            if text is not None:
                printed.append((follower or block, text))
    if RENEW:
        _write(document, printed)


def _write(document: Path, printed: list[tuple[Block, str]]) -> None:
    content = document.read_text("utf-8")
    for block, text in reversed(printed):
        content = content[: block.start] + text + content[block.end :]
    document.write_text(content, "utf-8")


def _pairs(document: Path) -> Iterator[tuple[Block, Block | None]]:
    """Each block that is done, with the `text` block that shows a program's output."""
    for block, follower in pairwise([*blocks_of(document), None]):
        if block is None or block.not_run:
            continue
        is_output = (
            follower is not None
            and follower.is_adjoining
            and (block.language, follower.language) == ("python", "text")
        )
        yield block, follower if is_output else None


def _performed(block: Block, follower: Block | None, folder: Path, session: Session) -> str | None:
    """Do what a block says; return the text that shows what was printed, if it is shown."""
    if block.file_name:
        (folder / block.file_name).write_text(block.text, "utf-8")
    if block.language == "console":
        return _run_console(block, session)
    if block.language == "python":
        return _run_python(session.with_free_ports(block.text), follower, folder)
    return None


def _run_console(block: Block, session: Session) -> str:
    steps = steps_of(block)
    for step, following in pairwise([*steps, None]):
        assert step is not None
        background_lines = len(step.shown) if step.is_background else 0
        lines, code = session.run(step.command, background_lines=background_lines)
        printed = without_noise(lines)
        is_judged_next = following is not None and following.command == "echo $?"
        assert code == 0 or is_judged_next, (step.command, code, printed)
        if RENEW and step.shown and not is_as_shown(step.shown, printed):
            step.shown = printed
        if step.shown:
            assert is_as_shown(step.shown, printed), _difference(step, printed)
    return "".join(str(step) for step in steps)


def _run_python(program: str, follower: Block | None, folder: Path) -> str | None:
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env=reader_environment(folder),
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if follower is None:
        return None
    printed = [line.rstrip() for line in done.stdout.strip("\n").splitlines()]
    shown = follower.text.splitlines()
    if is_as_shown(shown, printed):
        return follower.text
    assert RENEW, _difference(Step("python", shown), printed)
    return "\n".join(printed) + "\n"


def _difference(step: Step, printed: list[str]) -> str:
    return "\n".join([str(step), "-- but printed is --", *printed])


def test_commands_that_are_not_run_need_hardware() -> None:
    found: dict[str, list[str]] = {}
    for document in document_paths():
        for block in blocks_of(document):
            if block.not_run:
                found.setdefault(name_of(document), []).append(block.not_run)
    print(f"{sum(map(len, found.values()))} blocks are not run: {found}")  # noqa: T201
    assert found == NOT_RUN


def test_blocks_have_a_language_that_is_checked() -> None:
    others = {
        (name_of(document), block.language)
        for document in document_paths()
        for block in blocks_of(document)
        if block.language not in LANGUAGES
    }
    assert not others


def test_json_blocks_parse() -> None:
    for document in document_paths():
        for block in blocks_of(document):
            if block.language == "json":
                json.loads(block.text)


def test_output_is_compared_word_for_word() -> None:
    assert is_as_shown(["a  b", "..."], ["a  b", "more", "lines"])
    assert not is_as_shown(["60.00 %"], ["59.99 %"])
    assert not is_as_shown(["one"], ["one", "two"])
