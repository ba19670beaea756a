"""Replay of `prefixbench-replay/1`: requests for a paged engine, and the steps that come out.

Tokens are numbers: segment `["s", seed, length, start]` stands for `seed * 1000000 + start` and so
on; token k that request number j generates is `2000000000 + j * 100000 + k`. Beside the engine's
own settings a file may give `draft_tokens` (speculative decoding) and `groups` of KV, each with its
`window` and `block_size` or without.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any, NamedTuple, Protocol

from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.play import Play, play_script
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.profile import get_profile
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.rules import KVGroup
from prefixbench.simulator.script import Script
from prefixbench.simulator.tokens import TokenRuns

STEPS_FORMAT = "prefixbench-replay/1"

_SEED_STRIDE = 1_000_000
_OUTPUT_BASE, _OUTPUT_STRIDE = 2_000_000_000, 100_000
#: No recorded trace is so long; a replay that is has stopped to make progress.
_MOST_STEPS = 1_000_000

Row = dict[str, Any]


def seed_run(seed: int, length: int, start: int = 0) -> range:
    """The tokens of one `["s", ...]` segment."""
    first = seed * _SEED_STRIDE + start
    return range(first, first + length)


def _output_run(number: int, length: int) -> range:
    first = _OUTPUT_BASE + number * _OUTPUT_STRIDE
    return range(first, first + length)


class StepsReplay(NamedTuple):
    """What a file's `expected` should hold, and the path on which it came out."""

    expected: Row
    path: PlayPath


def replay_steps(trace: Mapping[str, Any], path: PlayPath = PlayPath.AUTO) -> StepsReplay:
    """Replay the steps, in the compact form if the file has that."""
    rows: Sequence[Row] = trace["requests"]
    script = Script(list(_requests_of(rows)), [row["arrive_step"] for row in rows])
    play, taken = play_script(_engine_of(trace), script, path)
    compact = "columns" in (trace.get("expected") or {})
    log: _StepLog = _DigestLog([row["id"] for row in rows]) if compact else _FullLog()
    seen = {row["id"]: _Seen() for row in rows}
    step = 0
    for outcome in play.steps():
        log.add(outcome)
        _watch(seen, step, outcome)
        step += outcome.times
        if step > _MOST_STEPS:
            raise ValueError(f"requests are still unfinished after {step} steps")
    return StepsReplay({**log.result(seen), **_counters(play)}, taken)


def _engine_of(trace: Mapping[str, Any]) -> Engine:
    """The engine of the file's `config`, under the profile of its engine and version."""
    config = dict(trace["config"])
    config.pop("max_model_len", None)  # no request of a trace reaches it
    version = ".".join(trace["engine_version"].split(".")[:2])
    profile = replace(
        get_profile(f"{trace['engine']}-{version}"),
        draft_tokens=config.pop("draft_tokens", 0),
        groups=tuple(KVGroup(**row) for row in config.pop("groups", ())),
    )
    return Engine(
        profile,
        capacity_blocks=config.pop("usable_blocks"),
        chunked_prefill=config.pop("enable_chunked_prefill", True),
        prefix_caching=config.pop("enable_prefix_caching", True),
        **config,
    )


def _requests_of(rows: Sequence[Row]) -> Iterator[EngineRequest]:
    number_of = {row["id"]: number for number, row in enumerate(rows)}
    for number, row in enumerate(rows):
        segments = (
            seed_run(*segment) if kind == "s" else _output_run(number_of[segment[0]], segment[1])
            for kind, *segment in row["prompt"]
        )
        yield EngineRequest(
            request_id=row["id"],
            prompt=TokenRuns(segments),
            output=_output_run(number, row["max_tokens"]),
            extra_key=() if row.get("salt") is None else (row["salt"],),
            priority=row.get("priority") or 0,
        )


