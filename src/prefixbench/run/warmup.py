"""Warm-up: one request for each (instance, rank, group), its deepest prefix and one token more.

No warm-up request is ever a measured prompt. The token behind the prefix makes the server store
all of it: the last token of a prompt is never found cached.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from prefixbench.core.clock import Clock
from prefixbench.core.errors import DatasetChangedError, ErrorContext, Stage
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder
from prefixbench.run.dispatch import Dispatch, Dispatcher
from prefixbench.run.planned import PlannedRequest, planned_requests
from prefixbench.run.schedule import Gate
from prefixbench.run.sending import Sender


@dataclass(slots=True)
class WarmUpOutcome:
    """What came of the warm-up requests; groups are named where one failed."""

    sent: int = 0
    failed_groups: set[str] = field(default_factory=set)
    wrong_lengths: int = 0


class WarmUp:
    """The warm-up requests of a data set."""

    def __init__(self, dataset: DatasetReader) -> None:
        self._dataset = dataset
        self._filler = _filler_of(dataset)
        self._chosen = frozenset(_deepest_rows(dataset.metadata()))

    async def run(
        self,
        sender: Sender,
        bodies: BodyBuilder,
        *,
        clock: Clock,
        rounds: int,
        concurrency: int,
        stop: asyncio.Event,
    ) -> WarmUpOutcome:
        """Send them, `rounds` times; failures are counted, not raised."""
        outcome = WarmUpOutcome()

        async def send(sent: Dispatch) -> None:
            exchange = await sender.send(sent.request, bodies.warm_up(sent.request, self._filler))
            outcome.sent += 1
            if exchange.status is not Status.OK:
                outcome.failed_groups.add(sent.request.group_id)
            elif exchange.prompt_tokens not in (None, self._planned_len(sent.request)):
                outcome.wrong_lengths += 1

        for _ in range(rounds):
            await Dispatcher(
                send,
                clock=clock,
                gate=Gate.NONE,
                concurrency=concurrency,
                stop=stop,
            ).run(self._requests())
        return outcome

    def _requests(self) -> Iterator[PlannedRequest]:
        for index, request in enumerate(planned_requests(self._dataset)):
            if index in self._chosen:
                yield request

    def _planned_len(self, request: PlannedRequest) -> int:
        return request.planned_prefix_len + 1 + self._dataset.manifest.tail_len


def _deepest_rows(metadata: Iterator[Mapping[str, Any]]) -> list[int]:
    """Line numbers of the deepest member of each (instance, rank, group).

    Later turns of a session are none: the largest part of their prefix is what they said before.
    """
    deepest: dict[tuple[int, int, str], tuple[int, int]] = {}
    for index, row in enumerate(metadata):
        if row.get("turn"):
            continue
        key = (row["planned_instance_id"], row["planned_dp_id"], row["prefix_group_id"])
        depth = row["planned_prefix_len"]
        if key not in deepest or depth > deepest[key][0]:
            deepest[key] = (depth, index)
    return [index for _, index in deepest.values()]


def _filler_of(dataset: DatasetReader) -> Mapping[str, Any]:
    filler = dataset.manifest.data.get("warmup_filler")
    if not isinstance(filler, Mapping):
        raise DatasetChangedError(
            "the data set names no warm-up filler token",
            context=ErrorContext(
                stage=Stage.RUN, dataset_id=dataset.manifest.dataset_id, field="warmup_filler"
            ),
            hint="generate it again with this version",
        )
    return filler
