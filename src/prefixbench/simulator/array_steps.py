"""The step of `scheduler.MixedScheduler` over arrays of integers, many steps in one call.

Plain Python that can be compiled. Rules that are arithmetic stand in `step_rules` for both paths,
and a property test holds the two together step by step. `live`, `entry` and `step` are rows.
"""

from __future__ import annotations

from typing import Any

from prefixbench.simulator.array_pool import (
    AFTER,
    BEFORE,
    EngineArrays,
    count_look_up,
    find,
    grow,
    hold,
    idle_count,
    publish,
    put_before,
    release,
    unlink,
)
from prefixbench.simulator.script import MANY_STEPS
from prefixbench.simulator.step_rules import (
    blocks_of,
    leaves_room,
    longest_chunk,
    reserved_len,
    start_len,
)


def run_steps(engine: EngineArrays) -> None:
    """Take steps, and log them, until every request is served or the log is full."""
    now, log = engine.now, engine.log
    used = log.used
    used.steps = used.entries = used.admissions = used.finished = used.preempted = 0
    while now.sent < len(engine.lives) or now.running + now.waiting > 0:
        longest = max(used.entries, used.preempted) + len(engine.running)
        if used.steps == len(log.steps) or longest > len(log.entries):
            return
        _take_step(engine)


def _take_step(engine: EngineArrays) -> None:
    now, used, begun = engine.now, engine.log.used, engine.log.begun
    _send(engine)
    begun.entries, begun.admissions = used.entries, used.admissions
    begun.finished, begun.preempted = used.finished, used.preempted
    blocks_before, keys_before = now.evicted_blocks, now.evicted_keys
    _schedule(engine)
    step = engine.log.steps[used.steps]
    step.evicted_blocks = now.evicted_blocks - blocks_before
    step.evicted_keys = now.evicted_keys - keys_before
    _complete(engine, step)
    step.times = 1 + _repeat(engine, step)
    step.free_blocks = now.blank_blocks + now.queued_blocks
    step.running, step.waiting = now.running, now.waiting
    step.entries, step.admissions = used.entries, used.admissions
    step.finished, step.preempted = used.finished, used.preempted
    used.steps += 1
    now.step += step.times


# Arrival.


def _send(engine: EngineArrays) -> None:
    """Let requests join the line while their step has come and few enough are on their way."""
    now = engine.now
    while now.sent < len(engine.lives):
        live = engine.lives[now.sent]
        if live.arrive_step > now.step or now.in_flight >= live.most_in_flight:
            return
        _join(engine, now.sent)
        now.in_flight += 1
        now.sent += 1


def _join(engine: EngineArrays, number: int) -> None:
    """The end of the line; by priority, before the first that is less important."""
    line, place = engine.line, len(engine.lives)
    if engine.rules.by_priority:
        while line[place, BEFORE] < len(engine.lives) and _is_before(
            engine, number, line[place, BEFORE]
        ):
            place = line[place, BEFORE]
    put_before(line, place, number)
    engine.now.waiting += 1


def _is_before(engine: EngineArrays, number: int, other: int) -> bool:
    """Order of the priority policy: the smaller (priority, arrival) first."""
    own, others = engine.lives[number].priority, engine.lives[other].priority
    return bool(own < others or (own == others and number < other))


# The step.


def _schedule(engine: EngineArrays) -> None:
    now, rules, log = engine.now, engine.rules, engine.log
    now.budget = rules.budget
    now.chunk = longest_chunk(rules, now.running + now.waiting)
    _schedule_running(engine)
    if log.used.preempted == log.begun.preempted:
        while now.waiting and now.budget and now.running < rules.seats:
            if not _admit(engine, engine.line[len(engine.lives), AFTER]):
                break
    if not rules.publishes_at_schedule:
        for index in range(log.begun.entries, log.used.entries):
            entry = log.entries[index]
            live = engine.lives[entry.request]
            publish(engine, live, live.computed_len + entry.tokens)


def _schedule_running(engine: EngineArrays) -> None:
    now = engine.now
    now.place = 0
    while now.place < now.running and now.budget:
        number = engine.running[now.place]
        live = engine.lives[number]
        tokens = min(live.known_len - live.computed_len, now.chunk, now.budget)
        end = live.computed_len + tokens
        if end <= live.settled_len or grow(engine, live, end) or _make_room(engine, number, end):
            _log_entry(engine, number, tokens)
            now.budget -= tokens
            now.place += 1
        elif engine.rules.self_preemption_ends_pass:
            return


def _make_room(engine: EngineArrays, number: int, end: int) -> bool:
    """Preempt until the request has its blocks; False when it had to go itself."""
    now = engine.now
    while True:
        victim = _pick_victim(engine)
        now.budget += _drop_entry(engine, victim)
        engine.log.preempted[engine.log.used.preempted] = victim
        engine.log.used.preempted += 1
        _preempt(engine, victim)
        if victim == number:
            return False
        if grow(engine, engine.lives[number], end):
            return True


def _pick_victim(engine: EngineArrays) -> int:
    victim = engine.running[engine.now.running - 1]
    if engine.rules.by_priority:
        for index in range(engine.now.running):
            if _is_before(engine, victim, engine.running[index]):
                victim = engine.running[index]
    return int(victim)


