"""How long a scheduler step takes: a roofline in four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Step time = overhead + prefill tokens + context tokens + decoding sequences, each at a price.

    Context tokens are the KV that attention reads: all computed tokens of every scheduled request.
    With every price 0 a step takes no time and only the order of events is simulated.

    >>> CostModel(step_ns=1000, prefill_token_ns=10).duration_ns(64, 64, 0)
    1640
    """

    step_ns: float = 0.0
    prefill_token_ns: float = 0.0
    context_token_ns: float = 0.0
    decode_sequence_ns: float = 0.0

    ORDER_ONLY: ClassVar[CostModel]

    def duration_ns(
        self, prefill_tokens: int, context_tokens: int, decode_sequences: int, steps: int = 1
    ) -> int:
        """Time of `steps` that compute so much each; `context_tokens` is their sum."""
        per_step = (
            self.step_ns
            + self.prefill_token_ns * prefill_tokens
            + self.decode_sequence_ns * decode_sequences
        )
        return round(per_step * steps + self.context_token_ns * context_tokens)


CostModel.ORDER_ONLY = CostModel()
