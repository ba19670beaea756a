"""The scheduler of an engine with a radix tree: a step prefills or decodes (SGLang 0.5.23, read).

1. A prompt that was cut to fit the last step goes on first; its finished part is stored before.
2. Waiting requests are admitted in the order of the policy: matched without their last token,
   locked, and taken if what they must compute, what they may generate and a page fit beside what
   running requests may still generate. The first that does not fit ends the pass. At most one
   prompt is cut to the step's budget, at a page boundary.
3. If nothing was prefilled, all running requests decode. When memory is short, the one with the
   shortest output (then the longest prompt) is pushed back to the end of the queue.
4. A prompt is stored once its prefill is done, its output when it finishes: two nodes, so that
   outputs are evicted alone.

With overlap (the default) the next step is scheduled before the results of this one are processed:
the prompts of a step are found two steps later. What a client sends after it saw a token finds
that prompt all the same.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import chain

from prefixbench.simulator.radix import Match, RadixTree, token_array
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import EngineProfile
from prefixbench.simulator.stats import EngineStats, PrefixCacheStats
from prefixbench.simulator.stepping import CacheContents, SchedulerOptions, StepPlan
from prefixbench.simulator.tiers import TierStack
from prefixbench.simulator.tree_order import admission_order

#: A request reserves room for at most so many of the tokens that it may generate.
CLIP_NEW_TOKENS = 4096
#: The share of what running requests may still generate for which room is reserved. It falls with
#: every decode step and is estimated anew when a request had to be pushed back.
FIRST_NEW_TOKEN_RATIO = 0.7
LEAST_NEW_TOKEN_RATIO = 0.7 * 0.14
RATIO_DECAY = (FIRST_NEW_TOKEN_RATIO - LEAST_NEW_TOKEN_RATIO) / 600
#: Decode steps that a new estimate leaves room for.
RETRACT_DECODE_STEPS = 20


@dataclass(slots=True)
class _Holding:
    """A request's tokens, and how far they are stored in the tree; the path there is locked."""

    tokens: array[int]
    stored: Match | None = None

    @property
    def stored_len(self) -> int:
        return self.stored.hit_len if self.stored else 0


class _TreePlan(StepPlan):
    """A step with what its results will change: prompts to store, requests that are finished."""

    __slots__ = ("budget", "finishing", "prefilled", "reserved")

    def __init__(self, budget: int, reserved: float) -> None:
        super().__init__()
        self.budget = budget
        self.reserved = reserved
        self.prefilled: list[tuple[LiveRequest, int]] = []
        self.finishing: list[LiveRequest] = []

    def forget(self, live: LiveRequest) -> None:
        """Take a request that was dropped out of a step that has not begun."""
        if self.drop(live) and self.decoded_tokens:
            self.decoded_tokens -= 1
        for named in (self.hits, self.resume_hits, self.tier_hits):
            named.pop(live.request_id, None)
        for listed in (self.sampled, self.preempted):
            listed[:] = [request_id for request_id in listed if request_id != live.request_id]
        self.finishing = [each for each in self.finishing if each is not live]


