"""The page of settings, made of the configuration's own classes."""

from __future__ import annotations

import types
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic.fields import FieldInfo

from prefixbench.cli.markdown import MADE_BY, table
from prefixbench.config.base import Section
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.keys import section_in
from prefixbench.config.lengths import LengthDistributionConfig, LengthMode
from prefixbench.config.load import ROOT_KEY
from prefixbench.config.overrides import SHORT_FORMS
from prefixbench.config.problems import dotted, shown
from prefixbench.config.story import Story


def configuration_page() -> str:
    """All settings, section by section."""
    lines = [
        "# Configuration",
        "",
        MADE_BY,
        "",
        f"A YAML file. The root key `{ROOT_KEY}` may be left out. Every key can be changed on the"
        " command line: `--set target.hit_ratio=0.6`, `--set prefix.groups.0.request_weight=2`."
        " A relative path in a file counts from the file's folder. Unknown keys are errors.",
        "",
        "Short forms: "
        + ", ".join(f"`{short}` for `{dotted(place)}`" for short, place in SHORT_FORMS.items())
        + ", a bare number of tokens for a fixed length.",
        "",
        *_section_lines("Top level", PrefixCacheDatasetConfig),
        *_section_lines("A story, the file of `simulate --story`", Story),
    ]
    return "\n".join(lines)


def _section_lines(title: str, section: type[Section], path: str = "") -> Iterator[str]:
    yield from (f"## {title}", "", _first_paragraph(section), "")
    fields = section.model_fields.items()
    rows = (
        (f"`{name}`", _values(_annotation(field)), _default(field), field.description or "")
        for name, field in fields
    )
    yield from table(("key", "values", "default", ""), rows)
    for name, field in fields:
        yield from _inner_lines(f"{path}{name}", _annotation(field))


def _inner_lines(path: str, annotation: Any) -> Iterator[str]:
    section = section_in(annotation)
    if section is None or path == "output_length":
        return
    if section is LengthDistributionConfig:
        for mode in LengthMode:
            kind = LengthDistributionConfig.model_for({"mode": mode})
            yield from _section_lines(f"`{path}`, mode `{mode}`", kind, f"{path}.")
        return
    entries = "[]" if get_origin(annotation) is tuple else ""
    yield from _section_lines(f"`{path}{entries}`", section, f"{path}{entries}.")


def _annotation(field: FieldInfo) -> Any:
    """The annotation with the rules that pydantic has taken out of it."""
    annotation: Any = field.annotation
    for rule in field.metadata:
        annotation = Annotated[annotation, rule]
    return annotation


def _first_paragraph(section: type[Section]) -> str:
    return " ".join((section.__doc__ or "").partition("\n\n")[0].split())


def _values(annotation: Any) -> str:
    """What may stand there, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return _values(next(one for one in arguments if one is not types.NoneType))
    if origin is Annotated:
        return _bounded(_values(arguments[0]), arguments[1:])
    if origin is Literal:
        return _words(arguments)
    if origin is tuple:
        return _entries(arguments)
    if origin is dict:
        return f"{_values(arguments[0])} to {_values(arguments[1])}"
    return _plain(annotation)


def _plain(kind: Any) -> str:
    if isinstance(kind, type) and issubclass(kind, StrEnum):
        return _words(kind)
    if isinstance(kind, type) and issubclass(kind, Section):
        return "a section"
    return {int: "whole number", float: "number", bool: "true, false", str: "text"}[kind]


def _words(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


def _entries(arguments: tuple[Any, ...]) -> str:
    if arguments[-1] is Ellipsis:
        return f"list: {_values(arguments[0])}"
    return f"[{', '.join(_values(one) for one in arguments)}]"


def _bounded(values: str, rules: tuple[Any, ...]) -> str:
    """The values with what pydantic's rules say about their range."""
    for rule in rules:
        for field in getattr(rule, "metadata", [rule]):
            for name, sign in (("gt", ">"), ("ge", "≥")):
                bound = getattr(field, name, None)
                if bound is not None:
                    values = f"{values} {sign} {bound}"
    return values


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "required"
    default = field.get_default(call_default_factory=True)
    if default is None or default in ((), {}) or isinstance(default, Section):
        return ""
    return f"`{default}`" if isinstance(default, StrEnum) else f"`{shown(default)}`"
