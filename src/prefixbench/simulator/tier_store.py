"""What one cache below the device's holds.

A unit is named by its key, which stands for everything up to its end (`block_keys`). Storing and
using make the units of a path recent from its end to its start, so that the end is lost first, as
in the device's cache.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from prefixbench.simulator.block_keys import BlockKeys, Key
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import TierRules


class TierStore:
    """Units by their keys, the least recently used first.

    One store may serve several engines. Times are those of the engine that asks; a unit unused
    for the tier's `ttl_ns` is gone when the store is next looked at.
    """

    def __init__(self, rules: TierRules) -> None:
        self.rules = rules
        self.stored_units = 0
        self.evicted_units = 0
        self.expired_units = 0
        self._room = sys.maxsize if rules.capacity_units is None else rules.capacity_units
        self._used_at: OrderedDict[Key, int] = OrderedDict()
        self._keys = BlockKeys(rules.unit_len)
        self._paths: dict[LiveRequest, list[Key]] = {}

    def __len__(self) -> int:
        return len(self._used_at)

    def __contains__(self, key: Key) -> bool:
        return key in self._used_at

    def keys(self) -> Sequence[Key]:
        """The stored units, the least recently used first."""
        return list(self._used_at)

    # The units that unfinished requests are made of.

    def path(self, live: LiveRequest) -> list[Key]:
        """Keys of the whole units of prompt and output; the last token is never computed."""
        path = self._paths.get(live)
        if path is None:
            request = live.request
            path = self._keys.of(request.prompt, request.output[:-1], request.extra_key)
            self._paths[live] = path
        return path

    def forget_path(self, live: LiveRequest) -> None:
        """A request is finished; from time to time, keys that nothing needs any more go too."""
        self._paths.pop(live, None)
        if self._keys.worth_collecting:
            wanted = (key for path in self._paths.values() for key in path)
            self._keys.forget_all_but((*self._used_at, *wanted))

    # What is stored.

    def expire(self, now_ns: int) -> None:
        """Drop what was not used for too long."""
        ttl_ns = self.rules.ttl_ns
        while ttl_ns is not None and self._used_at:
            oldest = next(iter(self._used_at))
            if self._used_at[oldest] + ttl_ns > now_ns:
                return
            del self._used_at[oldest]
            self.expired_units += 1

    def use(self, path: Sequence[Key], now_ns: int) -> None:
        """Make recent what is stored of a path."""
        for key in reversed(path):
            if key in self._used_at:
                self._refresh(key, now_ns)

    def store(self, path: Sequence[Key], now_ns: int) -> list[Key]:
        """Store a path from its start, as much of it as there is room for; returns what is lost."""
        return self.take_in(reversed(path[: self._room]), now_ns)

    def take_in(self, units: Iterable[Key], now_ns: int) -> list[Key]:
        """Store units in this order, the last one as the most recent; returns what is lost."""
        for key in units:
            self.stored_units += key not in self._used_at
            self._refresh(key, now_ns)
        excess = max(len(self._used_at) - self._room, 0)
        self.evicted_units += excess
        return [self._used_at.popitem(last=False)[0] for _ in range(excess)]

    def _refresh(self, key: Key, now_ns: int) -> None:
        self._used_at[key] = now_ns
        self._used_at.move_to_end(key)

    def check_integrity(self) -> None:
        """Not more is held than fits, in the order of its last use."""
        times = list(self._used_at.values())
        assert len(times) <= self._room
        assert times == sorted(times)
        assert self.stored_units == len(times) + self.evicted_units + self.expired_units