class TreeScheduler:
    """Requests and a radix tree; memory is counted in tokens of whole pages."""

    def __init__(
        self, profile: EngineProfile, options: SchedulerOptions, now_ns: Callable[[], int]
    ) -> None:
        self.options = options
        self._tiers: TierStack | None = None
        if options.stores and options.prefix_caching:
            self._tiers = TierStack(options.stores, None, now_ns)
        self.stats = EngineStats(
            PrefixCacheStats(options.block_size),
            tiers=self._tiers.stats if self._tiers else (),
        )
        self.tree = RadixTree(options.block_size)
        self.running: list[LiveRequest] = []
        self.waiting: list[LiveRequest] = []
        self._profile = profile
        self._page = options.block_size
        self._pairs = profile.draft_tokens > 0
        blocks = options.capacity_blocks
        self._capacity_len = sys.maxsize if blocks is None else blocks * self._page
        self._holdings: dict[LiveRequest, _Holding] = {}
        self._cut: LiveRequest | None = None
        self._ahead: _TreePlan | None = None
        # Pages that requests hold outside the tree, in tokens.
        self._loose_len = 0
        self._evicted_len = 0
        self._new_token_ratio = FIRST_NEW_TOKEN_RATIO

    @property
    def running_count(self) -> int:
        return len(self.running) + (self._cut is not None)

    @property
    def waiting_count(self) -> int:
        return len(self.waiting)

    @property
    def free_blocks(self) -> int:
        return self._available_len // self._page

    def blocks_for(self, length: int) -> int:
        return self._whole_pages(length) // self._page

    def submit(self, live: LiveRequest) -> None:
        request = live.request
        self._holdings[live] = _Holding(token_array(chain(request.prompt, request.output)))
        self.waiting.append(live)

    @property
    def evictions(self) -> tuple[int, int]:
        evicted = self._evicted_len // self._page
        return evicted, evicted

    def lives(self) -> list[LiveRequest]:
        return list(self._holdings)

    def contents(self) -> CacheContents:
        cached = (self.tree.evictable_len + self.tree.protected_len) // self._page
        return CacheContents(cached, cached, *self.evictions)

    def forget_all(self) -> bool:
        if self.running or self._cut or self._ahead:
            return False
        self.tree = RadixTree(self._page)
        return True

    # A step.

    def schedule(self) -> StepPlan:
        plan, self._ahead = self._ahead, None
        return plan or self._build()

    def complete(self, plan: StepPlan) -> None:
        """Process the results of a step; with overlap, the next one is scheduled before that."""
        assert isinstance(plan, _TreePlan)
        if self.options.overlap:
            ahead = self._build()
            self._ahead = ahead if ahead.lives else None
        for live, length in plan.prefilled:
            if live in self.running:
                self._store(live, length)
        for live in plan.finishing:
            self._finish(live)
            plan.finished.append(live.request_id)

    def repeat(self, plan: StepPlan, limit: int) -> int:  # noqa: ARG002
        """Steps are taken singly: any of them may evict."""
        return 0

    def abort(self, live: LiveRequest) -> None:
        if self._ahead is not None:
            self._ahead.forget(live)
            if not self._ahead.lives:
                self._ahead = None
        if live in self.running:
            self.running.remove(live)
        if live in self.waiting:
            self.waiting.remove(live)
        if live is self._cut:
            self._cut = None
        self._release(live)
        del self._holdings[live]

    def _build(self) -> _TreePlan:
        still_to_come = sum(min(live.missing_outputs, CLIP_NEW_TOKENS) for live in self.running)
        plan = _TreePlan(self.options.max_num_batched_tokens, self._new_token_ratio * still_to_come)
        self._prefill(plan)
        if not plan.lives:
            self._decode(plan)
        self._evict_excess()
        return plan

    # Prefill.

    def _prefill(self, plan: _TreePlan) -> None:
        if self._cut is not None:
            live, self._cut = self._cut, None
            self._store(live, live.computed_len)
            self._compute(live, plan)
        if not self.waiting:
            return
        order = admission_order(self.options.policy, self.waiting, self._probe, self._known_tokens)
        for live in order:
            full = len(self.running) >= self.options.max_num_seqs
            if full or self._cut is not None or plan.budget <= 0 or not self._admit(live, plan):
                return

    def _admit(self, live: LiveRequest, plan: _TreePlan) -> bool:
        """Take a waiting request into the step if its prompt and what may follow fit in memory."""
        match = self._match(live)
        hit = match.hit_len if match else 0
        start = self._tiers.reach(live, hit) if self._tiers else hit
        missing = self._whole_pages(live.known_len - hit)
        later = min(live.missing_outputs, CLIP_NEW_TOKENS) + self._page
        cut = self._whole_pages(live.known_len - start) > plan.budget
        if cut and (plan.budget < self._page or (plan.lives and not self.options.chunked_prefill)):
            return False
        if match:
            self.tree.lock(match.node)
        # Asked after the lock: what the request itself holds cannot be evicted for it.
        if missing + later >= self._available_len - plan.reserved:
            if match:
                self.tree.unlock(match.node)
            return False
        self.waiting.remove(live)
        self._holdings[live].stored = match
        live.computed_len = hit
        self._load(live, start, plan)
        self._record_admission(live, hit, plan)
        plan.reserved += later
        self._compute(live, plan)
        return True

    def _load(self, live: LiveRequest, start: int, plan: StepPlan) -> None:
        """Take from the tiers below what the tree has not, up to `start`."""
        if self._tiers:
            hit = live.computed_len
            resumed = None if live.admissions else False
            tokens, load_ns = self._tiers.admit(live, hit, hit, resumed=resumed)
            if tokens:
                plan.tier_hits[live.request_id] = tokens
                plan.load_ns += load_ns
        self._extend(live, start - live.computed_len)

    def _match(self, live: LiveRequest) -> Match | None:
        return self._probe(live) if self.options.prefix_caching else None

    def _probe(self, live: LiveRequest) -> Match:
        """What the known tokens find, without the last one."""
        return self.tree.match(*self._key(live, live.known_len - 1))

    def _key(self, live: LiveRequest, length: int) -> tuple[array[int], Hashable]:
        """Under which key the first `length` tokens are stored.

        With drafting a place of the key is a pair of neighbours: the tokens from the second on,
        under a root that stands for the first.
        """
        tokens, extra_key = self._holdings[live].tokens[:length], live.request.extra_key
        return (tokens[1:], (*extra_key, *tokens[:1])) if self._pairs else (tokens, extra_key)

    def _compute(self, live: LiveRequest, plan: _TreePlan) -> None:
        """Give a prompt what the budget holds; a prompt that is cut ends at a page boundary."""
        tokens = live.known_len - live.computed_len
        if tokens > plan.budget and self.options.chunked_prefill:
            tokens = plan.budget // self._page * self._page
            self._cut = live
        self._extend(live, tokens)
        plan.add(live, tokens)
        plan.budget -= self._whole_pages(tokens)
        if live is not self._cut:
            plan.prefilled.append((live, live.computed_len))
            self.running.append(live)
            self._sample(live, plan)

    def _record_admission(self, live: LiveRequest, hit: int, plan: StepPlan) -> None:
        if live.admissions:
            plan.resume_hits[live.request_id] = hit
        else:
            plan.hits[live.request_id] = hit
            if self.options.prefix_caching:
                self.stats.count_look_up(live.known_len, hit, resumed=False)
                self.stats.prefix_cache.record_query(live.known_len, hit // self._page)
        live.admissions += 1

    # Decode.

    def _decode(self, plan: _TreePlan) -> None:
        while self._decode_need() > self._available_len:
            if len(self.running) == 1:
                # Its room is held by requests whose last results are still to be processed.
                return
            self._push_back(plan)
        plan.decoded_tokens = len(self.running)
        for live in list(self.running):
            self._extend(live, 1)
            plan.add(live, 1)
            self._sample(live, plan)
        self._new_token_ratio = max(self._new_token_ratio - RATIO_DECAY, LEAST_NEW_TOKEN_RATIO)

    def _decode_need(self) -> int:
        return self._page * sum(live.computed_len % self._page == 0 for live in self.running)

    def _push_back(self, plan: _TreePlan) -> None:
        victim = min(self.running, key=lambda live: (live.output_len, -live.prompt_len))
        self.running.remove(victim)
        self._release(victim)
        self.waiting.append(victim)
        plan.preempted.append(victim.request_id)
        generated = sum(live.output_len for live in self.running)
        to_generate = sum(live.final_len - live.prompt_len for live in self.running)
        room = generated + RETRACT_DECODE_STEPS * len(self.running)
        self._new_token_ratio = min(room / (to_generate + 1), 1.0)

    def _sample(self, live: LiveRequest, plan: _TreePlan) -> None:
        plan.sampled.append(live.request_id)
        live.known_len += 1
        if live.known_len == live.final_len:
            plan.finishing.append(live)
            self.running.remove(live)

    # Memory of one request.

    @property
    def _available_len(self) -> int:
        """Tokens that are free or can be evicted."""
        return self._capacity_len - self.tree.protected_len - self._loose_len

    def _evict_excess(self) -> None:
        used = self.tree.protected_len + self.tree.evictable_len + self._loose_len
        if used > self._capacity_len:
            self._evicted_len += self.tree.evict(used - self._capacity_len)

    def _whole_pages(self, length: int) -> int:
        return -(-length // self._page) * self._page

    def _known_tokens(self, live: LiveRequest) -> array[int]:
        return self._holdings[live].tokens[: live.known_len]

    def _extend(self, live: LiveRequest, tokens: int) -> None:
        before = self._whole_pages(live.computed_len)
        live.computed_len += tokens
        self._loose_len += self._whole_pages(live.computed_len) - before

    def _store(self, live: LiveRequest, length: int) -> None:
        """Hand the whole pages of the first `length` tokens to the tree and lock them there."""
        if not self.options.prefix_caching:
            return
        holding, key = self._holdings[live], self._key(live, length)
        self.tree.insert(*key)
        stored = self.tree.match(*key)
        self.tree.lock(stored.node)
        if holding.stored:
            self.tree.unlock(holding.stored.node)
        self._loose_len -= stored.hit_len - holding.stored_len
        holding.stored = stored
        if self._tiers:
            self._tiers.write_through(live, length)

    def _finish(self, live: LiveRequest) -> None:
        """Store prompt and output, but the last token, and hold nothing any more."""
        if self.options.prefix_caching:
            self.tree.insert(*self._key(live, live.computed_len))
        if self._tiers:
            self._tiers.write_through(live, live.computed_len)
        self._release(live)
        del self._holdings[live]

    def _release(self, live: LiveRequest) -> None:
        holding = self._holdings[live]
        self._loose_len -= self._whole_pages(live.computed_len) - holding.stored_len
        if holding.stored:
            self.tree.unlock(holding.stored.node)
        holding.stored = None
        live.computed_len = 0
        if self._tiers:
            self._tiers.forget(live)

    def check_integrity(self) -> None:
        """Memory, locks and requests agree, between two steps."""
        self.tree.check_integrity()
        loose = 0
        for live, holding in self._holdings.items():
            loose += self._whole_pages(live.computed_len) - holding.stored_len
            assert holding.stored is None or holding.stored.node.locks or not holding.stored_len
        assert loose == self._loose_len
        used = self.tree.protected_len + self.tree.evictable_len + loose
        assert used <= self._capacity_len, "more is stored than fits"
        assert self.tree.protected_len <= sum(h.stored_len for h in self._holdings.values())
        if self._tiers:
            self._tiers.check_integrity(self.lives())
