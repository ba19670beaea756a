"""How counts are said to a person, in messages of every room."""

from __future__ import annotations


def plural(number: int, noun: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "request"), plural(1200, "request"), plural(0, "mismatch", "mismatches")
    ('1 request', '1,200 requests', '0 mismatches')
    """
    return f"{number:,} {noun if number == 1 else many or noun + 's'}"
