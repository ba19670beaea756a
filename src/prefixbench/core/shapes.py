"""What a JSON document must look like before anything is made of it.

A shape is a kind of value, a list of one shape, or keys with their shapes. Keys beyond a shape's
are nobody's business; one that a shape has may be null or missing, unless it is `Needed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value: what it is called, and whether a value is one."""

    name: str
    fits: Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Needed:
    """A shape that is neither missing nor null."""

    shape: Shape


#: A list holds one shape, its elements'.
Shape = Kind | Needed | list["Shape"] | Mapping[str, "Shape"]


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


TEXT = Kind("text", lambda value: isinstance(value, str))
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
COUNT = Kind("a count", lambda value: _is_whole(value) and value >= 0)
POSITIVE = Kind("a positive count", lambda value: _is_whole(value) and value > 0)
INTEGER = Kind("a whole number", _is_whole)
NUMBER = Kind("a number", lambda value: _is_whole(value) or isinstance(value, float))
OBJECT = Kind("an object", lambda value: isinstance(value, Mapping))


def one_of(words: type[Any]) -> Kind:
    """A word of an enumeration."""
    known = frozenset(word.value for word in words)
    return Kind(f"one of {', '.join(sorted(known))}", lambda value: value in known)


def misfit(value: Any, shape: Shape, *, complete: bool = False, path: str = "") -> str | None:
    """The first thing about a value that does not fit, as a sentence; None if all fits.

    `complete`: every key of the shape must be there, if only as null.

    >>> misfit({"rows": [{"hits": 1}, {"hits": "x"}]}, {"rows": [{"hits": COUNT}]})
    'rows[1].hits is not a count'
    """
    if isinstance(shape, Needed):
        if value is None:
            return f"{path} is missing"
        return misfit(value, shape.shape, complete=complete, path=path)
    if value is None:
        return None
    if isinstance(shape, Kind):
        return None if _fits(value, shape) else f"{path} is not {shape.name}"
    if isinstance(shape, list):
        return _misfit_in_list(value, shape[0], complete, path)
    return _misfit_in_object(value, shape, complete, path)


def _fits(value: Any, kind: Kind) -> bool:
    try:
        return kind.fits(value)
    except TypeError:  # lists and objects are members of no set
        return False


def _misfit_in_list(value: Any, shape: Shape, complete: bool, path: str) -> str | None:
    if not isinstance(value, list):
        return f"{path} is not a list"
    for place, part in enumerate(value):
        here = f"{path}[{place}]"
        found = f"{here} is null" if part is None else None
        found = found or misfit(part, shape, complete=complete, path=here)
        if found is not None:
            return found
    return None


def _misfit_in_object(
    value: Any, shape: Mapping[str, Shape], complete: bool, path: str
) -> str | None:
    if not isinstance(value, Mapping):
        return f"{path or 'it'} is not an object"
    for key, part in shape.items():
        here = f"{path}.{key}" if path else key
        if complete and key not in value:
            return f"{here} is missing"
        found = misfit(value.get(key), part, complete=complete, path=here)
        if found is not None:
            return found
    return None
