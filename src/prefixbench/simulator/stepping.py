"""What every scheduler takes and gives, whatever its cache looks like."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.block_pool import Block
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.stats import EngineStats
from prefixbench.simulator.tier_store import TierStore
from prefixbench.simulator.waiting import Policy


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """What an operator sets when the engine starts; counts are tokens unless named otherwise."""

    max_num_batched_tokens: int
    max_num_seqs: int
    block_size: int
    capacity_blocks: int | None
    chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    policy: Policy = Policy.FCFS
    prefix_caching: bool = True
    overlap: bool = True
    stores: tuple[TierStore, ...] = ()


class Found(NamedTuple):
    """What a look-up found: blocks that would be held, and the tokens that need not be computed.

    Only models with several KV groups use the rest: `tables` has a row of blocks for each group,
    and a group that keeps little had lost what the others share up to `junction` tokens.
    """

    blocks: list[Block]
    hit_len: int
    tables: tuple[list[Block | None], ...] = ()
    junction: int = 0


class StepPlan:
    """What a step decides and what comes of it. Hits are tokens found cached at an admission.

    `tier_hits` are tokens that admitted requests found below the device, by tier, and `load_ns` is
    the time to load them.
    """

    __slots__ = (
        "decoded_tokens", "finished", "hits", "lives", "load_ns", "preempted", "resume_hits",
        "sampled", "scheduled", "tier_hits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.lives: list[LiveRequest] = []
        self.scheduled: dict[str, int] = {}
        self.hits: dict[str, int] = {}
        self.resume_hits: dict[str, int] = {}
        self.preempted: list[str] = []
        self.sampled: list[str] = []
        self.finished: list[str] = []
        self.decoded_tokens = 0
        self.tier_hits: dict[str, dict[str, int]] = {}
        self.load_ns = 0.0

    def add(self, live: LiveRequest, tokens: int) -> None:
        self.lives.append(live)
        self.scheduled[live.request_id] = tokens

    def drop(self, live: LiveRequest) -> int:
        """Take back what a request was given in this step; returns these tokens."""
        tokens = self.scheduled.pop(live.request_id, 0)
        if tokens:
            self.lives.remove(live)
        return tokens

    @property
    def changes_nothing(self) -> bool:
        """Whether all who were scheduled decoded, and nobody came, went or was pushed back."""
        return self.decoded_tokens == len(self.lives) and not (
            self.hits or self.resume_hits or self.preempted or self.finished
        )


class CacheContents(NamedTuple):
    """What the cache holds, and what it has lost since the engine was made.

    An evicted block carried a key when it was handed out anew; the key is evicted with it unless
    another block carries it too. In a tree a block is a page.
    """

    cached_blocks: int
    cached_keys: int
    evicted_blocks: int
    evicted_keys: int


class PoolView(NamedTuple):
    """A pool of blocks at one moment, each block told by its name.

    Where layers keep their KV in several groups, each group's block has the same name.
    `findable` are the keys that a look-up finds. `queue` are the free blocks in the order in which
    they are handed out, None for those without a key; `blank_blocks` more, which hold nothing, go
    before them (None: without end).
    """

    findable: frozenset[Key]
    blank_blocks: int | None
    queue: tuple[Key | None, ...]


class Scheduler(Protocol):
    """A cache and the rules by which requests are given steps and room in it."""

    stats: EngineStats

    @property
    def running_count(self) -> int: ...
    @property
    def waiting_count(self) -> int: ...
    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds, findable or not."""
        ...

    @property
    def evictions(self) -> tuple[int, int]:
        """Blocks and keys lost since the engine was made."""
        ...

    def blocks_for(self, length: int) -> int:
        """Blocks that a request holds at a time until its first `length` tokens are computed."""
        ...

    def submit(self, live: LiveRequest) -> None: ...
    def schedule(self) -> StepPlan:
        """Decide a step: who computes how many tokens."""
        ...

    def complete(self, plan: StepPlan) -> None:
        """Book what was computed: who samples a token, and who is finished by it."""
        ...

    def repeat(self, plan: StepPlan, limit: int) -> int:
        """Take up to `limit` more steps that are equal to the completed one; returns how many."""
        ...

    def abort(self, live: LiveRequest) -> None: ...
    def contents(self) -> CacheContents: ...
    def forget_all(self) -> bool:
        """Make nothing findable; False, and nothing done, while a request holds blocks."""
        ...

    def lives(self) -> Sequence[LiveRequest]:
        """All unfinished requests."""
        ...

    def check_integrity(self) -> None: ...
