"""A fast encoder for checking many prompts: gigatoken, of the extra `fast`.

It is young and not the judge: whoever uses it compares a sample with the reference engine first.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import numpy as np

from prefixbench.content.tape import Ids
from prefixbench.content.tokenizer import Tokenizer
from prefixbench.core.log import event

log = logging.getLogger(__name__)

#: Names of engines in reports.
REFERENCE_ENGINE = "tokenizers"
FAST_ENGINE = "gigatoken"


class FastEngine:
    """Encodes texts without special tokens around them, on the calling thread."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        encoded = [text.encode() for text in texts]
        rows = self._engine.encode_batch(encoded, parallel=False)
        return [np.asarray(row, dtype=np.uint32) for row in rows]


def load_fast_engine(tokenizer: Tokenizer) -> FastEngine | None:
    """The fast engine for a tokenizer; None without the extra, or if it cannot read this one."""
    try:
        import gigatoken
    except ImportError:
        return None
    try:
        return FastEngine(gigatoken.Tokenizer.from_json(tokenizer.define()))
    except Exception as error:  # it knows fewer kinds of tokenizers, and says so in many ways
        event(log, "content.fast_engine_refused", reason=type(error).__name__)
        return None
