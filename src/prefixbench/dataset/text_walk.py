"""The final ids of all prompts against unlimited caches: texts must share what the plan says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from prefixbench.config.sessions import Answers
from prefixbench.config.suffix import CacheMatchSemantics
from prefixbench.content.collide import CollisionStatus
from prefixbench.content.tape import Ids
from prefixbench.core.records import RequestPlan
from prefixbench.dataset.block_walk import BlockWalk
from prefixbench.dataset.check import Check, counted
from prefixbench.dataset.content_walk import ContentWalk
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.dataset.plan_walk import cache_scope, sequential_walk
from prefixbench.simulator.watermark import CACHE_OF


class TextWalk:
    """The block walk over the final ids, warm-up included; counts requests that are not as planned.

    Texts know nothing of concurrency or capacity, so the plan's sequential walk is what they must
    show. Where the cache is said to match without a chain, what it finds by accident is walked too.
    """

    def __init__(
        self,
        manifest: DatasetManifest,
        plans: Sequence[RequestPlan],
        rows: Sequence[Mapping[str, Any]],
    ) -> None:
        self.wrong = self.wrong_accidents = 0
        self._plans = plans
        self._walk = BlockWalk(manifest.hit_granularity)
        self._cache_of = CACHE_OF[cache_scope(manifest.data)]
        sessions = manifest.config.get("sessions")
        self._stores_answers = sessions is not None and sessions["answers"] == Answers.SERVED
        self._filler = manifest.data["warmup_filler"]["id"]
        detection = manifest.data["suffix"]["collision_detection"]
        semantics = CacheMatchSemantics(detection["cache_match_semantics"])
        is_chained = semantics is CacheMatchSemantics.CHAINED_PREFIX
        self._content = None if is_chained else ContentWalk(manifest.hit_granularity, semantics)
        self._accidental = [row["accidental_hit_len"] for row in rows]
        self._shared = [
            outcome.expected_hit_len + is_chained * row["accidental_hit_len"]
            for outcome, row in zip(sequential_walk(manifest, plans), rows, strict=True)
        ]
        # Equal blocks that are told and not counted, or counted with all others of no chain.
        self._told = {
            place
            for place, row in enumerate(rows)
            if row["collision_status"] in (CollisionStatus.COLLIDES, CollisionStatus.REPEATS_MARKER)
            and not (is_chained and row["accidental_hit_len"])
        }

    def warm_up(self, place: int, data: Mapping[str, Any], ids: Ids) -> None:
        """Store the planned prefix of a group's longest member."""
        prefix = ids[: self._plans[place].planned_prefix_len]
        self._walk.store(self._root(place, data), prefix.tolist())
        if self._content is not None:
            self._content.serve(self._root(place, data), prefix, len(prefix))

    def serve(self, place: int, data: Mapping[str, Any], ids: Ids) -> None:
        root, shared = self._root(place, data), self._shared[place]
        excess = self._walk.serve(root, ids.tolist()) - shared
        self.wrong += excess < 0 if place in self._told else excess != 0
        if self._stores_answers:
            answer = [self._filler] * (data["max_tokens"] - 1)
            self._walk.store(root, [*ids.tolist(), *answer])
        if self._content is not None:
            found = self._content.serve(root, ids, shared)
            self.wrong_accidents += found != self._accidental[place]

    def checks(self) -> Iterator[Check]:
        """What the walks proved."""
        yield counted("block walk over the final ids", self.wrong, "prompts share other blocks")
        if self._content is not None:
            name = "accidental hits over the final ids"
            yield counted(name, self.wrong_accidents, "prompts find something else")

    def _root(self, place: int, data: Mapping[str, Any]) -> tuple[Any, ...]:
        return (self._cache_of(self._plans[place]), data.get("model"), data.get("cache_salt"))
