"""What all paged engines have in common: requests, their blocks, look-ups, publishing, freeing.

How a step is put together differs between engines and is left to the subclasses: `scheduler` (as
vLLM does it) and `phased` (as nano-vLLM does it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from itertools import chain

from prefixbench.simulator.block_keys import BlockKeys, Key
from prefixbench.simulator.block_pool import Block, BlockPool
from prefixbench.simulator.request import EngineRequest, LiveRequest
from prefixbench.simulator.rules import Duplicates, EngineProfile, Lookahead
from prefixbench.simulator.stats import EngineStats, PrefixCacheStats
from prefixbench.simulator.step_rules import (
    blocks_of,
    leaves_room,
    paged_rules,
    settled_len,
    start_len,
)
from prefixbench.simulator.stepping import (
    CacheContents,
    Found,
    PoolView,
    SchedulerOptions,
    StepPlan,
)
from prefixbench.simulator.tiers import TierStack
from prefixbench.simulator.tokens import drop_first
from prefixbench.simulator.waiting import waiting_queue


class PagedScheduler(ABC):
    """Requests and a block pool under a profile's rules."""

    def __init__(
        self, profile: EngineProfile, options: SchedulerOptions, now_ns: Callable[[], int]
    ) -> None:
        self.options = options
        self.rules = paged_rules(profile, options)
        self._tiers: TierStack | None = None
        if options.stores and options.prefix_caching:
            self._tiers = TierStack(options.stores, self._keys_of, now_ns)
        self.stats = EngineStats(
            PrefixCacheStats(options.block_size),
            tiers=self._tiers.stats if self._tiers else (),
        )
        self.pool = BlockPool(
            options.capacity_blocks,
            keyless_to_front=self.rules.keyless_to_front,
            latest_copy_wins=profile.duplicates is Duplicates.LAST_WRITER,
            remembers_lost_keys=bool(self._tiers and self._tiers.takes_what_the_device_loses),
        )
        self.waiting = waiting_queue(options.policy)
        self.running: list[LiveRequest] = []
        self._profile = profile
        self._block_size = options.block_size
        self._keys = BlockKeys(options.block_size)
        # What drafting does to a match.
        speculates = self.rules.draft_tokens > 0
        self._drops_last_block = speculates and profile.lookahead is Lookahead.DROP_BLOCK
        self._looks_ahead = speculates and profile.lookahead is Lookahead.NEXT_TOKEN_KEY

    @property
    def running_count(self) -> int:
        return len(self.running)

    @property
    def waiting_count(self) -> int:
        return len(self.waiting)

    @property
    def free_blocks(self) -> int:
        return self.pool.free_blocks

    @property
    def evictions(self) -> tuple[int, int]:
        return self.pool.evicted_blocks, self.pool.evicted_keys

    def lives(self) -> list[LiveRequest]:
        return [*self.running, *self.waiting]

    def contents(self) -> CacheContents:
        pool = self.pool
        return CacheContents(pool.cached_blocks, pool.cached_keys, *self.evictions)

    def view(self) -> PoolView:
        queue = (None if key is None else self._name_of(key) for key in self.pool.queue())
        return PoolView(frozenset(self._cached_names()), self.pool.blank_blocks, tuple(queue))

    def block_keys(self, request: EngineRequest) -> list[Key]:
        """Names of the request's full blocks, its answer included."""
        return self._name_blocks(request, request.output)

    def forget_all(self) -> bool:
        return self.pool.forget_all()

    @abstractmethod
    def schedule(self) -> StepPlan:
        """Decide a step: who computes how many tokens; blocks are taken at once."""

    def submit(self, live: LiveRequest) -> None:
        self.waiting.add(live)

    def complete(self, plan: StepPlan) -> None:
        """Book what was computed: who samples a token, and who is finished by it."""
        done: list[LiveRequest] = []
        sampled = plan.sampled
        for live, tokens in zip(plan.lives, plan.scheduled.values(), strict=True):
            computed = live.computed_len = live.computed_len + tokens
            if computed == live.known_len:
                if tokens == 1 and computed > live.prompt_len:
                    plan.decoded_tokens += 1
                sampled.append(live.request_id)
                live.known_len = computed + 1
                if computed + 1 == live.final_len:
                    done.append(live)
        if self._looks_ahead:
            self._publish_computed(plan.lives)
        if self._tiers:
            for live in plan.lives:
                self._tiers.write_through(live, live.computed_len)
        if done:
            self._finish(done, plan)

    def _finish(self, done: Iterable[LiveRequest], plan: StepPlan) -> None:
        """Free the blocks of finished requests, in the order in which they were scheduled."""
        for live in done:
            self._release(live)
            plan.finished.append(live.request_id)
        self.running = [live for live in self.running if live.known_len < live.final_len]

    def repeat(self, plan: StepPlan, limit: int) -> int:
        """Take up to `limit` more steps that are equal to the completed one; returns how many.

        A step in which requests only decoded repeats until one of them needs a block, fills one or
        finishes: what kept others waiting has not changed.
        """
        if not plan.changes_nothing or (self.rules.counts_look_ups and self.waiting):
            return 0
        for live in plan.lives:
            limit = min(limit, live.settled_len - live.computed_len)
            limit = min(limit, live.final_len - live.known_len - 1)
        limit = max(limit, 0)
        for live in plan.lives if limit else ():
            live.computed_len += limit
            live.known_len += limit
        return limit

    def abort(self, live: LiveRequest) -> None:
        """Remove an unfinished request; what it published stays findable."""
        if live in self.running:
            self.running.remove(live)
        else:
            self.waiting.remove(live)
        self._release(live)

    def check_integrity(self) -> None:
        """Blocks and requests agree, between two steps."""
        lives = self.lives()
        for live in lives:
            assert live.keyless_blocks >= 0
            assert live.computed_len <= self._room(live)
            assert live.computed_len < live.known_len < live.final_len
        self.pool.check_integrity(self._holding(live) for live in lives)
        assert not self.pool.lost_keys
        if self._tiers:
            self._tiers.check_integrity(lives)

    def _holding(self, live: LiveRequest) -> tuple[list[Block], int]:
        """A request's named blocks, and the number of its others."""
        return live.blocks, live.keyless_blocks

    def _room(self, live: LiveRequest) -> int:
        """Tokens that a request's blocks hold."""
        return (len(live.blocks) + live.keyless_blocks) * self._block_size + self.rules.roomless

    # Looking up.

    def _look_up(self, live: LiveRequest) -> Found:
        """Blocks that hold the request's leading tokens, as far as the profile lets them hit."""
        rules = self.rules
        if not rules.caches:
            return Found([], 0)
        found = self._find(live, live.known_len - rules.kept_back)
        if rules.counts_look_ups:
            self._count_look_up(live, found.hit_len)
        return found

    def _find(self, live: LiveRequest, limit: int) -> Found:
        """The longest match of at most `limit` tokens."""
        blocks = self.pool.find(self._keys_of(live)[: limit // self._block_size])
        if self._drops_last_block and blocks:
            blocks.pop()
        return Found(blocks, len(blocks) * self._block_size)

    def _keys_of(self, live: LiveRequest) -> list[Key]:
        if live.keys is None:
            if self._keys.worth_collecting:
                self._forget_unused_keys()
            output = live.request.output
            # The last token is never computed; it may be the next one that a name includes.
            live.keys = self._name_blocks(
                live.request, output if self._looks_ahead else output[:-1]
            )
        return live.keys

    def _name_blocks(self, request: EngineRequest, output: Sequence[int]) -> list[Key]:
        """Keys of all full blocks of the prompt and of so much of the output.

        A block whose name includes the next token is what the tokens from the second on make up,
        as far as that next one, under a root that stands for the first.
        """
        prompt, extra_key = request.prompt, request.extra_key
        if self._looks_ahead:
            prompt, extra_key = drop_first(prompt), (*extra_key, next(iter(prompt)))
        return self._keys.of(prompt, output, extra_key)

    def _forget_unused_keys(self) -> None:
        """Keep the memory for block identities in proportion to what is cached and wanted."""
        wanted = [live.keys for live in self.lives() if live.keys]
        below = self._tiers.units_of_the_device() if self._tiers else ()
        self._keys.forget_all_but(chain(self._cached_names(), below, *wanted))

    def _cached_names(self) -> Iterable[Key]:
        return map(self._name_of, self.pool.keys())

    def _name_of(self, key: Key) -> Key:
        """The name that a request has for a block which the pool knows by a key."""
        return key

    # Counting.

    def _counts_as_resumed(self, live: LiveRequest) -> bool | None:
        """How a look-up is counted; None: not at all."""
        if not live.admissions or self.rules.resumed_count_as_first:
            return False
        return True if self.rules.counts_resumed else None

    def _count_look_up(self, live: LiveRequest, hit: int) -> None:
        resumed = self._counts_as_resumed(live)
        if resumed is not None:
            self.stats.count_look_up(live.known_len, hit, resumed=resumed)

    def _record_admission(self, live: LiveRequest, hit: int, plan: StepPlan) -> None:
        rules = self.rules
        if rules.caches and not rules.counts_look_ups:
            self._count_look_up(live, hit)
        if rules.caches and not live.admissions:
            self.stats.prefix_cache.record_query(live.known_len, hit // self._block_size)
        hits = plan.resume_hits if live.admissions else plan.hits
        hits[live.request_id] = hit
        live.admissions += 1

    # Blocks of one request.

    def blocks_for(self, length: int) -> int:
        """Blocks that `length` tokens take."""
        return blocks_of(self.rules, length)

    def _has_room(self, found: Found, length: int) -> bool:
        """Whether `length` tokens fit; what fits without any hit is not asked twice."""
        needed, free, blocks = self.blocks_for(length), self.pool.free_blocks, found.blocks
        return needed <= free or leaves_room(
            needed, len(blocks), self.pool.idle_count(blocks), free
        )

    def _len_at_start(self, live: LiveRequest, found: Found) -> int:
        """Tokens that need not be computed when the request starts with these found blocks."""
        start = self._len_on_device(live, found)
        return self._tiers.reach(live, start) if self._tiers else start

    def _len_on_device(self, live: LiveRequest, found: Found) -> int:
        return start_len(self.rules, live.known_len, found.hit_len, live.admissions)

    def _start(self, live: LiveRequest, found: Found, start: int, plan: StepPlan) -> None:
        """Hold the found blocks for a request that computes from `start` on; record it."""
        live.computed_len = start
        if self._tiers:
            self._load(live, found.hit_len, self._len_on_device(live, found), plan)
        self._record_admission(live, found.hit_len, plan)
        self._hold(live, found)

    def _hold(self, live: LiveRequest, found: Found) -> None:
        self.pool.hold(found.blocks)
        live.blocks = found.blocks

    def _load(self, live: LiveRequest, hit: int, on_device: int, plan: StepPlan) -> None:
        """Take from the tiers below what the device has not."""
        assert self._tiers is not None
        tokens, load_ns = self._tiers.admit(
            live, hit, on_device, resumed=self._counts_as_resumed(live)
        )
        if tokens:
            plan.tier_hits[live.request_id] = tokens
            plan.load_ns += load_ns

    def _grow(self, live: LiveRequest, end: int) -> bool:
        """Give the request blocks for its first `end` tokens, and publish what the step fills.

        False, and nothing done, when the pool has not enough of them.
        """
        held = len(live.blocks) + live.keyless_blocks
        missing = self.blocks_for(end + self.rules.draft_tokens) - held
        if missing > 0:
            if missing > self.pool.free_blocks:
                return False
            self.pool.take(missing)
            live.keyless_blocks += missing
            if self.pool.lost_keys:
                self._hand_down_lost_keys()
        if self.rules.publishes_at_schedule:
            self._publish(live, end)
        self._settle(live)
        return True

    def _hand_down_lost_keys(self) -> None:
        assert self._tiers is not None
        assert self.pool.lost_keys is not None
        self._tiers.take_lost(self.pool.lost_keys)
        self.pool.lost_keys.clear()

    def _settle(self, live: LiveRequest) -> None:
        live.settled_len = settled_len(self.rules, len(live.blocks), live.keyless_blocks)

    def _publish(self, live: LiveRequest, end: int) -> None:
        """Make the full blocks within the first `end` tokens findable, as far as they have names.

        With look-ahead a name includes the next token, which must be known.
        """
        if self._looks_ahead:
            end = min(end, live.known_len - 1)
        first, full = len(live.blocks), end // self._block_size
        if full > first and self.rules.caches:
            live.blocks += self.pool.publish(self._keys_of(live)[first:full])
            live.keyless_blocks -= full - first

    def _publish_computed(self, lives: Iterable[LiveRequest]) -> None:
        """A sampled token may be the next one that a computed block's name still lacked."""
        for live in lives:
            self._publish(live, live.computed_len)
            self._settle(live)

    def _release(self, live: LiveRequest) -> None:
        self.pool.release(live.blocks, live.keyless_blocks)
        live.blocks = []
        live.keyless_blocks = live.computed_len = live.settled_len = 0
        if self._tiers:
            self._tiers.forget(live)
