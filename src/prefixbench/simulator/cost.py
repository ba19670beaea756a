"""How long a scheduler step takes: a roofline in four numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple


class Work(NamedTuple):
    """What steps computed, each term in its unit; the sum of several steps is one as well.

    Context tokens are counted only where they have a price.
    """

    steps: float
    prefill_tokens: float
    context_tokens: float
    decode_sequences: float

    def plus(self, other: Work) -> Work:
        return Work(*(own + more for own, more in zip(self, other, strict=True)))

    def times(self, factor: float) -> Work:
        return Work(*(term * factor for term in self))


NO_WORK = Work(0, 0, 0, 0)


def work_of_steps(prefilled: int, decoded: int, context_tokens: int, times: int) -> Work:
    """The work of equal steps; tokens, sequences and context are those of the first.

    Each repeated step reads one more token of context for every sequence.
    """
    if not prefilled and not decoded:
        return NO_WORK
    context = context_tokens * times + decoded * (times * (times - 1) // 2)
    return Work(times, prefilled * times, context, decoded * times)


@dataclass(frozen=True, slots=True, kw_only=True)
class CostModel:
    """Step time = overhead + prefill tokens + context tokens + decoding sequences, each at a price.

    Context tokens are the KV that attention reads: all computed tokens of every scheduled request.
    With every price 0 a step takes no time and only the order of events is simulated.

    >>> CostModel(step_ns=1000, prefill_token_ns=10).price_ns(Work(1, 64, 64, 0))
    1640
    """

    step_ns: float = 0.0
    prefill_token_ns: float = 0.0
    context_token_ns: float = 0.0
    decode_sequence_ns: float = 0.0

    ORDER_ONLY: ClassVar[CostModel]

    def price_ns(self, work: Work) -> int:
        return round(
            self.step_ns * work.steps
            + self.prefill_token_ns * work.prefill_tokens
            + self.context_token_ns * work.context_tokens
            + self.decode_sequence_ns * work.decode_sequences
        )


CostModel.ORDER_ONLY = CostModel()
