"""Block keys as in `block_keys`, for many requests at once over arrays of integers.

A sequence of tokens is cut into blocks, and a block into its runs of consecutive numbers, which is
one way only. A key is given out once per (what stands before, first number, length of the run); a
block's key is that of its last run. Plain Python that can be compiled.
"""

from __future__ import annotations

from typing import Any, NamedTuple

KEYED_FIELDS = ("root", "first_run", "first_key")
KEY_FIELDS = ("parent", "start", "length")

_EMPTY = 0
_LOW_BITS = (1 << 31) - 1
_SPREAD, _STRIDE = 1_000_003, 8_191


class KeyArrays(NamedTuple):
    """Requests, their runs of tokens (`starts`, `stops`), and the keys of their blocks.

    Runs and keys of a request end where those of the next row begin; the last row is no request.
    `known` has a row for each key, the first of them the roots of chains; `buckets`, twice as many
    at least and a power of two, find a row by what is in it.
    """

    block_size: int
    roots: int
    requests: Any
    starts: Any
    stops: Any
    keys: Any
    known: Any
    buckets: Any


def name_blocks(arrays: KeyArrays) -> int:
    """Fill in the keys of all full blocks; returns how many keys there are, roots included."""
    count = arrays.roots
    for number in range(len(arrays.requests) - 1):
        count = _name_request(arrays, number, count)
    return count


def _name_request(arrays: KeyArrays, number: int, count: int) -> int:
    request, block_size = arrays.requests[number], arrays.block_size
    key, at = request.root, request.first_key
    start = length = filled = 0  # of the run that is collected, and of the block
    for run in range(request.first_run, arrays.requests[number + 1].first_run):
        token, stop = arrays.starts[run], arrays.stops[run]
        if length and token != start + length:
            key = _key_of(arrays, key, start, length, count)
            count = max(count, key + 1)
            length = 0
        while token < stop:
            if not length:
                start = token
            taken = min(stop - token, block_size - filled)
            token += taken
            length += taken
            filled += taken
            if filled == block_size:
                key = _key_of(arrays, key, start, length, count)
                count = max(count, key + 1)
                arrays.keys[at] = key
                at += 1
                length = filled = 0
    return count


def _key_of(arrays: KeyArrays, parent: int, start: int, length: int, new_key: int) -> int:
    """The key of a run under its parent; `new_key` if it was never seen."""
    mask = len(arrays.buckets) - 1
    bucket = _scatter(parent, start, length) & mask
    while arrays.buckets[bucket] != _EMPTY:
        key = arrays.buckets[bucket]
        row = arrays.known[key]
        if row.parent == parent and row.start == start and row.length == length:
            return int(key)
        bucket = (bucket + 1) & mask
    arrays.buckets[bucket] = new_key
    row = arrays.known[new_key]
    row.parent, row.start, row.length = parent, start, length
    return new_key


def _scatter(parent: int, start: int, length: int) -> int:
    """A number that differs for most runs; what it mixes stays below 2^63."""
    mixed = parent * _SPREAD + ((start ^ (start >> 31)) & _LOW_BITS) * _STRIDE + length
    return mixed ^ (mixed >> 17)
