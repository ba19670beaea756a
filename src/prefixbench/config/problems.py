"""From what validation found to problems a person can act on."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from prefixbench.config.base import BROKEN_RULES
from prefixbench.core.errors import ConfigError, ConfigProblem, ErrorContext, Stage

_LONGEST_GIVEN = 60
_MOST_WORDS = 12

Path = tuple[str | int, ...]


def nearest_word(word: str, known: Iterable[str]) -> str | None:
    """The known word that looks most like a misspelled one, if any does."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return close[0] if close else None


def dotted(path: Sequence[str | int]) -> str:
    """A path as the user writes it for `--set`: `prefix.groups.0.id`."""
    return ".".join(str(step) for step in path)


def shown(value: Any) -> str:
    """A given value in one short piece."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _LONGEST_GIVEN else f"{text[:_LONGEST_GIVEN]}…"


def listed(words: Sequence[str]) -> str:
    """Words to choose from, cut where nobody would read on."""
    more = f" / … ({len(words)} in all)" if len(words) > _MOST_WORDS else ""
    return " / ".join(words[:_MOST_WORDS]) + more


def problems_of(error: ValidationError, prefix: Path = ()) -> Iterator[ConfigProblem]:
    """Every problem in a validation error, with paths that begin at `prefix`."""
    for detail in error.errors(include_url=False):
        yield from _problems_of_detail(detail, (*prefix, *detail["loc"]))


def _problems_of_detail(detail: ErrorDetails, path: Path) -> Iterator[ConfigProblem]:
    given = shown(detail["input"])
    if detail["type"] == BROKEN_RULES:
        for problem in detail["ctx"]["problems"]:
            yield _placed(problem, path, given)
    elif detail["type"] == "missing":
        yield ConfigProblem(path=dotted(path), message="is required")
    elif detail["type"] in _WORD_ERRORS:
        words = re.findall("'([^']+)'", detail["ctx"]["expected"])
        yield ConfigProblem(
            path=dotted(path),
            message="is not one of the allowed words",
            given=given,
            allowed=listed(words),
            nearest=nearest_word(str(detail["input"]), words),
        )
    elif detail["type"] != "extra_forbidden":  # unknown keys are found before validation
        yield ConfigProblem(
            path=dotted(path), message="is no valid value", given=given, allowed=_allowed(detail)
        )


def _placed(problem: ConfigProblem, path: Path, given: str) -> ConfigProblem:
    """A rule's problem with its full path; a rule about the value itself shows that value."""
    about_itself = not problem.path
    return replace(
        problem,
        path=dotted((*path, problem.path) if problem.path else path),
        given=given if about_itself and problem.given is None else problem.given,
    )


_WORD_ERRORS = ("enum", "literal_error")

_ALLOWED: dict[str, str] = {
    "int_type": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text (in quotes where it looks like something else)",
    "tuple_type": "a list",
    "dict_type": "a mapping of keys and values",
    "model_type": "a mapping of keys and values",
    "finite_number": "a finite number",
    "greater_than": "above {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than_equal": "at most {le}",
    "string_too_short": "text that is not empty",
    "too_long": "{max_length} entries",
}


def _allowed(detail: ErrorDetails) -> str:
    template = _ALLOWED.get(detail["type"], detail["msg"])
    return template.format_map(detail.get("ctx", {})) if detail["type"] in _ALLOWED else template


def config_error(
    problems: Sequence[ConfigProblem], *, dataset_id: str | None = None
) -> ConfigError:
    """One error that says everything that is wrong, a line a problem."""
    lines = [problem_line(problem) for problem in problems]
    message = lines[0] if len(lines) == 1 else _several(lines)
    return ConfigError(
        message,
        context=ErrorContext(
            stage=Stage.CONFIG, dataset_id=dataset_id, field=problems[0].path or None
        ),
        hint=_hint(problems),
        problems=problems,
    )


def _several(lines: Sequence[str]) -> str:
    return "\n  - ".join([f"{len(lines)} problems in the configuration:", *lines])


def problem_line(problem: ConfigProblem) -> str:
    """`target.hit_ratio: must lie between 0 and 1 (given 1.5; allowed: 0..1, both included)`."""
    details = [
        text
        for text in (
            problem.given and f"given {problem.given}",
            problem.allowed and f"allowed: {problem.allowed}",
            problem.nearest and f"did you mean {problem.nearest}?",
        )
        if text
    ]
    where = f"{problem.path}: " if problem.path else ""
    return f"{where}{problem.message}" + (f" ({'; '.join(details)})" if details else "")


def _hint(problems: Sequence[ConfigProblem]) -> str:
    nearest = [f"{problem.path} -> {problem.nearest}" for problem in problems if problem.nearest]
    if nearest:
        return f"did you mean {', '.join(nearest)}?"
    allowed = next((problem.allowed for problem in problems if problem.allowed), None)
    if len(problems) == 1 and allowed:
        return f"use {allowed}"
    return "correct the lines above; docs/reference/configuration.md lists every key"
