"""Numbers in place of the tokens of a data set: equal where prompts are equal, by the plan alone.

    head | nodes of the tree above the group | the group's own part of its prefix | own tokens

A session has own tokens of its own: each turn goes on where the one before it stopped. An answer of
the server that later turns hold are tokens of the session too; any other answer is nobody's.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

from prefixbench.config.sessions import Answers
from prefixbench.core.records import RequestPlan
from prefixbench.dataset.reader import DatasetReader

#: Every owner of tokens has numbers of its own, more than any prompt is long.
_SPAN = 1 << 32


@dataclass(frozen=True, slots=True)
class Segment:
    """Tokens [start, stop) of a sequence, and the number of their owner."""

    owner: int
    start: int
    stop: int

    @property
    def tokens(self) -> range:
        base = self.owner * _SPAN
        return range(base + self.start, base + self.stop)

    def blocks(self, block: int) -> range:
        """The full blocks whose last token is one of these."""
        base = self.owner * _SPAN
        return range(base + self.start // block, base + self.stop // block)


@dataclass(frozen=True, slots=True)
class StandIn:
    """One request as segments; `prefix` is the planned prefix of its session's first turn."""

    prefix: tuple[Segment, ...]
    own: Segment
    answer: Segment

    @property
    def prompt(self) -> tuple[Segment, ...]:
        return (*self.prefix, self.own)

    def stored(self) -> tuple[Segment, ...]:
        """All that is computed: the prompt, and the answer but for its last token."""
        answer = self.answer
        return (
            *self.prompt,
            Segment(answer.owner, answer.start, max(answer.stop - 1, answer.start)),
        )


class StandIns:
    """Gives the requests of a data set, in sending order, their stand-ins."""

    def __init__(self, dataset: DatasetReader) -> None:
        sessions = dataset.manifest.config.get("sessions")
        self._head_len = dataset.manifest.head_len
        self._answers_return = sessions is not None and sessions["answers"] == Answers.SERVED
        self._owners: dict[Hashable, int] = {}
        self._open_turns: dict[str, StandIn] | None = None if sessions is None else {}

    def owner(self, name: Hashable) -> int:
        """The number of an owner of tokens."""
        return self._owners.setdefault(name, len(self._owners))

    def of(self, plan: RequestPlan) -> StandIn:
        """The stand-in of the next request."""
        before = self._turn_before(plan)
        if before is None:
            prefix = tuple(self._prefix(plan))
            own = Segment(
                self.owner(("own", plan.request_id)), plan.planned_prefix_len, plan.input_len
            )
        else:
            prefix = before.prefix
            own = Segment(before.own.owner, before.own.start, plan.input_len)
        stand_in = StandIn(prefix, own, self._answer(plan, own))
        if self._open_turns is not None:
            self._open_turns[plan.request_id] = stand_in
        return stand_in

    def _turn_before(self, plan: RequestPlan) -> StandIn | None:
        if self._open_turns is None or plan.history_request_id is None:
            return None
        return self._open_turns.pop(plan.history_request_id, None)

    def _prefix(self, plan: RequestPlan) -> Iterator[Segment]:
        stop = plan.planned_prefix_len
        ends = [self._head_len, *(end for _, end in plan.nodes_above), stop]
        names: Sequence[Hashable] = [
            "head",
            *(("node", name) for name, _ in plan.nodes_above),
            ("group", plan.prefix_group_id),
        ]
        start = 0
        for name, end in zip(names, ends, strict=True):
            if start < min(end, stop):
                yield Segment(self.owner(name), start, min(end, stop))
                start = min(end, stop)

    def _answer(self, plan: RequestPlan, own: Segment) -> Segment:
        if self._answers_return:
            return Segment(own.owner, own.stop, own.stop + plan.output_len)
        owner = self.owner(("answer", plan.request_id))
        return Segment(owner, own.stop, own.stop + plan.output_len)
