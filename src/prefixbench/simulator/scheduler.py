"""The scheduler of a paged engine: token budget, seats, chunked prefill, preemption.

The rules are those of vLLM v1 (read in 0.9 to 0.33, executed 0.18 to 0.33); what changed between
versions is in the profile. One step:

1. Running requests, in order: each gets what it lacks, capped by the chunk limit and by what is
   left of the budget. When blocks are short, running requests are preempted from the end (under
   the priority policy: the least important one) until the current one fits or is itself preempted.
2. If nothing was preempted, waiting requests are admitted in order, and admission stops at the
   first that does not fit: its hit is looked up, its blocks are held, new ones are taken.
3. Every full block that the step will compute is published at once, before it is computed.
4. A request whose last known token was computed samples a token; after its last one its blocks
   are freed, tail first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import chain

from prefixbench.simulator.block_keys import BlockKeys
from prefixbench.simulator.block_pool import Block, BlockPool
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import Counting, EngineProfile, KeylessFreed
from prefixbench.simulator.stats import EngineStats, PrefixCacheStats
from prefixbench.simulator.waiting import Policy, waiting_queue


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


@dataclass(slots=True)
class StepPlan:
    """What a step has decided so far. Hits are tokens found cached at an admission."""

    budget: int
    chunk_limit: int
    lives: list[LiveRequest] = field(default_factory=list)
    scheduled: dict[str, int] = field(default_factory=dict)
    hits: dict[str, int] = field(default_factory=dict)
    resume_hits: dict[str, int] = field(default_factory=dict)
    preempted: list[str] = field(default_factory=list)
    sampled: list[str] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    decoded_tokens: int = 0
    context_tokens: int = 0

    def add(self, live: LiveRequest, tokens: int) -> None:
        self.lives.append(live)
        self.scheduled[live.request_id] = tokens
        self.budget -= tokens

    def drop(self, live: LiveRequest) -> None:
        """Take back what a preempted request was given in this step, and return its budget."""
        tokens = self.scheduled.pop(live.request_id, None)
        if tokens is not None:
            self.lives.remove(live)
            self.budget += tokens


class BlockScheduler:
    """Requests, a block pool, and the rules that bring them together, step by step."""

    def __init__(self, profile: EngineProfile, options: SchedulerOptions) -> None:
        self.options = options
        self.pool = BlockPool(
            options.capacity_blocks,
            keyless_to_front=profile.keyless_freed is KeylessFreed.FRONT,
        )
        self.stats = EngineStats(PrefixCacheStats(options.block_size))
        self.keys = BlockKeys(options.block_size)
        self.waiting = waiting_queue(options.policy)
        self.running: list[LiveRequest] = []
        self._profile = profile
        self._block_size = options.block_size
        self._caches = options.prefix_caching
        self._counts_look_ups = profile.counting is Counting.LOOK_UP

    def submit(self, live: LiveRequest) -> None:
        self.waiting.add(live)

    # Deciding a step.

    def schedule(self) -> StepPlan:
        plan = StepPlan(self.options.max_num_batched_tokens, self._chunk_limit())
        self._schedule_running(plan)
        if self.waiting and not plan.preempted:
            while self._may_admit(plan) and self._admit(self.waiting.first(), plan):
                pass
        return plan

    def _chunk_limit(self) -> int:
        """The long-prefill threshold; a request that is alone in the engine ignores it."""
        alone = len(self.running) + len(self.waiting) == 1
        threshold = self.options.long_prefill_token_threshold
        return threshold if threshold and not alone else self.options.max_num_batched_tokens

    def _schedule_running(self, plan: StepPlan) -> None:
        running = self.running
        index = 0
        while index < len(running) and plan.budget > 0:
            live = running[index]
            tokens = min(live.known_len - live.computed_len, plan.chunk_limit, plan.budget)
            end = live.computed_len + tokens
            if end > live.settled_len and not self._grow(live, end):
                if not self._make_room(live, end, plan):
                    return
                # A victim may have stood before this request.
                index = running.index(live)
            plan.add(live, tokens)
            index += 1

    def _make_room(self, live: LiveRequest, end: int, plan: StepPlan) -> bool:
        """Preempt until `live` has its blocks; False when it had to go itself."""
        while True:
            victim = self._pick_victim()
            self._preempt(victim)
            plan.drop(victim)
            plan.preempted.append(victim.request_id)
            if victim is live:
                return False
            if self._grow(live, end):
                return True

    def _pick_victim(self) -> LiveRequest:
        if self.options.policy is Policy.PRIORITY:
            return max(self.running, key=lambda live: live.rank)
        return self.running[-1]

    def _preempt(self, live: LiveRequest) -> None:
        """Take all blocks back; the request starts anew, with its generated tokens as prompt."""
        self.running.remove(live)
        self._release(live)
        self.waiting.add_preempted(live)

    def _may_admit(self, plan: StepPlan) -> bool:
        return bool(
            self.waiting and plan.budget > 0 and len(self.running) < self.options.max_num_seqs
        )

    def _admit(self, live: LiveRequest, plan: StepPlan) -> bool:
        """Start (or restart) the first waiting request if a part of it fits into this step."""
        found = self._look_up(live)
        hit = len(found) * self._block_size
        tokens = min(live.known_len - hit, plan.chunk_limit)
        if tokens > plan.budget and not self.options.chunked_prefill:
            return False
        tokens = min(tokens, plan.budget)
        whole = live.known_len if self._profile.reserve_whole_prompt else hit + tokens
        if not self._has_room(found, whole):
            return False
        self.waiting.remove_first()
        self.running.append(live)
        self.pool.hold(found)
        live.blocks, live.published_blocks, live.computed_len = found, len(found), hit
        self._grow(live, hit + tokens)
        plan.add(live, tokens)
        self._record_admission(live, hit, plan)
        return True

    def _look_up(self, live: LiveRequest) -> list[Block]:
        """Blocks that hold the request's leading tokens; its last token is always computed."""
        if not self._caches:
            return []
        limit = (live.known_len - 1) // self._block_size
        found = self.pool.find(self._keys_of(live)[:limit])
        if self._counts_look_ups:
            self._count_look_up(live, len(found) * self._block_size)
        return found

    def _count_look_up(self, live: LiveRequest, hit: int) -> None:
        resumed = live.admissions > 0
        self.stats.count_look_up(live.known_len, hit, resumed=resumed)

    def _keys_of(self, live: LiveRequest) -> list[int]:
        if live.keys is None:
            if self.keys.worth_collecting:
                self._forget_unused_keys()
            request = live.request
            live.keys = self.keys.of(request.prompt, request.output, request.extra_key)
        return live.keys

    def _has_room(self, found: list[Block], length: int) -> bool:
        """Whether `length` tokens fit; found blocks that nobody holds leave the free ones too."""
        missing = self._blocks_for(length) - len(found)
        pool = self.pool
        return pool.has_room(missing + len(found)) or pool.has_room(
            missing + pool.idle_count(found)
        )

    def _record_admission(self, live: LiveRequest, hit: int, plan: StepPlan) -> None:
        if self._caches and not self._counts_look_ups:
            self._count_look_up(live, hit)
        if not live.admissions and self._caches:
            self.stats.prefix_cache.record_query(live.known_len, hit // self._block_size)
        hits = plan.resume_hits if live.admissions else plan.hits
        hits[live.request_id] = hit
        live.admissions += 1

    # Blocks of one request.

    def _blocks_for(self, length: int) -> int:
        return -(-length // self._block_size)

    def _grow(self, live: LiveRequest, end: int) -> bool:
        """Give the request blocks for its first `end` tokens and publish the full ones."""
        missing = self._blocks_for(end) - len(live.blocks)
        if missing > 0:
            if not self.pool.has_room(missing):
                return False
            live.blocks += self.pool.take(missing)
        room = len(live.blocks) * self._block_size
        if self._caches:
            self._publish(live, end // self._block_size)
            room = min(room, (live.published_blocks + 1) * self._block_size - 1)
        live.settled_len = room
        return True

    def _publish(self, live: LiveRequest, full_blocks: int) -> None:
        first = live.published_blocks
        if full_blocks > first:
            keys = self._keys_of(live)[first:full_blocks]
            self.pool.publish(live.blocks[first:full_blocks], keys)
            live.published_blocks = full_blocks

    def _release(self, live: LiveRequest) -> None:
        self.pool.release(live.blocks, live.published_blocks)
        live.blocks = []
        live.published_blocks = live.computed_len = live.settled_len = 0

    # After the model ran.

    def complete(self, plan: StepPlan) -> None:
        """Book what was computed: who samples a token, and who is finished by it."""
        done: list[LiveRequest] = []
        for live, tokens in zip(plan.lives, plan.scheduled.values(), strict=True):
            live.computed_len += tokens
            plan.context_tokens += live.computed_len
            if live.computed_len == live.known_len:
                plan.decoded_tokens += tokens == 1 and live.known_len > live.prompt_len
                plan.sampled.append(live.request_id)
                live.known_len += 1
                if live.known_len == live.final_len:
                    done.append(live)
        for live in done:
            self._release(live)
            plan.finished.append(live.request_id)
        if done:
            self.running = [live for live in self.running if live.known_len < live.final_len]

    def repeat(self, plan: StepPlan, limit: int) -> int:
        """Take up to `limit` more steps that are equal to the completed one; returns how many.

        A step in which requests only decoded repeats until one of them needs a block, fills one or
        finishes: what kept others waiting has not changed.
        """
        decoded_only = plan.decoded_tokens == len(plan.lives) > 0
        if not decoded_only or plan.hits or plan.resume_hits or plan.preempted or plan.finished:
            return 0
        if self._counts_look_ups and self.waiting:
            return 0
        for live in plan.lives:
            limit = min(
                limit, live.settled_len - live.computed_len, live.final_len - live.known_len - 1
            )
        for live in plan.lives if limit else ():
            live.computed_len += limit
            live.known_len += limit
        return limit

    def abort(self, live: LiveRequest) -> None:
        """Remove an unfinished request; what it published stays findable."""
        if live in self.running:
            self.running.remove(live)
            self._release(live)
        else:
            self.waiting.remove(live)

    def _forget_unused_keys(self) -> None:
        """Keep the memory for block identities in proportion to what is cached and wanted."""
        wanted = [live.keys for live in (*self.running, *self.waiting) if live.keys]
        self.keys.forget_all_but(chain(self.pool.keys(), *wanted))

    def check_integrity(self) -> None:
        """Blocks and requests agree, between two steps."""
        for live in self.running:
            assert live.computed_len <= len(live.blocks) * self._block_size
            assert live.published_blocks <= len(live.blocks)
            assert live.computed_len < live.known_len < live.final_len
        assert all(not live.blocks for live in self.waiting)
        assert len(self.running) <= self.options.max_num_seqs
        self.pool.check_integrity(live.blocks for live in self.running)
