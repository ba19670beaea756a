"""A script played by the compiled step loop: the engine's own steps, sooner.

`play` says where this path may be taken. Requests become arrays, `array_keys` names their blocks,
`array_steps` takes as many steps in a call as its log holds, and the log becomes outcomes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, chain, compress
from types import ModuleType
from typing import Any

from prefixbench.simulator import array_keys, array_pool, array_steps, step_rules
from prefixbench.simulator.array_keys import KEY_FIELDS, KEYED_FIELDS, KeyArrays, name_blocks
from prefixbench.simulator.array_pool import (
    LIVE_FIELDS,
    LOG_FIELDS,
    NO_KEY,
    NOW_FIELDS,
    SLOT_FIELDS,
    AdmissionRow,
    EngineArrays,
    EntryRow,
    StepLog,
    StepRow,
)
from prefixbench.simulator.array_steps import run_steps
from prefixbench.simulator.compiled import compiled_entry, integers, rings, rows, zeros
from prefixbench.simulator.cost import work_of_steps
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.script import Script
from prefixbench.simulator.stats import EngineStats, PrefixCacheStats
from prefixbench.simulator.step_rules import PagedRules, paged_rules
from prefixbench.simulator.stepping import CacheContents
from prefixbench.simulator.tokens import all_runs_of

#: The functions that are compiled together, those that are called first.
_MODULES: tuple[ModuleType, ...] = (step_rules, array_keys, array_pool, array_steps)
#: Steps and scheduled requests that one call logs; enough to forget what a call costs.
_LOGGED_STEPS, _LOGGED_ENTRIES = 1 << 14, 1 << 17


class CompiledPlay:
    """One play of a script under an engine's profile and options; the engine itself stays unused.

    Raises LengthError for a request that could never run, before the first step.
    """

    def __init__(self, engine: Engine, script: Script) -> None:
        self._options = engine.options
        self._requests = [engine.accept(request) for request in script.requests]
        self._rules = paged_rules(engine.profile, engine.options)
        self._stats = EngineStats(PrefixCacheStats(self._rules.block_size))
        self._arrays = _engine_arrays(self._rules, self._requests, script)

    def steps(self) -> Iterator[StepOutcome]:
        """What `Engine.step` returns, step by step; equal steps in a row are one outcome."""
        run = _compile(run_steps)
        names = [request.request_id for request in self._requests]
        log = self._arrays.log
        run(self._arrays)
        while log.used.steps:
            yield from self._logged(log, names)
            run(self._arrays)

    def stats(self) -> EngineStats:
        """As `Engine.stats`, up to the outcome that was last taken; look-ups run ahead of it."""
        now, stats = self._arrays.now, self._stats
        stats.queries, stats.hits = int(now.queries), int(now.hits)
        stats.preempted_queries = int(now.preempted_queries)
        stats.preempted_hits = int(now.preempted_hits)
        return stats

    def cache_contents(self) -> CacheContents:
        """As `Engine.cache_contents`, after the last step."""
        carried = self._arrays.slots.key
        carried = carried[carried != NO_KEY].tolist()
        now = self._arrays.now
        return CacheContents(
            len(carried), len(set(carried)), int(now.evicted_blocks), int(now.evicted_keys)
        )

    def _logged(self, log: StepLog, names: Sequence[str]) -> Iterator[StepOutcome]:
        """The steps in the log as outcomes, counted as they are given out."""
        used, bounded = log.used, self._options.capacity_blocks is not None
        ids = [names[number] for number in log.entries.request[: used.entries].tolist()]
        tokens = log.entries.tokens[: used.entries].tolist()
        sampled = log.entries.sampled[: used.entries].tolist()
        admissions = [AdmissionRow(*row) for row in log.admissions[: used.admissions].tolist()]
        finished = [names[number] for number in log.finished[: used.finished].tolist()]
        preempted = [names[number] for number in log.preempted[: used.preempted].tolist()]
        begin = StepRow(*[0] * len(StepRow._fields))
        for end in map(StepRow._make, log.steps[: used.steps].tolist()):
            scheduled = ids[begin.entries : end.entries]
            scheduled_tokens = tokens[begin.entries : end.entries]
            prefilled = sum(scheduled_tokens) - end.decoded
            came = admissions[begin.admissions : end.admissions]
            outcome = StepOutcome(
                scheduled=dict(zip(scheduled, scheduled_tokens, strict=True)),
                hits={names[row.request]: row.hit for row in came if not row.resumed},
                resume_hits={names[row.request]: row.hit for row in came if row.resumed},
                sampled=list(compress(scheduled, sampled[begin.entries : end.entries])),
                finished=finished[begin.finished : end.finished],
                preempted=preempted[begin.preempted : end.preempted],
                evicted_blocks=end.evicted_blocks,
                evicted_keys=end.evicted_keys,
                free_blocks=end.free_blocks if bounded else None,
                running=end.running,
                waiting=end.waiting,
                duration_ns=0,
                tier_hits={},
                work=work_of_steps(prefilled, end.decoded, 0, end.times),
                times=end.times,
            )
            self._count(outcome, prefilled, end.decoded, came)
            yield outcome
            begin = end

    def _count(
        self,
        outcome: StepOutcome,
        prefilled: int,
        decoded: int,
        admissions: Sequence[AdmissionRow],
    ) -> None:
        stats = self._stats
        stats.scheduler.record_steps(prefilled, decoded, outcome.duration_ns, outcome.times)
        stats.scheduler.num_preemptions += len(outcome.preempted)
        stats.prefix_cache.record_eviction(outcome.evicted_blocks)
        for row in admissions if self._rules.caches else ():
            if not row.resumed:
                prompt_len = len(self._requests[row.request].prompt)
                stats.prefix_cache.record_query(prompt_len, row.hit // self._rules.block_size)


def _compile(entry: Callable[..., Any]) -> Any:
    return compiled_entry(entry, _MODULES)


def _engine_arrays(
    rules: PagedRules, requests: Sequence[EngineRequest], script: Script
) -> EngineArrays:
    """An idle engine and the requests that it will serve."""
    count = len(requests)
    prompt_lens = [len(request.prompt) for request in requests]
    final_lens = [
        prompt + len(request.output) for prompt, request in zip(prompt_lens, requests, strict=True)
    ]
    first_keys = _ends([(length - 1) // rules.block_size for length in final_lens])
    keys, key_count = _block_keys(rules.block_size, requests, first_keys)
    # Each request holds its full blocks and one more; an engine without limit needs no others.
    slot_count = min(rules.capacity_blocks, first_keys[-1] + count)
    return EngineArrays(
        rules=rules,
        now=rows(1, NOW_FIELDS, blank_blocks=[rules.capacity_blocks])[0],
        lives=rows(
            count,
            LIVE_FIELDS,
            prompt_len=prompt_lens,
            known_len=prompt_lens,
            final_len=final_lens,
            first_key=first_keys[:-1],
            priority=[request.priority for request in requests],
            arrive_step=script.each_arrive_step(),
            most_in_flight=script.each_most_in_flight(),
        ),
        keys=keys,
        blocks=zeros(len(keys), short=True),
        slots=rows(slot_count, SLOT_FIELDS, key=[NO_KEY]),
        queue=rings(slot_count + 2, joined=slot_count + 1),  # all slots are spare
        copies=rings(slot_count + key_count),
        line=rings(count + 1),
        running=zeros(min(rules.seats, count), short=True),
        log=_empty_log(min(rules.seats, count)),
    )


def _empty_log(most_running: int) -> StepLog:
    entries = max(_LOGGED_ENTRIES, most_running)
    return StepLog(
        used=rows(1, LOG_FIELDS)[0],
        begun=rows(1, LOG_FIELDS)[0],
        steps=rows(_LOGGED_STEPS, StepRow._fields),
        entries=rows(entries, EntryRow._fields),
        admissions=rows(entries, AdmissionRow._fields),
        finished=zeros(entries),
        preempted=zeros(entries),
    )


def _block_keys(
    block_size: int, requests: Sequence[EngineRequest], first_keys: Sequence[int]
) -> tuple[Any, int]:
    """The keys of all requests' full blocks, and how many keys there are."""
    starts: list[int] = []
    stops: list[int] = []
    first_runs = [0]
    roots: dict[Any, int] = {}
    root_of = [roots.setdefault(request.extra_key, len(roots)) for request in requests]
    for request in requests:
        # The last token is never computed.
        for run in chain(all_runs_of(request.prompt), all_runs_of(request.output[:-1])):
            starts.append(run.start)
            stops.append(run.stop)
        first_runs.append(len(starts))
    most_keys = len(roots) + len(starts) + first_keys[-1]
    arrays = KeyArrays(
        block_size=block_size,
        roots=len(roots),
        requests=rows(
            len(first_runs),
            KEYED_FIELDS,
            root=[*root_of, 0],
            first_run=first_runs,
            first_key=first_keys,
        ),
        starts=integers(starts),
        stops=integers(stops),
        keys=zeros(first_keys[-1], short=True),
        known=rows(most_keys, KEY_FIELDS),
        buckets=zeros(1 << (2 * most_keys).bit_length(), short=True),
    )
    return arrays.keys, int(_compile(name_blocks)(arrays))


def _ends(lengths: Sequence[int]) -> list[int]:
    """0, and where each part ends."""
    return [*accumulate(lengths, initial=0)]
