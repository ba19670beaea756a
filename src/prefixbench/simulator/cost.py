"""How long a scheduler step takes: a roofline in four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Step time = overhead + prefill tokens + context tokens + decoding sequences, each at a price.

    Context tokens are the KV that attention reads: all computed tokens of every scheduled request.
    With every price 0 a step takes no time and only the order of events is simulated.

    >>> CostModel(step_ns=1000, prefill_token_ns=10).step_duration_ns(64, 64, 0)
    1640
    """

    step_ns: float = 0.0
    prefill_token_ns: float = 0.0
    context_token_ns: float = 0.0
    decode_sequence_ns: float = 0.0

    ORDER_ONLY: ClassVar[CostModel]

    @property
    def is_free(self) -> bool:
        return self == CostModel.ORDER_ONLY

    def step_duration_ns(
        self, prefill_tokens: int, context_tokens: int, decode_sequences: int
    ) -> int:
        return round(
            self.step_ns
            + self.prefill_token_ns * prefill_tokens
            + self.context_token_ns * context_tokens
            + self.decode_sequence_ns * decode_sequences
        )


CostModel.ORDER_ONLY = CostModel()
