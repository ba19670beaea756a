"""Causes that are seen without a size: why there is no rate, and what the runner noticed.

"Nothing was queried", "no such metric" and "the counter was reset" are three results, and none of
them is a rate of 0 (metrics-adapters, summary point 5).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prefixbench.explain.causes import Cause
from prefixbench.explain.observed import unanswered
from prefixbench.explain.phases import Phase
from prefixbench.explain.scene import Scene

_WORDS = {cause.value: cause for cause in Cause}
_NOTICED = frozenset({"warn", "fail"})


@dataclass(frozen=True, slots=True)
class Unsized:
    """A cause and what shows it."""

    cause: Cause
    evidence: str


def why_unmeasured(
    rounds: Sequence[tuple[Phase, Scene]], server: Mapping[str, Any]
) -> Unsized | None:
    """The reason why the headline phase has no rate; None if it has one.

    Where no request was answered no counter could have moved, whatever the server is like.
    """
    if not rounds:
        return Unsized(Cause.METRICS_UNAVAILABLE, "no phase of the run was measured")
    void = next(((phase, scene) for phase, scene in rounds if phase.tally is None), None)
    if void is None:
        return None
    phase, scene = void
    nobody = unanswered(scene, phase)
    if nobody is not None and nobody.answered == 0:
        return Unsized(Cause.FAILED_REQUESTS, nobody.evidence)
    return _why_void(phase.counters, server)


def _why_void(void: Mapping[str, Any], server: Mapping[str, Any]) -> Unsized:
    if server.get("enable_prefix_caching") is False:
        return Unsized(Cause.CACHING_DISABLED, "the server says that prefix caching is off")
    if void.get("queries") == 0:
        return Unsized(Cause.CACHING_DISABLED, "the counters saw no query in this phase")
    reason = str(void.get("reason") or "no counters were read")
    reset = any(word in reason for word in ("reset", "restart"))
    return Unsized(Cause.SERVER_RESTART if reset else Cause.METRICS_UNAVAILABLE, reason)


def noticed(
    checks: Sequence[Mapping[str, Any]], phase: str, known: Collection[str]
) -> Iterator[Unsized]:
    """What checks made while running hold against the phase, beyond the causes already known."""
    seen = set(known)
    for check in checks:
        cause = _WORDS.get(check.get("cause") or "")
        if check.get("phase") != phase or check["status"] not in _NOTICED or cause is None:
            continue
        if cause not in seen:
            seen.add(cause)
            yield Unsized(cause, str(check["detail"]))
