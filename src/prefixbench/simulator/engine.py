"""One engine: requests go in, steps come out, on a clock.

The same object serves an offline simulation (virtual clock) and a live server (real clock): the
caller submits requests when they arrive and asks for a step whenever there is work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from prefixbench.core.clock import Clock, VirtualClock
from prefixbench.core.errors import ConfigError, ErrorContext, LengthError, Stage
from prefixbench.core.wording import plural
from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.cost import CostModel, Work, work_of_steps
from prefixbench.simulator.grouped import GroupedScheduler
from prefixbench.simulator.paged import PagedScheduler
from prefixbench.simulator.phased import PhasedScheduler
from prefixbench.simulator.profile import EngineProfile, get_profile
from prefixbench.simulator.request import EngineRequest, LiveRequest
from prefixbench.simulator.rules import CacheKind, Role, StateNaming, TierRules
from prefixbench.simulator.scheduler import MixedScheduler
from prefixbench.simulator.slots import SlotScheduler
from prefixbench.simulator.stats import EngineStats
from prefixbench.simulator.stepping import (
    CacheContents,
    PoolView,
    Scheduler,
    SchedulerOptions,
    StepPlan,
)
from prefixbench.simulator.tier_store import TierStore
from prefixbench.simulator.tiers import open_tiers
from prefixbench.simulator.tree_scheduler import TreeScheduler
from prefixbench.simulator.waiting import Policy


class StepOutcome(NamedTuple):
    """What happened in one step; requests are named by their ids.

    The order of `scheduled` counts: running requests first, then admitted ones. `hits` are tokens
    found cached by requests admitted for the first time, `resume_hits` by those that had been
    preempted; `tier_hits` are tokens that admitted requests found below the device, by tier.
    `free_blocks` is None for a cache without limit. The outcome holds for `times` equal
    steps in a row, which took `duration_ns` together.
    """

    scheduled: dict[str, int]
    hits: dict[str, int]
    resume_hits: dict[str, int]
    sampled: list[str]
    finished: list[str]
    preempted: list[str]
    evicted_blocks: int
    evicted_keys: int
    free_blocks: int | None
    running: int
    waiting: int
    duration_ns: int
    tier_hits: dict[str, dict[str, int]]
    work: Work
    times: int = 1


class Engine:
    """A simulated inference engine under one profile.

    What is not given comes from the profile: block size, token budget, seats, tiers. A cache
    without `capacity_blocks` never evicts. `overlap` (scheduling a step before the results of the
    one before are processed) matters to engines with a radix tree only. `tiers` are the caches
    below the device's, the nearest first; a `TierStore` among them may serve other engines too.
    """

    def __init__(
        self,
        profile: EngineProfile | str,
        capacity_blocks: int | None = None,
        max_num_batched_tokens: int | None = None,
        max_num_seqs: int | None = None,
        *,
        block_size: int | None = None,
        chunked_prefill: bool = True,
        long_prefill_token_threshold: int = 0,
        policy: Policy | str = Policy.FCFS,
        prefix_caching: bool = True,
        overlap: bool = True,
        tiers: Sequence[TierRules | TierStore] | None = None,
        cost: CostModel = CostModel.ORDER_ONLY,
        clock: Clock | None = None,
    ) -> None:
        self.profile = get_profile(profile) if isinstance(profile, str) else profile
        block_size = block_size or self.profile.block_size
        self.options = SchedulerOptions(
            max_num_batched_tokens=max_num_batched_tokens or self.profile.max_num_batched_tokens,
            max_num_seqs=max_num_seqs or self.profile.max_num_seqs,
            block_size=block_size,
            capacity_blocks=capacity_blocks,
            chunked_prefill=chunked_prefill,
            long_prefill_token_threshold=long_prefill_token_threshold,
            policy=Policy(policy),
            prefix_caching=prefix_caching,
            overlap=overlap,
            stores=open_tiers(self.profile.tiers if tiers is None else tiers, block_size),
        )
        self.cost = cost
        self._order_only = cost == CostModel.ORDER_ONLY
        self.clock: Clock = clock or VirtualClock()
        self._scheduler = _make_scheduler(self.profile, self.options, self.clock)
        self._live: dict[str, LiveRequest] = {}
        self._submitted = 0

    @property
    def has_work(self) -> bool:
        return bool(self._live)

    @property
    def is_unused(self) -> bool:
        """Whether no request was ever submitted."""
        return not self._submitted

    def submit(self, request: EngineRequest) -> None:
        """Queue a request; the order of submission is the order of arrival.

        Raises LengthError for a request that could never run, ValueError for an id in use.
        """
        if request.request_id in self._live:
            raise ValueError(f"request {request.request_id} is not finished yet")
        live = LiveRequest(self.accept(request), self._submitted)
        self._submitted += 1
        self._live[request.request_id] = live
        self._scheduler.submit(live)

    def accept(self, request: EngineRequest) -> EngineRequest:
        """A request as this engine serves it: a prefill engine ends with the first token.

        Raises LengthError for one that could never run.
        """
        if self.profile.role is Role.PREFILL:
            request = replace(request, output=request.output[:1])
        self._refuse_what_never_fits(request)
        return request

    def step(self, limit: int = 1) -> StepOutcome:
        """Schedule, compute and complete one step; a virtual clock moves by its duration.

        With a `limit` above 1, steps that only decode and are equal to this one are taken with it,
        up to so many in all: the caller promises that nothing arrives in between.
        """
        scheduler = self._scheduler
        blocks_before, keys_before = scheduler.evictions
        plan = scheduler.schedule()
        context_tokens = self._context_tokens(plan)
        scheduler.complete(plan)
        for request_id in plan.finished:
            del self._live[request_id]
        blocks_after, keys_after = scheduler.evictions
        evicted_blocks = blocks_after - blocks_before
        scheduler.stats.prefix_cache.record_eviction(evicted_blocks)
        times = 1
        if limit > 1 and not evicted_blocks:
            times += scheduler.repeat(plan, limit - 1)
        duration_ns, work = self._book(plan, context_tokens, times)
        return StepOutcome(
            scheduled=plan.scheduled,
            hits=plan.hits,
            resume_hits=plan.resume_hits,
            sampled=plan.sampled,
            finished=plan.finished,
            preempted=plan.preempted,
            evicted_blocks=evicted_blocks,
            evicted_keys=keys_after - keys_before,
            free_blocks=None if self.options.capacity_blocks is None else scheduler.free_blocks,
            running=scheduler.running_count,
            waiting=scheduler.waiting_count,
            duration_ns=duration_ns,
            tier_hits=plan.tier_hits,
            work=work,
            times=times,
        )

    def stats(self) -> EngineStats:
        """All counters since the engine was made; the object goes on counting."""
        return self._scheduler.stats

    def cache_contents(self) -> CacheContents:
        """What the cache holds now; walks the whole cache."""
        return self._scheduler.contents()

    def pool_view(self) -> PoolView | None:
        """The blocks of the device, one by one; None for a cache that is a tree."""
        return self._scheduler.view() if isinstance(self._scheduler, PagedScheduler) else None

    def block_keys(self, request: EngineRequest) -> list[Key]:
        """Names of a request's full blocks, its answer included; a tree names none.

        Blocks of different requests have the same name where they are the same block.
        """
        scheduler = self._scheduler
        return scheduler.block_keys(request) if isinstance(scheduler, PagedScheduler) else []

    @property
    def running_count(self) -> int:
        return self._scheduler.running_count

    @property
    def waiting_count(self) -> int:
        return self._scheduler.waiting_count

    @property
    def kv_usage(self) -> float:
        """Share of blocks that requests hold; cached blocks that nobody holds count as free.

        vLLM's `kv_cache_usage_perc` (0.10 to 0.33). 0 for a cache without limit.
        """
        capacity = self.options.capacity_blocks
        return 1 - self._scheduler.free_blocks / capacity if capacity else 0.0

    def reset_prefix_cache(self) -> bool:
        """Make nothing findable; refused (False) while a request holds blocks.

        vLLM's `/reset_prefix_cache` (0.9 to 0.33): counters go on.
        """
        return self._scheduler.forget_all()

    def abort(self, request_id: str) -> bool:
        """Drop an unfinished request; False when there is none of this id."""
        live = self._live.pop(request_id, None)
        if live is not None:
            self._scheduler.abort(live)
        return live is not None

    def check_integrity(self) -> None:
        """Raise AssertionError when the engine contradicts itself; for tests, after every step."""
        self._scheduler.check_integrity()
        lives = self._scheduler.lives()
        assert sorted(live.request_id for live in lives) == sorted(self._live)

    def _context_tokens(self, plan: StepPlan) -> int:
        """KV that the step reads and writes; not worth a walk when it costs nothing."""
        if not self.cost.context_token_ns:
            return 0
        return sum(plan.scheduled.values()) + sum(live.computed_len for live in plan.lives)

    def _book(self, plan: StepPlan, context_tokens: int, times: int) -> tuple[int, Work]:
        """Count `times` equal steps and move the clock; returns their duration and their work."""
        stats = self._scheduler.stats.scheduler
        decoded = plan.decoded_tokens
        prefilled = sum(plan.scheduled.values()) - decoded
        work = work_of_steps(prefilled, decoded, context_tokens, times)
        duration_ns = round(plan.load_ns)
        if not self._order_only:
            duration_ns += self.cost.price_ns(work)
        if duration_ns and isinstance(self.clock, VirtualClock):
            self.clock.advance(duration_ns)
        stats.record_steps(prefilled, decoded, duration_ns, times)
        stats.num_preemptions += len(plan.preempted)
        return duration_ns, work

    def _refuse_what_never_fits(self, request: EngineRequest) -> None:
        """A request that could never run would wait forever, and all others behind it."""
        if not request.prompt or not request.output:
            raise _length_error(
                request,
                "a request has at least one prompt and one output token",
                hint="leave it out: servers refuse it",
            )
        options = self.options
        # A tree engine admits only what leaves a page free beside whole pages for the prompt.
        longest = len(request.prompt) + len(request.output) + self.profile.draft_tokens
        longest += 2 * options.block_size if self.profile.cache is CacheKind.TREE else -1
        capacity = options.capacity_blocks
        if capacity is not None and self._scheduler.blocks_for(longest) > capacity:
            raise _length_error(
                request, f"{plural(longest, 'token')} do not fit into {plural(capacity, 'block')}"
            )
        if not options.chunked_prefill and longest > options.max_num_batched_tokens:
            raise _length_error(request, f"{longest} tokens do not fit into one step, unchunked")


def _make_scheduler(profile: EngineProfile, options: SchedulerOptions, clock: Clock) -> Scheduler:
    if not profile.is_simulated:
        raise ConfigError(
            f"profile {profile.name} is described in the table and not simulated",
            context=ErrorContext(stage=Stage.SIMULATE, field="engine_profile"),
            hint="`simulate --profile list` shows the profiles and their rules",
        )
    _refuse_groups(profile, options)
    make: Callable[[EngineProfile, SchedulerOptions, Callable[[], int]], Scheduler]
    policies: tuple[Policy, ...]
    if profile.cache is CacheKind.TREE:
        make, policies = TreeScheduler, (Policy.FCFS, Policy.LPM, Policy.DFS_WEIGHT)
    elif profile.cache is CacheKind.SLOTS:
        make, policies = SlotScheduler, (Policy.FCFS,)
    elif profile.groups:
        make, policies = GroupedScheduler, (Policy.FCFS, Policy.PRIORITY)
    elif profile.mixed_steps:
        make, policies = MixedScheduler, (Policy.FCFS, Policy.PRIORITY)
    else:
        make, policies = PhasedScheduler, (Policy.FCFS,)
    if options.policy not in policies:
        raise ConfigError(
            f"profile {profile.name} has no policy {options.policy}",
            context=ErrorContext(stage=Stage.SIMULATE, field="policy"),
            hint=f"one of {', '.join(policies)}",
        )
    return make(profile, options, clock.now_ns)


def _refuse_groups(profile: EngineProfile, options: SchedulerOptions) -> None:
    """Say which KV groups are not simulated, or not together with something else."""
    context = ErrorContext(stage=Stage.SIMULATE, field="engine_profile")
    if profile.groups and (options.stores or profile.draft_tokens):
        raise ConfigError(
            "several KV groups are not simulated together with draft tokens or lower tiers",
            context=context,
            hint="leave one of them out of the profile's name",
        )
    knows_states = profile.state_naming is not StateNaming.NOT_SIMULATED
    if not knows_states and any(group.recurrent for group in profile.groups):
        raise ConfigError(
            f"recurrent layers are not simulated under profile {profile.name}",
            context=context,
            hint="vllm-0.32 and vllm-0.33 have their rules",
        )


def _length_error(
    request: EngineRequest,
    message: str,
    *,
    hint: str = "a larger capacity or token budget, or a shorter request",
) -> LengthError:
    return LengthError(
        message,
        context=ErrorContext(stage=Stage.SIMULATE, request_id=request.request_id),
        hint=hint,
    )
