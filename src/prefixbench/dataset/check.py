"""One thing that is proved of a data set, or is not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """What was checked, whether it holds, and what was found."""

    name: str
    passed: bool
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "status": "ok" if self.passed else "fail", "detail": self.detail}


def counted(name: str, wrong: int, what: str) -> Check:
    """A check that holds if nothing is `wrong`; `what` says of what there are so many."""
    return Check(name=name, passed=not wrong, detail=f"{wrong} {what}" if wrong else "all agree")
