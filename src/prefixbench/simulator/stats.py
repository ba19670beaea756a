"""What an engine counts about itself, with every denominator said.

Two hit rates stand side by side and are never mixed: the block rate of nano-vLLM, whose queries
leave out a request's last block, and the token rate that servers export (vLLM's
`prefix_cache_queries` and `_hits`). Looking is not counting: only what a profile counts is here.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from prefixbench.core.percentiles import percentile
from prefixbench.core.tally import HitTally, Unit, as_rate


def compute_ttft(arrival_time: float, first_token_time: float | None) -> float | None:
    """Time to first token, in the unit of the arguments; None before the first token."""
    return None if first_token_time is None else first_token_time - arrival_time


def compute_tpot(first_token_time: float, finish_time: float, completion_tokens: int) -> float:
    """Time per output token: the mean of the gaps, of which there is one less than tokens.

    >>> compute_tpot(10.0, 16.0, 4)
    2.0
    >>> compute_tpot(10.0, 10.0, 1)
    0.0
    """
    if completion_tokens <= 1:
        return 0.0
    return (finish_time - first_token_time) / (completion_tokens - 1)


def tpot_percentile(tpots: Iterable[float], q: float) -> float | None:
    """Quantile over requests that have a gap at all; None when none has."""
    return percentile([tpot for tpot in tpots if tpot > 0], q)


@dataclass(slots=True)
class SchedulerStats:
    """Steps, tokens and time of the two phases.

    A mixed step computes prompts and decodes at once: it is a prefill step and a decode step, its
    decode tokens count in `total_decode_tokens`, and its whole duration counts on both sides, so
    that throughputs are on the low side rather than flattered.
    """

    num_prefill_steps: int = 0
    num_decode_steps: int = 0
    num_mixed_steps: int = 0
    num_preemptions: int = 0
    total_prefill_tokens: int = 0
    total_decode_tokens: int = 0
    prefill_duration_ns: int = 0
    decode_duration_ns: int = 0
    num_speculative_steps: int = 0
    total_draft_tokens: int = 0
    total_accepted_tokens: int = 0

    def record_steps(
        self, prefill_tokens: int, decode_tokens: int, duration_ns: int, steps: int = 1
    ) -> None:
        """Count equal steps: tokens are those of one step, the duration that of all."""
        if prefill_tokens:
            self.num_prefill_steps += steps
            self.total_prefill_tokens += prefill_tokens * steps
            self.prefill_duration_ns += duration_ns
        if decode_tokens:
            self.num_decode_steps += steps
            self.total_decode_tokens += decode_tokens * steps
            self.decode_duration_ns += duration_ns
            self.num_mixed_steps += steps * bool(prefill_tokens)

    def record_acceptance(self, draft_tokens: int, accepted_tokens: int) -> None:
        """Count one speculative step; no profile speculates, so an engine never calls it."""
        self.num_speculative_steps += 1
        self.total_draft_tokens += draft_tokens
        self.total_accepted_tokens += accepted_tokens

    @property
    def prefill_throughput_tok_s(self) -> float | None:
        """Prompt tokens per second of steps that computed any; None when they took no time."""
        return _per_second(self.total_prefill_tokens, self.prefill_duration_ns)

    @property
    def decode_throughput_tok_s(self) -> float | None:
        """Decoded tokens per second of steps that decoded any; None when they took no time."""
        return _per_second(self.total_decode_tokens, self.decode_duration_ns)


def _per_second(count: int, duration_ns: int) -> float | None:
    return count * 1e9 / duration_ns if duration_ns else None


@dataclass(slots=True)
class PrefixCacheStats:
    """Block statistics as nano-vLLM keeps them: once a request, at its first allocation.

    Queries are a request's blocks without the last one, which is seldom full and never shared.
    An eviction is the overwriting of a block that a look-up would still have found; a block
    without a key is reused without loss.
    """

    block_size: int
    num_query_blocks: int = 0
    num_hit_blocks: int = 0
    num_evictions: int = 0

    def record_query(self, input_len: int, hit_blocks: int) -> None:
        self.num_query_blocks += max(-(-input_len // self.block_size) - 1, 0)
        self.num_hit_blocks += hit_blocks

    def record_eviction(self, count: int = 1) -> None:
        self.num_evictions += count

    @property
    def tally(self) -> HitTally:
        return HitTally(self.num_hit_blocks, self.num_query_blocks, Unit.BLOCK)

    @property
    def hit_rate(self) -> float | None:
        """Hit blocks out of queried blocks; None when nothing was queried."""
        return as_rate(self.tally)

    @property
    def saved_tokens(self) -> int:
        """Prompt tokens that were not computed because whole blocks hit."""
        return self.num_hit_blocks * self.block_size


@dataclass(slots=True, kw_only=True)
class LookUpCounts:
    """Look-ups in one cache, in tokens: `queries` are looked up, `hits` found.

    `preempted_*` are the look-ups of requests that start again after a preemption, which vLLM
    keeps to itself (0.11.2 on).
    """

    queries: int = 0
    hits: int = 0
    preempted_queries: int = 0
    preempted_hits: int = 0

    @property
    def tokens(self) -> HitTally:
        """What a server exports as `prefix_cache_hits` out of `prefix_cache_queries`."""
        return HitTally(self.hits, self.queries)

    def count_look_up(self, queries: int, hits: int, *, resumed: bool) -> None:
        if resumed:
            self.preempted_queries += queries
            self.preempted_hits += hits
        else:
            self.queries += queries
            self.hits += hits


@dataclass(slots=True)
class TierStats(LookUpCounts):
    """What one engine asked a tier below its cache for, at admissions."""

    name: str


@dataclass(slots=True)
class EngineStats(LookUpCounts):
    """All counters of an engine; the look-ups are those of the device's cache."""

    prefix_cache: PrefixCacheStats
    scheduler: SchedulerStats = field(default_factory=SchedulerStats)
    tiers: Sequence[TierStats] = ()

    @property
    def below(self) -> HitTally:
        """Tokens found in the tiers out of those that the device had not: vLLM's external rate."""
        queries = self.tiers[0].queries if self.tiers else 0
        return HitTally(sum(tier.hits for tier in self.tiers), queries)

    @property
    def anywhere(self) -> HitTally:
        """Tokens found in any tier out of those looked up; each token is queried once."""
        return HitTally(self.hits + self.below.hits, self.queries)
