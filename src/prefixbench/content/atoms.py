"""Atoms and the boundaries between them: where a text may be cut without changing any token.

A *word boundary* stands after a non-space and before one space followed by a letter, digit or `$`.
A *line boundary* stands after a newline and before a non-space other than `/`. No tokenizer whose
vocabulary passes the scan of `certificate` joins anything across such a boundary, so the ids of a
text are the ids of its atoms, one after the other.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from prefixbench.core.errors import ConfigError, ConfigProblem, ErrorContext, Stage

#: Raised whenever atoms are cut differently.
ATOM_RULE_VERSION = 1

_WORD_BOUNDARY = re.compile(r"(?<=\S)(?= [A-Za-z0-9$])")
_ANY_BOUNDARY = re.compile(rf"{_WORD_BOUNDARY.pattern}|(?<=\n)(?=[^\s/])")
_WORD_START = re.compile(r"[A-Za-z0-9$]")
_LINE_START = re.compile(r"[^\s/]")


class Boundary(StrEnum):
    """The two classes of safe boundaries."""

    WORD = "word"
    LINE = "line"


@dataclass(frozen=True, slots=True)
class Separator:
    """What stands between two samples: `tail` ends one sample, `lead` begins the next."""

    tail: str
    lead: str
    boundary: Boundary


def parse_separator(text: str) -> Separator:
    """Split a separator at its safe boundary; ConfigError if it has none at its end.

    >>> parse_separator(" | ")
    Separator(tail=' |', lead=' ', boundary=<Boundary.WORD: 'word'>)
    """
    if text.endswith("\n"):
        return Separator(text, "", Boundary.LINE)
    if text.endswith(" ") and not text[:-1][-1:].isspace():
        return Separator(text[:-1], " ", Boundary.WORD)
    message = "a separator ends with a newline, or with one space that follows no other space"
    raise ConfigError(
        message,
        context=ErrorContext(stage=Stage.CONTENT, field="suffix.separator"),
        hint='for instance "\\n\\n", " " or " | "',
        problems=[ConfigProblem(path="suffix.separator", message=message, given=repr(text))],
    )


def atoms_of(text: str, separator: Separator) -> list[str]:
    """The atoms of one sample, its separator included; empty if it has no safe start.

    >>> atoms_of("Ann has 2/3 - 1.", parse_separator(" "))
    [' Ann', ' has', ' 2/3 -', ' 1.']
    """
    text = text.strip()
    if separator.boundary is Boundary.LINE:
        whole = text + separator.tail
        return _ANY_BOUNDARY.split(whole) if _LINE_START.match(text) else []
    whole = f" {text}{separator.tail}"
    atoms = _WORD_BOUNDARY.split(whole)
    return atoms if _WORD_START.match(text) else atoms[1:]


def starts_line(atom: str) -> bool:
    """Whether the boundary before this atom is a line boundary."""
    return not atom.startswith(" ")
