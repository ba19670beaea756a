"""Log lines as events with keys: `plan.done groups=3 residual_blocks=0`.

No prompt text, key, header value or full address may be handed to `event`.
"""

from __future__ import annotations

import logging
from pathlib import Path
from traceback import extract_tb
from typing import Any


def event(log: logging.Logger, name: str, *, level: int = logging.INFO, **keys: Any) -> None:
    """Write one event; values are printed plainly, floats with six digits."""
    if log.isEnabledFor(level):
        log.log(level, "%s", " ".join([name, *(f"{k}={_plain(v)}" for k, v in keys.items())]))


def raised_at(error: BaseException) -> str:
    """File and line where an error was raised: its place, without what it may quote."""
    frames = extract_tb(error.__traceback__)
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"


def _plain(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
