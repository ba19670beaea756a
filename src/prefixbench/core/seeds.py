"""Randomness as a pure function of labels.

A draw is named by its purpose and its labels; no generator is passed around, calls may come in any
order, and one request can be drawn again alone. `stream` folds the labels into a 64-bit key with
BLAKE2b; `mixed` turns a key and an index into 64 random bits with the finaliser of SplitMix64
(Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014). `mixed` uses
only operators, so that it takes a Python int or an array of unsigned 64-bit integers alike, with
the same result; key and index are not arrays both.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

_MASK = 0xFFFF_FFFF_FFFF_FFFF
_GAMMA = 0x9E37_79B9_7F4A_7C15


def stream(purpose: str, **labels: str | int) -> int:
    """The 64-bit key of all draws with this purpose and these labels.

    >>> stream("length", seed=1) == stream("length", seed=1)
    True
    >>> stream("length", seed=1) == stream("length", seed="1")
    False
    """
    # repr() separates the types, the length prefix separates neighbours.
    parts = [purpose, *(f"{name}={labels[name]!r}" for name in sorted(labels))]
    text = "".join(f"{len(part)}:{part}" for part in parts)
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "little")


def mixed(key: Any, index: Any) -> Any:
    """64 random bits for each index, or each key, of an array of uint64; an int for two ints."""
    z = (
        (key + ((index + 1) * _GAMMA & _MASK)) & _MASK
        if isinstance(index, int)
        else index * _GAMMA + ((key + _GAMMA) & _MASK)
    )
    z = ((z ^ (z >> 30)) * 0xBF58_476D_1CE4_E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D0_49BB_1331_11EB) & _MASK
    return z ^ (z >> 31)


def unit(key: int, index: int = 0) -> float:
    """A float in [0, 1) with 53 random bits.

    >>> 0.0 <= unit(stream("demo", seed=0), 7) < 1.0
    True
    """
    return float((mixed(key, index) >> 11) * 2.0**-53)


def below(bound: int, key: int, index: int = 0) -> int:
    """An integer in [0, bound) without modulo bias worth speaking of (2^-64 x bound)."""
    return int(mixed(key, index) * bound >> 64)


def shuffled(count: int, key: int) -> list[int]:
    """A permutation of range(count), the same for the same key.

    >>> sorted(shuffled(5, stream("demo", seed=0))) == list(range(5))
    True
    """
    return sorted(range(count), key=lambda index: (mixed(key, index), index))
