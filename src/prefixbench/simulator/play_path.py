"""The two ways of playing a script, by name."""

from __future__ import annotations

from enum import StrEnum


class PlayPath(StrEnum):
    """How a script is to be played, or was: `auto` is a wish alone."""

    AUTO = "auto"
    PURE = "pure"
    COMPILED = "compiled"
