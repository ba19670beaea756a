"""Rules of a paged engine's step that are arithmetic: one place for the readable and compiled path.

Numbers only, so that the same functions can be compiled. What a request is given, what it may find
and whether it fits is decided here; who is asked in which order is up to the schedulers. Read in
vLLM 0.9 to 0.33, executed 0.18 to 0.33. Counts are tokens unless named blocks.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

from prefixbench.simulator.rules import (
    Counting,
    EngineProfile,
    KeylessFreed,
    LastToken,
    PartialBlock,
    PublishPoint,
    Readmission,
    Role,
    SelfPreemption,
)
from prefixbench.simulator.stepping import SchedulerOptions
from prefixbench.simulator.waiting import Policy


class PagedRules(NamedTuple):
    """What a profile and an operator's options mean to a paged engine.

    `kept_back` tokens of a prompt never hit; `roomless` tokens of a last block take no room.
    """

    block_size: int
    capacity_blocks: int
    draft_tokens: int
    budget: int
    seats: int
    chunk_threshold: int
    lone_ignores_threshold: bool
    chunks_prompts: bool
    caches: bool
    kept_back: int
    roomless: int
    keyless_to_front: bool
    publishes_at_schedule: bool
    reserves_whole_prompt: bool
    prompt_is_handed_over: bool
    counts_look_ups: bool
    counts_resumed: bool
    resumed_count_as_first: bool
    by_priority: bool
    self_preemption_ends_pass: bool


def paged_rules(profile: EngineProfile, options: SchedulerOptions) -> PagedRules:
    """The one reading of a paged profile that all schedulers follow."""
    capacity, block_size = options.capacity_blocks, options.block_size
    return PagedRules(
        block_size=block_size,
        capacity_blocks=sys.maxsize if capacity is None else capacity,
        draft_tokens=profile.draft_tokens,
        budget=options.max_num_batched_tokens,
        seats=options.max_num_seqs,
        chunk_threshold=options.long_prefill_token_threshold,
        lone_ignores_threshold=profile.lone_ignores_threshold,
        chunks_prompts=options.chunked_prefill,
        caches=options.prefix_caching,
        kept_back=1 if profile.last_token is LastToken.COMPUTED else 0,
        roomless=block_size - 1 if profile.partial_block is PartialBlock.NO_ROOM else 0,
        keyless_to_front=profile.keyless_freed is not KeylessFreed.BACK,
        publishes_at_schedule=profile.publish is PublishPoint.SCHEDULE,
        reserves_whole_prompt=profile.reserve_whole_prompt,
        prompt_is_handed_over=profile.role is Role.DECODE,
        counts_look_ups=profile.counting is Counting.LOOK_UP,
        counts_resumed=profile.readmission is not Readmission.NOT_COUNTED,
        resumed_count_as_first=profile.readmission is Readmission.COUNTED,
        by_priority=options.policy is Policy.PRIORITY,
        self_preemption_ends_pass=profile.self_preemption is SelfPreemption.ENDS_PASS,
    )


def blocks_of(rules: PagedRules, length: int) -> int:
    """Blocks that so many tokens take."""
    return (length + rules.block_size - 1 - rules.roomless) // rules.block_size


def start_len(rules: PagedRules, known_len: int, hit_len: int, admissions: int) -> int:
    """Tokens that need not be computed when a request starts with so many that were found.

    Where all tokens may hit, the last one is computed again, into the block that holds it.
    """
    if rules.prompt_is_handed_over and not admissions:
        return known_len - 1
    return min(hit_len, known_len - 1)


def longest_chunk(rules: PagedRules, unfinished: int) -> int:
    """The long-prefill threshold; from 0.31 on a request that is alone ignores it."""
    is_exempt = unfinished == 1 and rules.lone_ignores_threshold
    return rules.chunk_threshold if rules.chunk_threshold and not is_exempt else rules.budget


def reserved_len(rules: PagedRules, known_len: int, end: int) -> int:
    """Tokens that must fit before a request starts; a step computes its first `end` ones."""
    needed = end + rules.draft_tokens
    return max(needed, known_len) if rules.reserves_whole_prompt else needed


def leaves_room(needed_blocks: int, found_blocks: int, idle_blocks: int, free_blocks: int) -> bool:
    """Whether a request fits; found blocks that nobody holds leave the free ones too."""
    return needed_blocks - found_blocks + idle_blocks <= free_blocks


def settled_len(rules: PagedRules, keyed_blocks: int, keyless_blocks: int) -> int:
    """Up to so many tokens a request needs no further block, drafts included, and fills none."""
    room = (keyed_blocks + keyless_blocks) * rules.block_size + rules.roomless - rules.draft_tokens
    if not rules.caches:
        return room
    return min(room, (keyed_blocks + 1) * rules.block_size - 1)
