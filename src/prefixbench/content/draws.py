"""Draws for many requests at once: the arrays' side of `core.seeds`."""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np

from prefixbench.content.tape import Positions
from prefixbench.core.seeds import below, mixed, stream

#: A request's retries take draws this far apart, so that no two requests share one.
_RETRY_STRIDE = 1 << 40


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentLabels:
    """What the content of a whole data set is a function of, beside group, request and retry.

    `plan` stands for all that was planned, the target included: other plans get other texts.
    """

    seed: int = 0
    dataset_id: str = ""
    plan: str = ""

    def key(self, purpose: str, **more: str | int) -> int:
        return stream(purpose, seed=self.seed, dataset_id=self.dataset_id, plan=self.plan, **more)


def draw_below(bounds: Any, keys: Any, index: Any) -> Positions:
    """Integers in [0, bound) for arrays of bounds (under 2^31), keys and indices.

    Arrays of one length, or single integers for bounds and keys.
    """
    bits = mixed(keys, np.asarray(index, dtype=np.uint64)) >> np.uint64(33)
    drawn: Positions = (bits.astype(np.int64) * bounds) >> 31
    return drawn


def request_index(requests: Positions, retries: Positions) -> Positions:
    """The index of the draws of a request and its retry."""
    return requests + retries * _RETRY_STRIDE


@dataclass(frozen=True, slots=True)
class Permutation:
    """A seeded permutation of range(size), computed value by value: `(a*n + b) mod size`."""

    size: int
    factor: int
    shift: int

    @classmethod
    def draw(cls, size: int, key: int) -> Permutation:
        attempt = 0
        while gcd(factor := 1 + below(size, key, attempt), size) != 1:
            attempt += 1
        return cls(size, factor, below(size, key, attempt + 1))

    def __call__(self, number: Any) -> Any:
        return (number % self.size * self.factor + self.shift) % self.size
