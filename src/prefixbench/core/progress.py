"""How far long work is, for whoever listens; nobody does unless told to.

Like a log, progress is a word to the person in front and no part of any result, so it is not
handed through every function that works.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: Is told the name of the work, how much of it is done, and how much there is.
Listener = Callable[[str, int, int], None]

_listener: ContextVar[Listener | None] = ContextVar("progress_listener", default=None)


@contextmanager
def telling(listener: Listener | None) -> Iterator[None]:
    """Let `listener` hear of all work inside the block; None silences it."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)


def advanced(work: str, done: int, planned: int) -> None:
    """Say that `done` of `planned` is done."""
    listener = _listener.get()
    if listener is not None:
        listener(work, done, planned)