def _preempt(engine: EngineArrays, number: int) -> None:
    """Take all blocks back; the request starts anew, with its generated tokens as prompt."""
    now, running = engine.now, engine.running
    place = 0
    while running[place] != number:
        place += 1
    now.running -= 1
    for index in range(place, now.running):
        running[index] = running[index + 1]
    if place < now.place:  # the pass over the running requests is one place further than it was
        now.place -= 1
    release(engine, engine.lives[number])
    if engine.rules.by_priority:
        _join(engine, number)
    else:
        put_before(engine.line, engine.line[len(engine.lives), AFTER], number)
        now.waiting += 1


def _admit(engine: EngineArrays, number: int) -> bool:
    """Start (or restart) the first waiting request if a part of it fits into this step."""
    now, rules, live = engine.now, engine.rules, engine.lives[number]
    found = find(engine, live)
    start = start_len(rules, live.known_len, found * rules.block_size, live.admissions)
    tokens = min(live.known_len - start, now.chunk)
    if tokens > now.budget and not rules.chunks_prompts:
        return False
    tokens = min(tokens, now.budget)
    reserved = blocks_of(rules, reserved_len(rules, live.known_len, start + tokens))
    free = now.blank_blocks + now.queued_blocks
    if not leaves_room(reserved, found, idle_count(engine, live, found), free):
        return False
    unlink(engine.line, number)
    now.waiting -= 1
    engine.running[now.running] = number
    now.running += 1
    live.computed_len = start
    if rules.caches and not rules.counts_look_ups:
        count_look_up(engine, live, found)
    hold(engine, live, found)
    grow(engine, live, start + tokens)
    _log_entry(engine, number, tokens)
    _log_admission(engine, number, found * rules.block_size)
    now.budget -= tokens
    return True


def _complete(engine: EngineArrays, step: Any) -> None:
    """Book what was computed: who samples a token, and who is finished by it."""
    log = engine.log
    step.sampled = step.decoded = 0
    for index in range(log.begun.entries, log.used.entries):
        entry = log.entries[index]
        live = engine.lives[entry.request]
        live.computed_len += entry.tokens
        if live.computed_len == live.known_len:
            step.decoded += entry.tokens == 1 and live.computed_len > live.prompt_len
            step.sampled += 1
            entry.sampled = 1
            live.known_len += 1
            if live.known_len == live.final_len:
                log.finished[log.used.finished] = entry.request
                log.used.finished += 1
    if log.used.finished > log.begun.finished:
        _finish(engine)


def _finish(engine: EngineArrays) -> None:
    """Free the blocks of finished requests, in the order in which they were scheduled."""
    now, log, running = engine.now, engine.log, engine.running
    for index in range(log.begun.finished, log.used.finished):
        release(engine, engine.lives[log.finished[index]])
        now.in_flight -= 1
    kept = 0
    for index in range(now.running):
        live = engine.lives[running[index]]
        if live.known_len < live.final_len:
            running[kept] = running[index]
            kept += 1
    now.running = kept


def _changes_nothing(engine: EngineArrays, step: Any) -> bool:
    """Whether all who were scheduled decoded, and nobody came, went or was pushed back."""
    used, begun = engine.log.used, engine.log.begun
    return bool(
        step.decoded == used.entries - begun.entries
        and used.admissions == begun.admissions
        and used.finished == begun.finished
        and used.preempted == begun.preempted
        and not step.evicted_blocks
    )


def _repeat(engine: EngineArrays, step: Any) -> int:
    """Take more steps that are equal to this one, in which requests only decoded."""
    log = engine.log
    if not _changes_nothing(engine, step):
        return 0
    if engine.rules.counts_look_ups and engine.now.waiting:
        return 0
    limit = _steps_until_arrival(engine) - 1
    for index in range(log.begun.entries, log.used.entries):
        live = engine.lives[log.entries[index].request]
        limit = min(limit, live.settled_len - live.computed_len)
        limit = min(limit, live.final_len - live.known_len - 1)
    for index in range(log.begun.entries, log.used.entries):
        live = engine.lives[log.entries[index].request]
        live.computed_len += limit
        live.known_len += limit
    return limit


def _steps_until_arrival(engine: EngineArrays) -> int:
    now = engine.now
    if now.sent == len(engine.lives):
        return MANY_STEPS
    live = engine.lives[now.sent]
    if now.in_flight >= live.most_in_flight:
        return MANY_STEPS
    return max(int(live.arrive_step - now.step), 1)


# The log of the step.


def _log_entry(engine: EngineArrays, number: int, tokens: int) -> None:
    log = engine.log
    entry = log.entries[log.used.entries]
    entry.request, entry.tokens, entry.sampled = number, tokens, 0
    log.used.entries += 1


def _log_admission(engine: EngineArrays, number: int, hit: int) -> None:
    log, live = engine.log, engine.lives[number]
    row = log.admissions[log.used.admissions]
    row.request, row.hit, row.resumed = number, hit, min(live.admissions, 1)
    log.used.admissions += 1
    live.admissions += 1


def _drop_entry(engine: EngineArrays, number: int) -> int:
    """Take back what a request was given in this step; returns these tokens."""
    log = engine.log
    index = log.begun.entries
    while index < log.used.entries and log.entries[index].request != number:
        index += 1
    if index == log.used.entries:
        return 0
    tokens = log.entries[index].tokens
    for later in range(index, log.used.entries - 1):
        log.entries[later] = log.entries[later + 1]
    log.used.entries -= 1
    return int(tokens)
