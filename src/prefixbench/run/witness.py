"""What the requests themselves tell: the second witness beside the server's counters."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from prefixbench.core.errors import EndpointError, ErrorContext, Stage
from prefixbench.run.answer import Status
from prefixbench.run.client import Exchange
from prefixbench.run.planned import PlannedRequest

#: The first answers must have the planned length, or the run is not worth going on with.
FIRST_ANSWERS = 5

Rank = tuple[int, int]

#: What to do where served answers are not as long as planned.
OTHER_ANSWERS_HINT = (
    "let the server heed ignore_eos and max_tokens (min_tokens makes some), and send"
    " prompt_format: token_ids, so that no answer is encoded again"
)


@dataclass(slots=True)
class UsageWitness:
    """Sums of `usage` over the answered requests of a phase. A rank is (instance, DP rank).

    `served`: later turns hold the server's own answers. Their prompts are as long as these were, so
    they are compared with the plan apart (`histories`), as are the answers themselves
    (`continued`).
    """

    served: bool = False
    answered: int = 0
    prompt_tokens: int = 0
    prompt_tokens_known: int = 0
    cached_tokens: int = 0
    cached_tokens_known: int = 0
    other_lengths: int = 0
    histories: int = 0
    other_histories: int = 0
    continued: int = 0
    other_answers: int = 0
    planned_tokens: Counter[Rank] = field(default_factory=Counter)

    def add(self, request: PlannedRequest, exchange: Exchange) -> None:
        if exchange.status is not Status.OK:
            return
        self.answered += 1
        self.planned_tokens[request.instance_id, request.dp_id] += _expected_len(request, exchange)
        if exchange.prompt_tokens is not None:
            self.prompt_tokens += exchange.prompt_tokens
            self.prompt_tokens_known += 1
            self._compare_prompt(request, other=exchange.prompt_tokens != request.input_len)
        if exchange.cached_tokens is not None:
            self.cached_tokens += exchange.cached_tokens
            self.cached_tokens_known += 1
        if self.served and request.has_later_turn and exchange.output_tokens is not None:
            self.continued += 1
            self.other_answers += exchange.output_tokens != request.output_len

    @property
    def other_turns(self) -> int:
        """Served answers, and prompts that hold some, that are not as long as planned."""
        return self.other_answers + self.other_histories

    def _compare_prompt(self, request: PlannedRequest, *, other: bool) -> None:
        if request.continues_answer:
            self.histories += 1
            self.other_histories += other
        else:
            self.other_lengths += other

    @property
    def all_prompt_tokens(self) -> int | None:
        """Prompt tokens of all answered requests; None unless each told."""
        return self.prompt_tokens if self._all(self.prompt_tokens_known) else None

    @property
    def all_cached_tokens(self) -> int | None:
        """Cached tokens of all answered requests; None unless each told."""
        return self.cached_tokens if self._all(self.cached_tokens_known) else None

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens if self.prompt_tokens_known else None,
            "cached_tokens": self.cached_tokens if self.cached_tokens_known else None,
            "requests_with_hit_rate": self.cached_tokens_known,
        }

    def _all(self, known: int) -> bool:
        return self.answered > 0 and known == self.answered


def _expected_len(request: PlannedRequest, exchange: Exchange) -> int:
    """Tokens that were sent to a rank: as planned, unless served answers stand among them."""
    if request.continues_answer and exchange.prompt_tokens is not None:
        return exchange.prompt_tokens
    return request.input_len


class LengthGuard:
    """Compares the first answers' `prompt_tokens` with the plan (exact-text.md section 7)."""

    def __init__(self, dataset_id: str) -> None:
        self._dataset_id = dataset_id
        self._looked_at = 0

    def problem(self, request: PlannedRequest, exchange: Exchange) -> EndpointError | None:
        """An error if one of the first answers has another length than planned."""
        if self._looked_at >= FIRST_ANSWERS or exchange.prompt_tokens is None:
            return None
        if request.continues_answer:
            return None  # a served answer is as long as the server made it
        self._looked_at += 1
        if exchange.prompt_tokens == request.input_len:
            return None
        return EndpointError(
            f"the server counts {exchange.prompt_tokens} prompt tokens where the plan has "
            f"{request.input_len}: its tokenizer, special tokens or template differ",
            context=ErrorContext(
                stage=Stage.RUN,
                dataset_id=self._dataset_id,
                request_id=request.request_id,
                prefix_group_id=request.group_id,
                field="usage.prompt_tokens",
            ),
            hint="generate the data set with the served model's tokenizer (--tokenizer) and "
            "prompt_format",
        )