@dataclass(slots=True)
class _Seen:
    """What happened to one request."""

    hit: int = 0
    first_scheduled_step: int = 0
    finish_step: int = 0
    preemptions: int = 0
    resume_hits: list[int] = field(default_factory=list)

    def row(self) -> Row:
        names = ("hit", "first_scheduled_step", "finish_step", "preemptions")
        row = {name: getattr(self, name) for name in names}
        return row | {"resume_hits": self.resume_hits} if self.resume_hits else row


def _watch(seen: Mapping[str, _Seen], step: int, outcome: StepOutcome) -> None:
    for request_id, hit in outcome.hits.items():
        seen[request_id].hit = hit
        seen[request_id].first_scheduled_step = step
    for request_id, hit in outcome.resume_hits.items():
        seen[request_id].resume_hits.append(hit)
    for request_id in outcome.preempted:
        seen[request_id].preemptions += 1
    for request_id in outcome.finished:
        seen[request_id].finish_step = step


def _counters(play: Play) -> Row:
    stats, cache = play.stats(), play.cache_contents()
    return {
        "queries": stats.queries,
        "hits": stats.hits,
        "preempted_queries": stats.preempted_queries,
        "preempted_hits": stats.preempted_hits,
        "preemptions": stats.scheduler.num_preemptions,
        "evicted_blocks": cache.evicted_blocks,
        "evicted_keys": cache.evicted_keys,
        "cached_blocks": cache.cached_blocks,
        "cached_keys": cache.cached_keys,
    }


class _StepLog(Protocol):
    def add(self, outcome: StepOutcome) -> None: ...
    def result(self, seen: Mapping[str, _Seen]) -> Row: ...


class _FullLog:
    """One entry a step; equal neighbours become one entry with `times`."""

    def __init__(self) -> None:
        self._entries: list[Row] = []
        self._last: Row = {}

    def add(self, outcome: StepOutcome) -> None:
        entry: Row = {"scheduled": outcome.scheduled}
        rare = {
            "preempted": outcome.preempted,
            "finished": outcome.finished,
            "evicted": outcome.evicted_blocks,
        }
        entry.update((name, value) for name, value in rare.items() if value)
        entry |= {
            "free_blocks": outcome.free_blocks,
            "running": outcome.running,
            "waiting": outcome.waiting,
        }
        if entry == self._last and list(entry["scheduled"]) == list(self._last["scheduled"]):
            times = self._entries[-1].get("times", 1) + outcome.times
            self._entries[-1]["times"] = times
            return
        self._last = entry
        self._entries.append(entry | ({"times": outcome.times} if outcome.times > 1 else {}))

    def result(self, seen: Mapping[str, _Seen]) -> Row:
        requests = {request_id: row.row() for request_id, row in seen.items()}
        return {"steps": self._entries, "requests": requests}


class _DigestLog:
    """The SHA-256 of one line a step, `number:tokens number:tokens ...|free_blocks`."""

    def __init__(self, request_ids: Sequence[str]) -> None:
        self._number_of = {request_id: number for number, request_id in enumerate(request_ids)}
        self._decode_of = {
            request_id: f"{number}:1" for request_id, number in self._number_of.items()
        }
        self._digest = sha256()
        self._lines: list[str] = []
        self._steps = 0

    def add(self, outcome: StepOutcome) -> None:
        number_of, decode_of = self._number_of, self._decode_of
        entries = [
            decode_of[request_id] if tokens == 1 else f"{number_of[request_id]}:{tokens}"
            for request_id, tokens in outcome.scheduled.items()
        ]
        line = f"{' '.join(entries)}|{outcome.free_blocks}\n"
        self._lines += [line] * outcome.times
        if len(self._lines) > 1000:
            self._flush()

    def _flush(self) -> None:
        self._digest.update("".join(self._lines).encode())
        self._steps += len(self._lines)
        self._lines.clear()

    def result(self, seen: Mapping[str, _Seen]) -> Row:
        names = ("hit", "first_scheduled_step", "finish_step", "preemptions")
        self._flush()
        columns = {name: [getattr(row, name) for row in seen.values()] for name in names}
        return {
            "step_count": self._steps,
            "steps_sha256": self._digest.hexdigest(),
            "columns": columns,
        }
