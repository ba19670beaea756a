"""Keys of a raw configuration: unknown ones taken out, empty ones dropped, before validation."""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Annotated, Any, Union, get_args, get_origin

from prefixbench.config.base import Section
from prefixbench.config.lengths import LengthDistributionConfig
from prefixbench.config.problems import Path, dotted, listed, nearest_word, shown
from prefixbench.core.errors import ConfigProblem


def without_empty(given: Any) -> Any:
    """The same mapping without keys that have no value: `suffix:` alone says nothing."""
    if isinstance(given, Mapping):
        return {key: without_empty(value) for key, value in given.items() if value is not None}
    if isinstance(given, list):
        return [without_empty(item) for item in given]
    return given


def take_unknown_keys(
    given: dict[Any, Any], section: type[Section], path: Path = ()
) -> list[ConfigProblem]:
    """Remove each key that no section has; a problem for each, with the nearest valid key."""
    model = section.model_for(given)
    if model is LengthDistributionConfig:
        return []  # without a valid mode nobody knows the keys
    fields = model.model_fields
    problems = []
    for key in [key for key in given if key not in fields]:
        problem = ConfigProblem(
            path=dotted((*path, str(key))),
            message="is an unknown key",
            given=shown(given.pop(key)),
            allowed=listed(list(fields)),
            nearest=nearest_word(str(key), fields),
        )
        problems.append(problem)
    for key, value in given.items():
        inner = section_in(fields[key].annotation)
        if inner is not None:
            problems += _taken_below(value, inner, (*path, key))
    return problems


def _taken_below(value: Any, section: type[Section], path: Path) -> list[ConfigProblem]:
    places = enumerate(value) if isinstance(value, list) else [(None, value)]
    return [
        problem
        for place, item in places
        if isinstance(item, dict)
        for problem in take_unknown_keys(item, section, path if place is None else (*path, place))
    ]


def section_in(annotation: Any) -> type[Section] | None:
    """The section that a field holds, be it one or a list of them."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    if get_origin(annotation) in (tuple, Annotated, Union, types.UnionType):
        found = (section_in(argument) for argument in get_args(annotation))
        return next((section for section in found if section is not None), None)
    return None
