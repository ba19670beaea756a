"""The cache of `paged` and `block_pool` over arrays of integers, to be compiled.

Plain Python on rows and numbers; `array_steps` says when what is done. A block that carries a key
has a slot; one without is a mere count, as in `block_pool`. Lists are rings of links: each list has
a place of its own behind the items, which stands before its first item and after its last one.
Slots that nobody holds are in the ring of free blocks or of spare slots, and those with a key in
the ring of that key, the oldest copy first.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from prefixbench.simulator.step_rules import (
    PagedRules,
    blocks_of,
    settled_len,
)

BEFORE, AFTER = 0, 1
NO_KEY = -1

LIVE_FIELDS = (
    "prompt_len", "final_len", "known_len", "computed_len", "settled_len", "first_key",
    "keyed_blocks", "keyless_blocks", "admissions", "priority", "arrive_step", "most_in_flight",
)  # fmt: skip
SLOT_FIELDS = ("key", "holders")
NOW_FIELDS = (
    "step", "sent", "in_flight", "running", "waiting", "budget", "chunk", "place",
    "blank_blocks", "queued_blocks", "evicted_blocks", "evicted_keys",
    "queries", "hits", "preempted_queries", "preempted_hits",
)  # fmt: skip


class StepRow(NamedTuple):
    """A logged step; its parts of the other logs begin where those of the step before end.

    `entries`, `admissions`, `finished` and `preempted` are these ends; `sampled` and `decoded` are
    numbers of requests.
    """

    entries: int
    admissions: int
    finished: int
    preempted: int
    sampled: int
    decoded: int
    evicted_blocks: int
    evicted_keys: int
    free_blocks: int
    running: int
    waiting: int
    times: int


class EntryRow(NamedTuple):
    """A scheduled request and its tokens; `sampled` is 1 if a token came out."""

    request: int
    tokens: int
    sampled: int


class AdmissionRow(NamedTuple):
    """An admitted request and the tokens it found; `resumed` is 1 if it had been preempted."""

    request: int
    hit: int
    resumed: int


class StepLog(NamedTuple):
    """What happened, in order: rows of the types above; `finished` and `preempted` are requests.

    `used` is a row of how many rows of each log hold something, `begun` where the current step
    begins. No log is longer than `entries`.
    """

    used: Any
    begun: Any
    steps: Any
    entries: Any
    admissions: Any
    finished: Any
    preempted: Any


LOG_FIELDS = ("steps", "entries", "admissions", "finished", "preempted")


class EngineArrays(NamedTuple):
    """An engine, its requests, and what it did.

    `now` is one row. A request's keys, and the slots of its leading blocks, begin at `first_key`
    of `keys` and `blocks`. `line` links the waiting requests, its place behind them.
    """

    rules: PagedRules
    now: Any
    lives: Any
    keys: Any
    blocks: Any
    slots: Any
    queue: Any
    copies: Any
    line: Any
    running: Any
    log: StepLog


# Look-ups.


def find(engine: EngineArrays, live: Any) -> int:
    """Note the blocks that hold the request's leading tokens; returns how many."""
    if not engine.rules.caches:
        return 0
    found = 0
    limit = (live.known_len - engine.rules.kept_back) // engine.rules.block_size
    while found < limit:
        slot = engine.copies[_key_place(engine, engine.keys[live.first_key + found]), AFTER]
        if slot >= len(engine.slots):  # the ring is empty
            break
        engine.blocks[live.first_key + found] = slot
        found += 1
    if engine.rules.counts_look_ups:
        count_look_up(engine, live, found)
    return found


def count_look_up(engine: EngineArrays, live: Any, found: int) -> None:
    now, rules = engine.now, engine.rules
    hits = found * rules.block_size
    if not live.admissions or rules.resumed_count_as_first:
        now.queries += live.known_len
        now.hits += hits
    elif rules.counts_resumed:
        now.preempted_queries += live.known_len
        now.preempted_hits += hits


def idle_count(engine: EngineArrays, live: Any, found: int) -> int:
    idle = 0
    for index in range(live.first_key, live.first_key + found):
        idle += engine.slots[engine.blocks[index]].holders == 0
    return idle


# Blocks of one request.


