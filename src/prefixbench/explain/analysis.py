"""A run laid out for explanation: its headline phase, the plan beside it, and what was found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING, Any

from prefixbench.config.sessions import Answers
from prefixbench.core.records import CacheScope, RequestOutcome
from prefixbench.core.tally import HitTally
from prefixbench.explain.capacity import (
    eviction_evidence,
    hits_lost_to_eviction,
    preemptions,
    usable_blocks,
)
from prefixbench.explain.observed import is_refuted, stated_step
from prefixbench.explain.phases import Phase, combined_tally, headline, measured_phases
from prefixbench.explain.prediction import Prediction, predict, unpredicted
from prefixbench.explain.reconcile import known_sum
from prefixbench.explain.run_files import ObservedRequest, RunRecord
from prefixbench.explain.scene import Scene, planned_scene
from prefixbench.explain.stations import Attribution, Headline, attribute
from prefixbench.explain.wording import pick

if TYPE_CHECKING:
    from prefixbench.dataset.plan_walk import Conditions

_WARMED_SEMANTICS = "static_prefix_ratio"


@dataclass(frozen=True)
class Analysis:
    """What a report says, worked out once, each part when it is first asked for."""

    record: RunRecord

    @cached_property
    def phases(self) -> tuple[Phase, ...]:
        record = self.record
        return measured_phases(record.counters, record.performance, record.results)

    @cached_property
    def rounds(self) -> tuple[tuple[Phase, Scene], ...]:
        """The rounds of the headline phase, each with the scene that was planned for it."""
        return tuple((phase, self.scene_of(phase)) for phase in headline(self.phases))

    @cached_property
    def outcomes(self) -> tuple[tuple[RequestOutcome, ...], ...]:
        """What each request of each round should have found, in planned order."""
        return tuple(scene.outcomes() for _, scene in self.rounds)

    @cached_property
    def actual(self) -> HitTally | None:
        return combined_tally(phase for phase, _ in self.rounds)

    @cached_property
    def answered(self) -> tuple[ObservedRequest, ...]:
        """The answered requests of the headline phase, in planned order, round by round."""
        return tuple(
            result for phase, scene in self.rounds for _, result in phase.arrived(scene.requests)
        )

    @cached_property
    def told(self) -> HitTally | None:
        """The answered requests' own cached and prompt tokens; None if one did not tell them."""
        cached = known_sum(result.cached_tokens for result in self.answered)
        prompts = known_sum(result.prompt_tokens for result in self.answered)
        return None if cached is None or prompts is None else HitTally(cached, prompts)

    @property
    def server(self) -> Mapping[str, Any]:
        return _mapping(self.record.run.get("server"))

    @property
    def instances(self) -> list[Mapping[str, Any]]:
        return list(self.record.counters.get("instances", ()))

    @property
    def scope(self) -> CacheScope:
        scope = pick(self.record.manifest.config, "routing", "cache_scope")
        return CacheScope(scope or CacheScope.GLOBAL)

    @property
    def other_mode(self) -> bool:
        """Whether a warmed plan ran cold, or a cold plan warmed."""
        return bool(self.rounds) and not self._is_as_planned(self.rounds[0][0])

    def _is_as_planned(self, phase: Phase) -> bool:
        semantics = pick(self.record.manifest.data, "target", "semantics")
        planned_warm: bool = semantics == _WARMED_SEMANTICS
        return phase.warmed is planned_warm

    @cached_property
    def conditions(self) -> Conditions | None:
        """What the plan allows for; None for one request at a time in an unlimited cache."""
        from prefixbench.dataset.plan_walk import Conditions

        return Conditions.of(self.record.manifest)

    @property
    def target(self) -> Fraction | None:
        """The target as the decimal that was written."""
        target = self.record.validation.get("target_hit_ratio")
        return None if target is None else Fraction(repr(target))

    @property
    def planned(self) -> Fraction:
        """The designed ratio of the data set, in the mode it was made for."""
        report = self.record.validation
        if report.get("input_tokens"):
            return Fraction(report["expected_hit_tokens"], report["input_tokens"])
        return Fraction(repr(report["designed_hit_ratio"]))

    @property
    def designed(self) -> Fraction:
        """The designed ratio of the headline phase: another one if it ran in another mode."""
        if not self.other_mode:
            return self.planned
        walked = self.rounds[0][1].tally().ratio
        return Fraction(repr(self.rounds[0][0].designed)) if walked is None else walked

    @property
    def in_flight(self) -> int | None:
        """Requests on their way at most; at a fixed rate only the run itself can tell."""
        if self.record.run.get("request_rate"):
            seen = [
                pick(phase.performance, "concurrency", "achieved_max") for phase, _ in self.rounds
            ]
            return max((number for number in seen if number), default=None)
        return self.record.run.get("concurrency")

    @cached_property
    def lost_blocks(self) -> int:
        """Blocks of planned hits that the server's cache is too small for."""
        if not self.rounds:
            return 0
        return hits_lost_to_eviction(
            self.rounds[0][1],
            block_size=self.record.manifest.block_size,
            capacity_blocks=usable_blocks(self.server),
            in_flight=self.in_flight or 1,
        )

    @property
    def under_pressure(self) -> bool:
        """Whether planned hits may not live long enough, or requests were pushed back."""
        planned = pick(self.record.manifest.config, "planning", "capacity_blocks") is not None
        return self.lost_blocks > 0 or planned or preemptions(self.instances) > 0

    @property
    def caches(self) -> int:
        """Instances and ranks that served the run, at least those that were planned."""
        return max(len(self.instances), self.planned_caches)

    @property
    def planned_caches(self) -> int:
        """Instances and ranks of the plan."""
        routing = _mapping(self.record.manifest.config.get("routing"))
        return (routing.get("instances") or 1) * (routing.get("dp_size") or 1)

    @cached_property
    def prediction(self) -> Prediction:
        if not self.rounds:
            return unpredicted("no phase was measured")
        return predict(
            self.rounds[0][1],
            in_flight=self.in_flight,
            lost_hits=self.lost_blocks * self.record.manifest.block_size,
        )

    @cached_property
    def attribution(self) -> Attribution:
        external = pick(self.record.counters, "global", "external", "hits")
        return attribute(
            Headline(
                target=self.target,
                designed=self.planned,
                rounds=self.rounds,
                other_mode=self.other_mode,
                server=self.server,
                eviction_evidence=eviction_evidence(self.lost_blocks, self.server, self.instances),
                external_hits=external or 0,
                caches=sum(bool(row.get("queries")) for row in self.instances),
                planned_caches=self.planned_caches,
                conditions=None if self.other_mode else self.conditions,
            )
        )

    @property
    def server_step_refuted(self) -> bool:
        """Whether requests hit in other steps than the server says it has."""
        step = stated_step(self.server)
        return step is not None and any(
            is_refuted(step, scene, phase) for phase, scene in self.rounds
        )

    def scene_of(self, phase: Phase) -> Scene:
        manifest = self.record.manifest
        return planned_scene(
            self.record.plans,
            phase,
            scope=self.scope,
            granularity=manifest.hit_granularity,
            head_len=manifest.head_len,
            conditions=self.conditions if self._is_as_planned(phase) else None,
            served=pick(manifest.config, "sessions", "answers") == Answers.SERVED,
        )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
