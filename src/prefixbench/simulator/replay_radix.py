"""Replay of `prefixbench-radix/1`: operations on one radix tree, in order."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Any

from prefixbench.simulator.radix import Node, RadixTree, token_array
from prefixbench.simulator.replay_steps import seed_run
from prefixbench.simulator.tokens import TokenRuns

RADIX_FORMAT = "prefixbench-radix/1"

Row = dict[str, Any]


def replay_radix(trace: Mapping[str, Any]) -> list[Row]:
    """The file's operations, each with its result in `expect` computed anew."""
    if trace["config"].get("eviction", "lru") != "lru":
        raise ValueError(f"eviction {trace['config']['eviction']!r} is not simulated")
    replay = _TreeReplay(trace["config"]["page_size"])
    return [row | {"expect": replay.run(number, row)} for number, row in enumerate(trace["ops"])]


class _TreeReplay:
    def __init__(self, page_size: int) -> None:
        self._tree = RadixTree(page_size)
        self._matched: dict[int, Node] = {}

    def run(self, number: int, row: Row) -> Row:
        tree = self._tree
        result = self._result(number, row)
        nodes = sum(1 for _ in tree.nodes())
        sizes = {"evictable": tree.evictable_len, "protected": tree.protected_len, "nodes": nodes}
        return result | sizes

    def _result(self, number: int, row: Row) -> Row:
        tree = self._tree
        match row["op"]:
            case "match":
                found = tree.match(*_key(row))
                self._matched[number] = found.node
                return {"hit": found.hit_len}
            case "insert":
                return {"prefix": tree.insert(*_key(row))}
            case "evict":
                return {"evicted": tree.evict(row["tokens"])}
            case "lock":
                tree.lock(self._matched[row["match"]])
            case "unlock":
                tree.unlock(self._matched[row["match"]])
            case other:
                raise ValueError(f"operation {other!r} is unknown")
        return {}


def _key(row: Row) -> tuple[array[int], tuple[str | None, str | None]]:
    runs = TokenRuns(seed_run(*segment) for _kind, *segment in row["key"])
    return token_array(runs), (row.get("extra_key"), row.get("salt"))
