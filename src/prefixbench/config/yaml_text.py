"""YAML as people mean it: the core schema of YAML 1.2, and no key twice.

PyYAML follows YAML 1.1, where `no` is false, `1:30` is 90, `1e-3` is text and a repeated key
silently wins. Here only `true` and `false` are booleans, numbers are decimal, hexadecimal or
octal (`0o17`) with or without an exponent, dates are text, and a repeated key is a problem.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import yaml

from prefixbench.config.problems import Path, dotted
from prefixbench.core.errors import ConfigProblem

try:
    from yaml import CSafeLoader as _SafeLoader  # long lists of lengths: ten times faster
except ImportError:  # PyYAML built without libyaml
    from yaml import SafeLoader as _SafeLoader  # type: ignore[assignment]

_TAG = "tag:yaml.org,2002:"
_FLOAT = r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"

#: Tag, pattern and possible first characters (yaml.org/spec/1.2.2, section 10.3.2).
_CORE_SCHEMA = (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+", list("-+0123456789")),
    ("float", _FLOAT, list("-+0123456789.")),
    ("merge", r"<<", ["<"]),
)


class _CoreLoader(_SafeLoader):
    """A safe loader with the tags of YAML 1.2's core schema, and merge keys."""

    yaml_implicit_resolvers: dict[Any, Any] = {}  # noqa: RUF012 - PyYAML's own hook

    def whole_number(self, node: yaml.ScalarNode) -> int:
        digits = str(self.construct_scalar(node))
        return int(digits, 0 if digits[:2] in ("0x", "0o") else 10)


for _name, _pattern, _first in _CORE_SCHEMA:
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(f"^(?:{_pattern})$"), _first)
_CoreLoader.add_constructor(_TAG + "int", _CoreLoader.whole_number)


def parse_yaml(text: str, problems: list[ConfigProblem], *, path: Path = ()) -> Any:
    """The one value in a YAML text; what is wrong with the text is added to `problems`."""
    try:
        loader = _CoreLoader(text)
        try:
            node = loader.get_single_node()
            if node is None:
                return None
            _refuse_loops(node, frozenset(), set())
            problems.extend(_repeated_keys(node, path, set()))
            return loader.construct_document(node)
        finally:
            loader.dispose()
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        problems.append(_syntax_problem(error, path))
        return None


def _refuse_loops(node: yaml.Node, above: frozenset[int], done: set[int]) -> None:
    """Raise where an alias stands inside its own anchor: such a value has no end."""
    if id(node) in above:
        raise yaml.MarkedYAMLError(
            problem="an alias stands inside its own anchor", problem_mark=node.start_mark
        )
    if id(node) in done or isinstance(node, yaml.ScalarNode):
        return
    for child in _children(node):
        _refuse_loops(child, above | {id(node)}, done)
    done.add(id(node))


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    for child in node.value:
        yield from child if isinstance(child, tuple) else (child,)


def _repeated_keys(node: yaml.Node, path: Path, done: set[int]) -> Iterator[ConfigProblem]:
    if id(node) in done:  # an anchored value is looked at once
        return
    done.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _repeated_keys(item, (*path, index), done)
    elif isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key_node, value_node in node.value:
            key, line = str(key_node.value), key_node.start_mark.line + 1
            if key in lines and key != "<<":
                yield ConfigProblem(
                    path=dotted((*path, key)),
                    message=f"is given twice, in lines {lines[key]} and {line}",
                    allowed="each key once",
                )
            lines.setdefault(key, line)
            yield from _repeated_keys(value_node, (*path, key), done)


def _syntax_problem(error: Exception, path: Path) -> ConfigProblem:
    mark = getattr(error, "problem_mark", None)
    where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
    said = getattr(error, "problem", None) or type(error).__name__
    return ConfigProblem(
        path=dotted(path), message=f"is no valid YAML{where}: {said}", allowed="YAML 1.2"
    )
