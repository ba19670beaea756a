"""A server whose cache is its slots: each holds one sequence, and requests go on from it.

The rules are those of llama.cpp's server (executed through xllamacpp 2026.10, host prompt cache
off):

1. A request takes the free slot whose tokens share most with its prompt (the first of equals), if
   that is more than a tenth of the prompt; else the free slot that was used longest ago (the last
   of those never used). Without a free slot it waits.
2. The slot keeps the tokens that are shared; the rest is cut off and computed, token by token, at
   least the last token of the prompt. So a hit is never longer than n-1 tokens.
3. A step first gives each generating slot its one token, then prompts in order of their slots what
   is left of the budget. A slot keeps prompt and output, but the last token.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from itertools import chain, count, takewhile
from operator import eq

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.radix import token_array
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import EngineProfile
from prefixbench.simulator.stats import EngineStats, PrefixCacheStats
from prefixbench.simulator.stepping import CacheContents, SchedulerOptions, StepPlan

#: A slot is taken for its tokens only if so many times of them are more than the prompt
#: (slot_prompt_similarity 0.1).
SIMILARITY_FACTOR = 10


@dataclass(slots=True, eq=False)
class _Slot:
    """One sequence in memory, and the request that works on it."""

    number: int
    tokens: array[int] = field(default_factory=lambda: token_array(()))
    extra_key: Hashable = ()
    used_at: int = 0
    live: LiveRequest | None = None

    def shared_len(self, tokens: array[int], extra_key: Hashable) -> int:
        if extra_key != self.extra_key:
            return 0
        return sum(1 for _ in takewhile(bool, map(eq, self.tokens, tokens)))


class SlotScheduler:
    """Requests and slots. `max_num_seqs` are the slots, which share the capacity evenly."""

    def __init__(
        self,
        profile: EngineProfile,
        options: SchedulerOptions,
        now_ns: Callable[[], int],  # noqa: ARG002
    ) -> None:
        if options.stores or options.block_size != 1:
            raise ConfigError(
                f"profile {profile.name} has slots: tokens singly, and no tiers",
                context=ErrorContext(stage=Stage.SIMULATE, field="engine_profile"),
                hint="block size 1, or another profile",
            )
        self.options = options
        self.stats = EngineStats(PrefixCacheStats(options.block_size))
        self._slots = [_Slot(number) for number in range(options.max_num_seqs)]
        self._slot_of: dict[LiveRequest, _Slot] = {}
        self._waiting: deque[LiveRequest] = deque()
        self._tokens: dict[LiveRequest, array[int]] = {}
        self._ticks = count(1)
        self._evicted = 0

    @property
    def running_count(self) -> int:
        return len(self._slot_of)

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    @property
    def free_blocks(self) -> int:
        """Tokens that no request holds; each one in work holds its whole slot."""
        capacity, slots = self.options.capacity_blocks, len(self._slots)
        return 0 if capacity is None else capacity // slots * (slots - len(self._slot_of))

    @property
    def evictions(self) -> tuple[int, int]:
        return self._evicted, self._evicted

    def blocks_for(self, length: int) -> int:
        return length * len(self._slots)

    def submit(self, live: LiveRequest) -> None:
        request = live.request
        self._tokens[live] = token_array(chain(request.prompt, request.output))
        self._waiting.append(live)

    def schedule(self) -> StepPlan:
        plan = StepPlan()
        while self._waiting and len(self._slot_of) < len(self._slots):
            self._start(self._waiting.popleft(), plan)
        working = [(slot, slot.live) for slot in self._slots if slot.live is not None]
        budget = self.options.max_num_batched_tokens
        for _slot, live in working:
            if live.computed_len >= live.prompt_len:
                plan.add(live, 1)
                budget -= 1
        for _slot, live in working:
            missing = min(live.prompt_len - live.computed_len, budget)
            if missing > 0:
                plan.add(live, missing)
                budget -= missing
        return plan

    def complete(self, plan: StepPlan) -> None:
        for live, tokens in list(zip(plan.lives, plan.scheduled.values(), strict=True)):
            plan.decoded_tokens += live.computed_len >= live.prompt_len
            live.computed_len += tokens
            if live.computed_len == live.known_len:
                plan.sampled.append(live.request_id)
                live.known_len += 1
                if live.known_len == live.final_len:
                    self._leave(live)
                    plan.finished.append(live.request_id)

    def repeat(self, plan: StepPlan, limit: int) -> int:
        """Steps in which nobody came or finished, and all decode, are equal."""
        if not plan.changes_nothing or len(plan.lives) < len(self._slot_of):
            return 0
        limit = min(limit, *(live.missing_outputs - 1 for live in plan.lives))
        for live in plan.lives:
            live.computed_len += limit
            live.known_len += limit
        return limit

    def abort(self, live: LiveRequest) -> None:
        if live in self._slot_of:
            self._leave(live)
        else:
            self._waiting.remove(live)
            del self._tokens[live]

    def contents(self) -> CacheContents:
        cached = sum(len(self._held(slot)) for slot in self._slots)
        return CacheContents(cached, cached, *self.evictions)

    def forget_all(self) -> bool:
        if self._slot_of:
            return False
        for slot in self._slots:
            slot.tokens = token_array(())
        return True

    def lives(self) -> list[LiveRequest]:
        return [*self._slot_of, *self._waiting]

    def check_integrity(self) -> None:
        assert {slot.live for slot in self._slots if slot.live} == self._slot_of.keys()
        assert self._tokens.keys() == set(self.lives())
        for live in self._slot_of:
            assert live.computed_len < live.known_len < live.final_len

    def _start(self, live: LiveRequest, plan: StepPlan) -> None:
        prompt, extra_key = self._tokens[live][: live.prompt_len], live.request.extra_key
        slot = self._choose(prompt, extra_key)
        shared = slot.shared_len(prompt, extra_key) if self.options.prefix_caching else 0
        hit = min(shared, live.prompt_len - 1)
        self._evicted += len(slot.tokens) - hit
        self.stats.prefix_cache.record_query(live.prompt_len, hit)
        if self.options.prefix_caching:
            self.stats.count_look_up(live.prompt_len, hit, resumed=False)
        slot.extra_key, slot.live, self._slot_of[live] = extra_key, live, slot
        live.computed_len = plan.hits[live.request_id] = hit
        live.admissions += 1

    def _choose(self, prompt: array[int], extra_key: Hashable) -> _Slot:
        free = [slot for slot in self._slots if slot.live is None]
        shared = [slot.shared_len(prompt, extra_key) for slot in free]
        if self.options.prefix_caching and max(shared) * SIMILARITY_FACTOR > len(prompt):
            return free[shared.index(max(shared))]
        return min(free, key=lambda slot: (slot.used_at, -slot.number))

    def _leave(self, live: LiveRequest) -> None:
        slot = self._slot_of[live]
        slot.tokens, slot.used_at = self._held(slot), next(self._ticks)
        slot.live = None
        del self._slot_of[live], self._tokens[live]

    def _held(self, slot: _Slot) -> array[int]:
        live = slot.live
        return slot.tokens if live is None else self._tokens[live][: live.computed_len]
