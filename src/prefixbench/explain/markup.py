"""HTML that cannot be written unescaped: every child that is not `Html` already is text."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TypeAlias

_VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is HTML: made by `element`, or a file of this package."""

    __slots__ = ()


Child: TypeAlias = str | Iterable[str | None] | None


def element(tag: str, *children: Child, **attributes: str | bool | None) -> Html:
    """One element. A trailing or inner underscore in an attribute's name reads as a dash, but
    `class_` as `class`; None and False leave an attribute out, True writes it bare.

    >>> element("p", "a < b", class_="note", aria_label="x")
    '<p class="note" aria-label="x">a &lt; b</p>'
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Html(f"<{tag}{written}>")
    return Html(f"<{tag}{written}>{join(*children)}</{tag}>")


def join(*children: Child) -> Html:
    """Children one after the other, those that are plain text escaped.

    >>> join("<", Html("<br>"), None, ["a", "&"])
    '&lt;<br>a&amp;'
    """
    return Html("".join(_child(child) for child in children))


def _child(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    if isinstance(child, str):
        return escape(child)
    return "".join(_child(part) for part in child)


def _attribute(name: str, value: str | bool | None) -> str:
    if value is None or value is False:
        return ""
    spelled = name.rstrip("_").replace("_", "-")
    return f" {spelled}" if value is True else f' {spelled}="{escape(value)}"'
