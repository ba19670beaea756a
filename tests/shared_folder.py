"""Where files lie that tests may use and that are not part of the repository."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]


def shared_folder() -> Path:
    """`../shared` beside the repository, or what PREFIXBENCH_SHARED names; it may be absent."""
    return Path(os.environ.get("PREFIXBENCH_SHARED", REPOSITORY.parent / "shared"))
