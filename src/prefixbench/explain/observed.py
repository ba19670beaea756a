"""Observed facts that take the place of planned ones, each with the evidence for it.

A fact that the files do not show gives None: no cause is named without evidence.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from prefixbench.core.records import CacheScope, RequestPlan
from prefixbench.core.wording import plural
from prefixbench.explain.causes import Cause
from prefixbench.explain.phases import Phase
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.scene import Scene
from prefixbench.explain.turns import parted_from_histories, place_of, with_served_answers
from prefixbench.explain.wording import readable


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """A scene with one more observed fact, and why the fact is believed."""

    cause: Cause
    scene: Scene
    evidence: str


#: What `run.json` says of the server.
Server = Mapping[str, Any]
Observe = Callable[[Scene, Phase, Server], Observation | None]


def server_step(scene: Scene, phase: Phase, server: Server) -> Observation | None:
    """The server hits in other steps than the plan counted in."""
    step = stated_step(server)
    if step in (None, scene.granularity) or is_refuted(step, scene, phase):
        return None
    cause = Cause.BLOCK_SIZE_MISMATCH if step == server.get("block_size") else Cause.HIT_GRANULARITY
    return Observation(
        cause=cause,
        scene=replace(scene, granularity=step),
        evidence=f"the server caches in steps of {step} tokens, the plan in {scene.granularity}",
    )


def stated_step(server: Server) -> int | None:
    """The step in which the server says that it hits, in tokens."""
    return server.get("hit_granularity") or server.get("block_size")


def is_refuted(step: int, scene: Scene, phase: Phase) -> bool:
    """Whether a request hit what a cache that hits in such steps cannot give."""
    return any((result.cached_tokens or 0) % step for _, result in phase.arrived(scene.requests))


def template_tokens(scene: Scene, phase: Phase, _server: Server) -> Observation | None:
    """The server counted the same number of tokens more, or fewer, in every prompt."""
    differences = {
        result.prompt_tokens - plan.input_len
        for plan, result in phase.arrived(scene.requests)
        if result.prompt_tokens is not None and not _holds_answers(plan, scene)
    }
    if len(differences) != 1 or differences == {0}:
        return None
    (extra,) = differences
    return Observation(
        cause=Cause.TEMPLATE_TOKENS,
        scene=replace(scene, extra_head_len=extra),
        evidence=f"every prompt has {extra:+d} tokens on the server, taken to stand at its start",
    )


def failed_requests(scene: Scene, phase: Phase, _server: Server) -> Observation | None:
    """Some requests were not answered to the end.

    One that broke off after its first token was computed as planned, so it stays in the scene.
    """
    lost = unanswered(scene, phase)
    if lost is None:
        return None
    fates = {plan: phase.results.get(plan.request_id) for plan in scene.requests}
    return Observation(
        cause=Cause.FAILED_REQUESTS,
        scene=replace(
            scene,
            requests=tuple(plan for plan, result in fates.items() if _is_computed(result)),
            unanswered=tuple(plan for plan, result in fates.items() if not _is_computed(result)),
        ),
        evidence=lost.evidence,
    )


@dataclass(frozen=True, slots=True)
class Unanswered:
    """How many requests of a phase were answered, and what became of the others."""

    answered: int
    evidence: str


def unanswered(scene: Scene, phase: Phase) -> Unanswered | None:
    """None if every request of the scene was answered."""
    fates = [phase.results.get(plan.request_id) for plan in scene.requests]
    failed = [result for result in fates if result is None or not result.ok]
    if not failed:
        return None
    why = Counter("not_sent" if result is None else result.status for result in failed)
    reasons = ", ".join(f"{number:,} {readable(word)}" for word, number in why.most_common())
    return Unanswered(
        len(fates) - len(failed),
        f"{len(failed):,} of {plural(len(fates), 'request')} not answered: {reasons}",
    )


def _is_computed(result: ObservedRequest | None) -> bool:
    return result is not None and (result.ok or result.first_token_ns is not None)


def _holds_answers(plan: RequestPlan, scene: Scene) -> bool:
    """Whether what the server said stands in the prompt, so that it alone knows its length."""
    return scene.served and plan.history_request_id is not None


def served_answers(scene: Scene, phase: Phase, _server: Server) -> Observation | None:
    """Answers in the prompts of later turns were not as long as planned, or became other tokens
    when they were encoded again.
    """
    if not scene.served:
        return None
    turns = with_served_answers(scene.requests, phase.results, scene.extra_head_len)
    changes = [
        turn.input_len - plan.input_len
        for turn, plan in zip(turns, scene.requests, strict=True)
        if turn != plan
    ]
    if not changes:
        return None
    return Observation(
        cause=Cause.SERVED_ANSWERS,
        scene=replace(scene, requests=turns),
        evidence=f"{plural(len(changes), 'later turn')} hold answers that are not as planned"
        f" ({sum(changes):+,} tokens)",
    )


def routing(scene: Scene, phase: Phase, _server: Server) -> Observation | None:
    """Requests went to other caches than planned, or to several where one was planned."""
    rerouted = [_rerouted(plan, phase.results[plan.request_id]) for plan in scene.requests]
    routed = tuple(parted_from_histories(rerouted))
    places = {place_of(plan) for plan in routed}
    if scene.scope is CacheScope.GLOBAL:
        if len(places) == 1:
            return None
        return Observation(
            cause=Cause.ROUTING,
            scene=replace(scene, requests=routed, scope=CacheScope.DP_LOCAL),
            evidence=f"requests went to {len(places)} ranks, planned was one cache for all",
        )
    moved = sum(new is not old for new, old in zip(rerouted, scene.requests, strict=True))
    if not moved:
        return None
    return Observation(
        cause=Cause.ROUTING,
        scene=replace(scene, requests=routed),
        evidence=f"{plural(moved, 'request')} went to another rank or instance than planned",
    )


def _rerouted(plan: RequestPlan, result: ObservedRequest) -> RequestPlan:
    instance = _known(result.actual_instance_id, plan.planned_instance_id)
    dp_rank = _known(result.actual_dp_id, plan.planned_dp_id)
    if (instance, dp_rank) == (plan.planned_instance_id, plan.planned_dp_id):
        return plan
    return replace(plan, planned_instance_id=instance, planned_dp_id=dp_rank)


def _known(observed: int | None, planned: int) -> int:
    return planned if observed is None else observed


def processing_order(scene: Scene, phase: Phase, _server: Server) -> Observation | None:
    """First tokens came in another order than planned."""
    times = [_processed_ns(phase.results[plan.request_id]) for plan in scene.requests]
    if any(time is None for time in times):
        return None
    places = sorted(range(len(times)), key=lambda place: (times[place], place))
    moved = sum(place != index for index, place in enumerate(places))
    if not moved:
        return None
    return Observation(
        cause=Cause.PROCESSING_ORDER,
        scene=replace(scene, requests=tuple(scene.requests[place] for place in places)),
        evidence=f"{plural(moved, 'request')} got the first token in another order than planned",
    )


def _processed_ns(result: ObservedRequest) -> int | None:
    return (
        result.first_token_ns
        if result.server_prefill_start_ns is None
        else (result.server_prefill_start_ns)
    )


#: Facts in the order in which they are put in place (metrics-adapters, section 12).
OBSERVE: tuple[Observe, ...] = (
    server_step,
    template_tokens,
    failed_requests,
    served_answers,
    routing,
    processing_order,
)
