"""The causes a deviation can have, how far each can be believed, and what to do about it.

Names are the contract's (section 4, RFC 3.3.22); the rules of evidence are in `observed`,
`stations` and `unsized`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction


class Cause(StrEnum):
    """A named reason for hits above or below the design."""

    EXECUTION_MODE = "execution_mode"
    BLOCK_SIZE_MISMATCH = "block_size_mismatch"
    HIT_GRANULARITY = "hit_granularity"
    METRIC_UNIT_MISMATCH = "metric_unit_mismatch"
    TEMPLATE_TOKENS = "template_tokens"
    FAILED_REQUESTS = "failed_requests"
    SERVED_ANSWERS = "served_answers"
    ROUTING = "routing"
    PROCESSING_ORDER = "processing_order"
    CONCURRENCY_VISIBILITY = "concurrency_visibility"
    RESIDUAL_CACHE = "residual_cache"
    CAPACITY_EVICTION = "capacity_eviction"
    TIER_OVERLAP = "tier_overlap"
    COUNTER_WINDOW = "counter_window"
    FOREIGN_TRAFFIC = "foreign_traffic"
    METRICS_UNAVAILABLE = "metrics_unavailable"
    CACHING_DISABLED = "caching_disabled"
    SERVER_RESTART = "server_restart"


class Confidence(StrEnum):
    """HIGH: the fact itself stands in the files. MEDIUM: they show its effect."""

    HIGH = "high"
    MEDIUM = "medium"


@dataclass(frozen=True, slots=True)
class Advice:
    """How sure a cause is when it is named, and the next step for the reader.

    `hint_for_gain` is the step where the cause gave hits that the plan does without.
    """

    confidence: Confidence
    hint: str
    hint_for_gain: str | None = None

    def hint_for(self, contribution: Fraction | None) -> str:
        """The next step after a loss, or after a gain."""
        gained = contribution is not None and contribution > 0
        return self.hint_for_gain if gained and self.hint_for_gain else self.hint


ADVICE: Mapping[Cause, Advice] = {
    Cause.EXECUTION_MODE: Advice(
        Confidence.HIGH,
        "the data set was planned for another execution mode: judge this phase by its own designed "
        "ratio, or generate the set for the mode you run",
    ),
    Cause.BLOCK_SIZE_MISMATCH: Advice(
        Confidence.HIGH,
        "generate the data set with the server's block size (--server-profile, or block_size)",
    ),
    Cause.HIT_GRANULARITY: Advice(
        Confidence.HIGH,
        "generate the data set with the server's hit granularity (hit_granularity)",
    ),
    Cause.METRIC_UNIT_MISMATCH: Advice(
        Confidence.HIGH, "read both numbers in one unit; this rate does not count tokens"
    ),
    Cause.TEMPLATE_TOKENS: Advice(
        Confidence.HIGH,
        "generate with the server's chat template and special tokens; prefixbench probe shows "
        "what it adds",
    ),
    Cause.FAILED_REQUESTS: Advice(
        Confidence.HIGH, "look at the failed requests first: what was not computed cannot be hit"
    ),
    Cause.SERVED_ANSWERS: Advice(
        Confidence.HIGH,
        "let the server heed ignore_eos and max_tokens (min_tokens makes some), and send "
        "prompt_format: token_ids, so that no answer is encoded again",
    ),
    Cause.ROUTING: Advice(
        Confidence.HIGH,
        "bind prefix groups to ranks, or plan with the routing policy that the server has",
    ),
    Cause.PROCESSING_ORDER: Advice(
        Confidence.HIGH,
        "nothing, while the cache is large enough: the total does not depend on the order",
    ),
    Cause.CONCURRENCY_VISIBILITY: Advice(
        Confidence.MEDIUM,
        "lower the concurrency, or use request_order.across_group: lag_robust or leaders: barrier",
        "plan with a lower planning.concurrency: blocks are seen earlier than the plan allows for",
    ),
    Cause.RESIDUAL_CACHE: Advice(
        Confidence.MEDIUM, "isolate the run: execution.isolation: salt, reset or content"
    ),
    Cause.CAPACITY_EVICTION: Advice(
        Confidence.MEDIUM,
        "give the server more blocks, or plan for its size with planning.capacity_blocks",
        "plan for the server's size: planning.capacity_blocks is less than it keeps",
    ),
    Cause.TIER_OVERLAP: Advice(
        Confidence.MEDIUM,
        "read local and external hits apart: their rates have different denominators",
    ),
    Cause.COUNTER_WINDOW: Advice(
        Confidence.MEDIUM,
        "let the server come to rest before and after the run",
    ),
    Cause.FOREIGN_TRAFFIC: Advice(
        Confidence.MEDIUM, "keep other clients away from the server while a run counts"
    ),
    Cause.METRICS_UNAVAILABLE: Advice(
        Confidence.HIGH, "give --metrics-url of the server itself, not of a proxy in front of it"
    ),
    Cause.CACHING_DISABLED: Advice(Confidence.HIGH, "start the server with prefix caching on"),
    Cause.SERVER_RESTART: Advice(
        Confidence.HIGH, "the counters of this phase are void: run it again on a stable server"
    ),
}