def hold(engine: EngineArrays, live: Any, found: int) -> None:
    for index in range(live.first_key, live.first_key + found):
        slot = engine.blocks[index]
        if engine.slots[slot].holders == 0:
            unlink(engine.queue, slot)
            engine.now.queued_blocks -= 1
        engine.slots[slot].holders += 1
    live.keyed_blocks = found


def grow(engine: EngineArrays, live: Any, end: int) -> bool:
    """Give the request blocks for its first `end` tokens, and publish what the step fills."""
    now, rules = engine.now, engine.rules
    missing = blocks_of(rules, end) - live.keyed_blocks - live.keyless_blocks
    if missing > 0:
        if missing > now.blank_blocks + now.queued_blocks:
            return False
        _take(engine, missing)
        live.keyless_blocks += missing
    if rules.publishes_at_schedule:
        publish(engine, live, end)
    else:
        live.settled_len = settled_len(rules, live.keyed_blocks, live.keyless_blocks)
    return True


def publish(engine: EngineArrays, live: Any, end: int) -> None:
    """Make the full blocks within the first `end` tokens findable."""
    rules = engine.rules
    full = end // rules.block_size
    if rules.caches and full > live.keyed_blocks:
        for index in range(live.first_key + live.keyed_blocks, live.first_key + full):
            slot = _new_slot(engine)
            engine.slots[slot].key = engine.keys[index]
            engine.slots[slot].holders = 1
            put_before(engine.copies, _key_place(engine, engine.keys[index]), slot)
            engine.blocks[index] = slot
        live.keyless_blocks -= full - live.keyed_blocks
        live.keyed_blocks = full
    live.settled_len = settled_len(rules, live.keyed_blocks, live.keyless_blocks)


def release(engine: EngineArrays, live: Any) -> None:
    """Give up all blocks: those without a key, then the others, last to first."""
    now = engine.now
    if engine.rules.keyless_to_front:
        now.blank_blocks += live.keyless_blocks
    else:
        for _ in range(live.keyless_blocks):
            put_before(engine.queue, _free_place(engine), _new_slot(engine))
        now.queued_blocks += live.keyless_blocks
    for index in range(live.first_key + live.keyed_blocks - 1, live.first_key - 1, -1):
        slot = engine.blocks[index]
        engine.slots[slot].holders -= 1
        if engine.slots[slot].holders == 0:
            put_before(engine.queue, _free_place(engine), slot)
            now.queued_blocks += 1
    live.keyed_blocks = live.keyless_blocks = live.computed_len = live.settled_len = 0


# The pool.


def _take(engine: EngineArrays, wanted: int) -> None:
    """Hand out blocks without a key; what those from the queue carried is lost."""
    now = engine.now
    blank = min(wanted, now.blank_blocks)
    now.blank_blocks -= blank
    for _ in range(wanted - blank):
        slot = engine.queue[_free_place(engine), AFTER]
        unlink(engine.queue, slot)
        now.queued_blocks -= 1
        _forget(engine, slot)
        put_before(engine.queue, _spare_place(engine), slot)


def _forget(engine: EngineArrays, slot: int) -> None:
    now, key = engine.now, engine.slots[slot].key
    if key == NO_KEY:
        return
    engine.slots[slot].key = NO_KEY
    unlink(engine.copies, slot)
    now.evicted_blocks += 1
    place = _key_place(engine, key)
    now.evicted_keys += engine.copies[place, AFTER] == place


def _new_slot(engine: EngineArrays) -> int:
    slot = engine.queue[_spare_place(engine), AFTER]
    unlink(engine.queue, slot)
    return int(slot)


# Rings of links.


def _spare_place(engine: EngineArrays) -> int:
    return len(engine.slots)


def _free_place(engine: EngineArrays) -> int:
    return len(engine.slots) + 1


def _key_place(engine: EngineArrays, key: int) -> int:
    return len(engine.slots) + key


def put_before(links: Any, place: int, item: int) -> None:
    before = links[place, BEFORE]
    links[before, AFTER] = links[place, BEFORE] = item
    links[item, BEFORE], links[item, AFTER] = before, place


def unlink(links: Any, item: int) -> None:
    before, after = links[item, BEFORE], links[item, AFTER]
    links[before, AFTER], links[after, BEFORE] = after, before
