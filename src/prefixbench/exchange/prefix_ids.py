"""Content ids made prefix ids, as traces of Mooncake's form have them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import count

from prefixbench.simulator.trace import TraceRequest, runs_of_ids

_ROOT = -1


class PrefixIds:
    """Numbers blocks as they first appear behind their parent.

    >>> ids = PrefixIds()
    >>> list(ids.of([4, 9])), list(ids.of([9, 9])), list(ids.of([4, 9, 4]))
    ([0, 1], [2, 3], [0, 1, 4])
    """

    def __init__(self) -> None:
        self._fresh = count()
        self._number_of: dict[tuple[int, int], int] = {}

    def of(self, contents: Iterable[int]) -> Iterator[int]:
        parent = _ROOT
        for content in contents:
            where = (parent, content)
            if where not in self._number_of:
                self._number_of[where] = next(self._fresh)
            parent = self._number_of[where]
            yield parent


def with_prefix_ids(requests: Iterable[TraceRequest]) -> Iterator[TraceRequest]:
    """The same requests, their blocks numbered by everything before them."""
    ids = PrefixIds()
    for request in requests:
        contents = (block for run in request.blocks for block in run)
        yield replace(request, blocks=runs_of_ids(ids.of(contents)))
