"""Conversations in any order, under any gate and limit: every turn is sent, and none too early."""

from __future__ import annotations

import asyncio
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixbench.core.clock import VirtualClock
from prefixbench.run.dispatch import Dispatch, Dispatcher
from prefixbench.run.planned import PlannedRequest
from prefixbench.run.schedule import Gate


def requests(sessions: list[int]) -> list[PlannedRequest]:
    """One request for each number, a turn of the session of that number; two groups."""
    latest: dict[int, str] = {}
    found = []
    for place, session in enumerate(sessions):
        metadata = {
            "prefix_group_id": str(session % 2),
            "session_id": str(session),
            "history_request_id": latest.get(session),
        }
        latest[session] = str(place)
        has_later_turn = session in sessions[place + 1 :]
        row = {"request_id": str(place)}
        found.append(PlannedRequest(row=row, metadata=metadata, has_later_turn=has_later_turn))
    return found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(0, 4), max_size=20),
    st.sampled_from(list(Gate)),
    st.integers(1, 6),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_turn_is_sent_once_behind_the_one_before_it(
    sessions: list[int], gate: Gate, concurrency: int, is_open: bool, draw: random.Random
) -> None:
    sent: list[str] = []
    ended: set[str] = set()
    in_flight: list[int] = []

    async def send(due: Dispatch) -> None:
        assert due.request.history_id is None or due.request.history_id in ended
        assert due.ready_ns >= due.planned_ns
        sent.append(due.request.request_id)
        in_flight.append(len(sent) - len(ended))
        for _ in range(draw.randint(0, 5)):
            await asyncio.sleep(0)
        due.ticket.first_token()
        for _ in range(draw.randint(0, 5)):
            await asyncio.sleep(0)
        ended.add(due.request.request_id)

    async def run() -> None:
        await asyncio.wait_for(
            Dispatcher(
                send,
                clock=VirtualClock(),
                gate=gate,
                concurrency=concurrency,
                stop=asyncio.Event(),
                arrival_ns=(lambda index, _: index * 5) if is_open else None,
            ).run(requests(sessions)),
            timeout=5,
        )

    asyncio.run(run())
    assert sorted(sent, key=int) == [str(place) for place in range(len(sessions))]
    assert max(in_flight, default=0) <= concurrency
