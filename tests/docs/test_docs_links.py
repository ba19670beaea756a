"""Links between documents lead somewhere, and every document can be found."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from doc_pages import document_paths, name_of
from shared_folder import REPOSITORY

_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def _links(document: Path) -> list[str]:
    return _LINK.findall(_FENCED.sub("", document.read_text("utf-8")))


def _anchors(document: Path) -> set[str]:
    """Names of headings as they are made for the web: lower case, words joined by hyphens."""
    headings = _HEADING.findall(_FENCED.sub("", document.read_text("utf-8")))
    return {re.sub(r"[^\w\- ]", "", text.lower()).strip().replace(" ", "-") for text in headings}


@pytest.mark.parametrize("document", document_paths(), ids=name_of)
def test_links_resolve(document: Path) -> None:
    broken = []
    for link in _links(document):
        if link.startswith(("https://", "http://")):
            continue
        place, _, anchor = link.partition("#")
        target = (document.parent / place).resolve() if place else document
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


def test_every_document_is_linked_from_the_index() -> None:
    index = REPOSITORY / "docs" / "README.md"
    linked = {(index.parent / link.partition("#")[0]).resolve() for link in _links(index)}
    missing = [
        name_of(document)
        for document in document_paths()
        if document.is_relative_to(index.parent) and document not in linked | {index}
    ]
    assert not missing


def test_pictures_are_small() -> None:
    pictures = list((REPOSITORY / "docs" / "images").iterdir())
    assert pictures
    assert all(picture.stat().st_size < 150_000 for picture in pictures)
