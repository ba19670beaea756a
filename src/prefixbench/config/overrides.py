"""Settings from the command line, and the short forms of RFC 2.1."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from prefixbench.config.problems import Path, dotted, shown
from prefixbench.config.target import TargetSemantics
from prefixbench.config.yaml_text import parse_yaml
from prefixbench.core.errors import ConfigProblem

Setting = tuple[Path, Any]

#: Short form -> the place of its value.
SHORT_FORMS: Mapping[str, tuple[str, str]] = {
    "target_prefix_ratio": ("target", "hit_ratio"),
    "prefix_mode": ("prefix", "mode"),
}

#: Short form -> what it says beside its value.
_IMPLIED: Mapping[str, tuple[Setting, ...]] = {
    "target_prefix_ratio": ((("target", "semantics"), TargetSemantics.STATIC_PREFIX_RATIO.value),),
    "prefix_mode": (),
}


def expanded(given: Mapping[str, Any], problems: list[ConfigProblem]) -> dict[str, Any]:
    """The long form of a mapping; a value given in both forms is a problem."""
    long = {key: value for key, value in given.items() if key not in SHORT_FORMS}
    for short, place in SHORT_FORMS.items():
        if short not in given:
            continue
        section = long.get(place[0])
        if isinstance(section, Mapping) and place[1] in section:
            problems.append(
                ConfigProblem(
                    path=short,
                    message=f"is given together with {dotted(place)}",
                    given=shown(given[short]),
                    allowed="one of the two",
                )
            )
            continue
        for path, value in _long_settings(short, given[short]):
            put(long, path, value, problems)
    return long


def _long_settings(short: str, value: Any) -> Iterator[Setting]:
    yield SHORT_FORMS[short], value
    yield from _IMPLIED[short]


def parse_overrides(overrides: Iterable[str], problems: list[ConfigProblem]) -> list[Setting]:
    """`KEY=VALUE` texts as settings; VALUE is read as YAML."""
    settings: list[Setting] = []
    for text in overrides:
        key, equals, value = text.partition("=")
        path = tuple(step for step in key.strip().split("."))
        if not equals or not all(path):
            problems.append(
                ConfigProblem(
                    path="--set",
                    message="cannot be read",
                    given=shown(text),
                    allowed="KEY=VALUE, for example target.hit_ratio=0.6 or prefix.groups.0.id=a",
                )
            )
            continue
        read = parse_yaml(value, problems, path=path)
        settings.extend(_long_settings(key, read) if key in SHORT_FORMS else [(path, read)])
    return settings


def override(key: str, value: Any) -> str:
    """A `KEY=VALUE` that `parse_overrides` reads as this value, whatever its texts look like.

    >>> override("prefix.groups", [{"id": "true"}])
    'prefix.groups=[{"id": "true"}]'
    """
    return f"{key}={json.dumps(value, ensure_ascii=False)}"


def as_options(overrides: Iterable[str]) -> str:
    """`KEY=VALUE` texts as a shell takes them.

    >>> as_options(["request_count=9", "input_length.values=[8, 9]"])
    "--set request_count=9 --set 'input_length.values=[8, 9]'"
    """
    return " ".join(f"--set {shlex.quote(text)}" for text in overrides)


def put(given: dict[str, Any], path: Path, value: Any, problems: list[ConfigProblem]) -> None:
    """Set one value below nested mappings and lists, making mappings on the way."""
    here: Any = given
    for depth, step in enumerate(path):
        last = depth == len(path) - 1
        if isinstance(here, list):
            index = _index(step, here)
            if index is None:
                problems.append(_no_such_entry(path[: depth + 1], here))
                return
            step = index
        elif not isinstance(here, dict):
            problems.append(_not_a_mapping(path[:depth], path, here))
            return
        if last:
            here[step] = value
        else:
            if isinstance(here, dict) and here.get(step) is None:
                here[step] = {}
            here = here[step]


def _index(step: str | int, entries: list[Any]) -> int | None:
    text = str(step)
    return int(text) if text.isdecimal() and int(text) < len(entries) else None


def _no_such_entry(path: Path, entries: list[Any]) -> ConfigProblem:
    return ConfigProblem(
        path=dotted(path),
        message="is no entry of the list",
        given=str(path[-1]),
        allowed=f"0..{len(entries) - 1}" if entries else "the list is empty: set it as a whole",
    )


def _not_a_mapping(place: Path, path: Path, value: Any) -> ConfigProblem:
    return ConfigProblem(
        path=dotted(path),
        message=f"cannot be set: {dotted(place)} holds a plain value",
        given=shown(value),
        allowed=f"set {dotted(place)} as a whole",
    )
