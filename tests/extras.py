"""Packages of the extras: tests that need one skip without it, or fail where all must be there."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

import pytest


def needs(package: str) -> Any:
    """The package; skips where it is absent, unless REQUIRE_EXTRAS=1 (`make test-extras`)."""
    if os.environ.get("REQUIRE_EXTRAS") == "1":
        return import_module(package)
    return pytest.importorskip(package, reason=f"{package} is not installed")
