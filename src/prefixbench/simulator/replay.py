"""Replay of recorded traces: the same requests, step by step, and the first difference.

Two formats, both JSON objects: `prefixbench-replay/1`, requests for a paged engine with the steps
at which they arrive, and `prefixbench-radix/1`, operations on a radix tree. A replay returns the
file's own form with its results computed anew.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import repeat, zip_longest
from pathlib import Path
from typing import Any

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.replay_radix import RADIX_FORMAT, replay_radix
from prefixbench.simulator.replay_shapes import check_radix_file, check_steps_file
from prefixbench.simulator.replay_steps import STEPS_FORMAT, replay_steps

Trace = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """Where a replay first leaves its file. `step` counts from 0 (operations in a radix file)."""

    field: str
    expected: Any
    got: Any
    step: int | None = None
    request: str | None = None

    def __str__(self) -> str:
        where = [] if self.step is None else [f"step {self.step}"]
        where += [] if self.request is None else [f"request {self.request}"]
        return f"{', '.join([*where, self.field])}: expected {self.expected}, got {self.got}"


@dataclass(frozen=True, slots=True)
class Replay:
    """A replayed trace in its file's form, and where it first differs from the file, if it does.

    `path` says how steps were replayed; operations on a tree have no path but the readable one.
    """

    trace: Trace
    difference: Difference | None
    path: PlayPath


def replay_file(file: Path, *, check: bool = True, path: PlayPath = PlayPath.AUTO) -> Replay:
    """Replay a file; with `check` compare every field with what the file expects.

    `simulate --replay` prints `.trace` (the file's form) or, with `--check`, exits 1 on a
    `.difference`. Raises ConfigError for a file that is no trace or asks for what is not simulated.
    """
    trace = _read(file)
    try:
        replayed, differences, taken = _replay(trace, path)
        if check and not _expects(trace):
            raise ValueError("it expects nothing")
    except ValueError as error:
        raise _refused(file, str(error)) from error
    except (KeyError, TypeError) as error:
        raise _refused(file, f"{type(error).__name__}: {error}") from error
    return Replay(replayed, next(differences, None) if check else None, taken)


def _replay(trace: Trace, path: PlayPath) -> tuple[Trace, Iterator[Difference], PlayPath]:
    match trace.get("format"):
        case "prefixbench-replay/1":
            check_steps_file(trace)
            expected, taken = replay_steps(trace, path)
            wanted = trace.get("expected") or {}
            return trace | {"expected": expected}, _differences(wanted, expected), taken
        case "prefixbench-radix/1":
            check_radix_file(trace)
            operations = replay_radix(trace)
            differences = _in_operations(trace["ops"], operations)
            return trace | {"ops": operations}, differences, PlayPath.PURE
        case other:
            raise ValueError(f"format is {other!r}")


def _expects(trace: Trace) -> bool:
    return bool(trace.get("expected") or any("expect" in row for row in trace.get("ops", ())))


def _read(path: Path) -> Trace:
    try:
        trace = json.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise _refused(path, f"no valid JSON in UTF-8 ({error})") from error
    if not isinstance(trace, dict):
        raise _refused(path, "not a JSON object")
    return trace


def _refused(path: Path, reason: str) -> ConfigError:
    return ConfigError(
        f"cannot replay {path.name}: {reason}",
        context=ErrorContext(stage=Stage.SIMULATE, field="replay"),
        hint=f"a JSON file of format {STEPS_FORMAT} or {RADIX_FORMAT}",
    )


def _in_operations(expected: list[Trace], got: list[Trace]) -> Iterator[Difference]:
    for step, (wanted, found) in enumerate(zip(expected, got, strict=True)):
        for name, want, have in _unequal(wanted.get("expect") or {}, found["expect"]):
            yield Difference(step=step, field=name, expected=want, got=have)


def _differences(expected: Trace, got: Trace) -> Iterator[Difference]:
    """Steps in order, then requests, then counters."""
    for step, (wanted, found) in enumerate(zip_longest(_each_step(expected), _each_step(got))):
        yield from _in_step(step, wanted or {}, found or {})
        if wanted is None or found is None:  # an entry that says nothing is a step too
            yield Difference(step=step, field="step", expected=wanted, got=found)
    for request, wanted, found in _in_both("requests", expected, got):
        for name, want, have in _unequal(wanted or {}, found or {}):
            yield Difference(request=request, field=name, expected=want, got=have)
    for name, wanted, found in _in_both("columns", expected, got):
        yield from _in_column(name, wanted or [], found or [])
    for name, want, have in _unequal(expected, got):
        if name not in ("steps", "requests", "columns"):
            yield Difference(field=name, expected=want, got=have)


def _each_step(expected: Trace) -> Iterator[Trace]:
    for entry in expected.get("steps") or ():
        step = {name: value for name, value in entry.items() if name != "times"}
        yield from repeat(step, entry.get("times") or 1)


def _in_step(step: int, expected: Trace, got: Trace) -> Iterator[Difference]:
    """The order of `scheduled` counts, so it is compared place by place."""
    places = zip_longest(
        (expected.get("scheduled") or {}).items(),
        got.get("scheduled", {}).items(),
        fillvalue=(None, None),
    )
    for (request, want), (other, have) in places:
        if request != other:
            yield Difference(step=step, field="scheduled request", expected=request, got=other)
        elif want != have:
            yield Difference(step=step, request=request, field="scheduled", expected=want, got=have)
    for name, want, have in _unequal(expected, got):
        yield Difference(step=step, field=name, expected=want, got=have)


def _in_column(name: str, expected: list[Any], got: list[Any]) -> Iterator[Difference]:
    for number, (want, have) in enumerate(zip_longest(expected, got)):
        if want != have:
            yield Difference(request=f"number {number}", field=name, expected=want, got=have)


def _in_both(key: str, expected: Trace, got: Trace) -> Iterator[tuple[str, Any, Any]]:
    return _unequal(expected.get(key) or {}, got.get(key) or {})


def _unequal(expected: Mapping[str, Any], got: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for name in {**expected, **got}:
        want, have = expected.get(name), got.get(name)
        if want != have:
            yield name, want, have
