"""Who is sent when: closed and open loops, limits, gates, stops."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from prefixbench.config.execution import ExecutionMode
from prefixbench.core.clock import RealClock, VirtualClock
from prefixbench.run.dispatch import Arrival, Dispatch, Dispatcher
from prefixbench.run.planned import PlannedRequest
from prefixbench.run.schedule import Gate, phases_of


def requests(*groups: str) -> list[PlannedRequest]:
    return [
        PlannedRequest(row={"request_id": f"r{n}"}, metadata={"prefix_group_id": group})
        for n, group in enumerate(groups)
    ]


class Server:
    """Answers when told to; remembers what came in which order."""

    def __init__(self) -> None:
        self.arrived: list[str] = []
        self.sent: dict[str, Dispatch] = {}
        self.answers: dict[str, asyncio.Event] = {}

    async def send(self, sent: Dispatch) -> None:
        name = sent.request.request_id
        self.arrived.append(name)
        self.sent[name] = sent
        self.answers[name] = asyncio.Event()
        await self.answers[name].wait()

    async def first_token(self, name: str) -> list[str]:
        self.sent[name].ticket.first_token()
        return await self.seen()

    async def answer(self, name: str) -> list[str]:
        self.answers[name].set()
        return await self.seen()

    async def seen(self) -> list[str]:
        for _ in range(10):
            await asyncio.sleep(0)
        return list(self.arrived)


def dispatcher(
    send: Callable[[Dispatch], Awaitable[None]],
    *,
    gate: Gate = Gate.NONE,
    concurrency: int | None = 1,
    arrival_ns: Arrival | None = None,
    stop: asyncio.Event | None = None,
    clock: VirtualClock | None = None,
) -> Dispatcher:
    return Dispatcher(
        send,
        clock=clock or VirtualClock(),
        gate=gate,
        concurrency=concurrency,
        stop=stop or asyncio.Event(),
        arrival_ns=arrival_ns,
    )


async def test_a_closed_loop_keeps_its_slots_full_and_the_order() -> None:
    server = Server()
    running = dispatcher(server.send, concurrency=2)
    task = asyncio.create_task(running.run(requests("a", "a", "a", "a")))
    assert await server.seen() == ["r0", "r1"]
    assert await server.answer("r1") == ["r0", "r1", "r2"]
    assert await server.answer("r0") == ["r0", "r1", "r2", "r3"]
    await server.answer("r2")
    await server.answer("r3")
    await task
    assert running.most_in_flight == 2


async def test_group_dependency_waits_for_the_first_token_of_the_predecessor() -> None:
    server = Server()
    running = dispatcher(server.send, concurrency=3, gate=Gate.PREDECESSOR)
    task = asyncio.create_task(running.run(requests("a", "a", "b", "a")))
    assert await server.seen() == ["r0", "r2"]
    assert await server.first_token("r0") == ["r0", "r2", "r1"]
    assert await server.answer("r2") == ["r0", "r2", "r1"]
    assert await server.first_token("r1") == ["r0", "r2", "r1", "r3"]
    for name in ("r0", "r1", "r3"):
        await server.answer(name)
    await task


async def test_a_failed_predecessor_holds_nobody_back() -> None:
    server = Server()
    running = dispatcher(server.send, concurrency=2, gate=Gate.PREDECESSOR)
    task = asyncio.create_task(running.run(requests("a", "a")))
    await server.seen()
    assert await server.answer("r0") == ["r0", "r1"]  # ended without a first token
    await server.answer("r1")
    await task


def turns(*sessions: str) -> list[PlannedRequest]:
    """Requests of one group; those of one session go on from each other."""
    latest: dict[str, str] = {}
    rows = []
    for number, session in enumerate(sessions):
        metadata = {
            "prefix_group_id": "a",
            "session_id": session,
            "history_request_id": latest.get(session),
        }
        latest[session] = f"r{number}"
        has_later_turn = session in sessions[number + 1 :]
        row = {"request_id": f"r{number}"}
        rows.append(PlannedRequest(row=row, metadata=metadata, has_later_turn=has_later_turn))
    return rows


@pytest.mark.parametrize("gate", list(Gate))
async def test_a_turn_waits_for_the_end_of_the_turn_before_it_whatever_the_gate(gate: Gate) -> None:
    server = Server()
    running = dispatcher(server.send, concurrency=4, gate=gate)
    task = asyncio.create_task(running.run(turns("s", "s", "s")))
    assert await server.seen() == ["r0"]
    assert await server.first_token("r0") == ["r0"]
    assert await server.answer("r0") == ["r0", "r1"]
    assert await server.answer("r1") == ["r0", "r1", "r2"]
    await server.answer("r2")
    await task


async def test_a_waiting_turn_keeps_its_slot_and_other_sessions_go_on_in_the_others() -> None:
    server, clock = Server(), VirtualClock()
    running = dispatcher(server.send, concurrency=2, clock=clock)
    task = asyncio.create_task(running.run(turns("s", "s", "t", "t")))
    assert await server.seen() == ["r0"]  # r1 waits in the other slot
    clock.advance(50)
    assert set(await server.answer("r0")) == {"r0", "r1", "r2"}
    assert (server.sent["r1"].planned_ns, server.sent["r1"].ready_ns) == (0, 50)
    for name in ("r1", "r2", "r3"):
        await server.answer(name)
    await task


async def test_a_turn_of_an_open_loop_is_ready_when_the_turn_before_it_has_ended() -> None:
    server, clock = Server(), VirtualClock()
    running = dispatcher(
        server.send, concurrency=None, arrival_ns=lambda index, _: index * 7, clock=clock
    )
    task = asyncio.create_task(running.run(turns("s", "t", "s")))
    assert await server.seen() == ["r0", "r1"]
    clock.advance(86)
    assert await server.answer("r0") == ["r0", "r1", "r2"]
    assert (server.sent["r2"].planned_ns, server.sent["r2"].ready_ns) == (14, 100)
    for name in ("r1", "r2"):
        await server.answer(name)
    await task


async def test_a_barrier_waits_until_the_leader_of_the_group_has_finished() -> None:
    server = Server()
    running = dispatcher(server.send, concurrency=4, gate=Gate.LEADER)
    task = asyncio.create_task(running.run(requests("a", "b", "a", "a")))
    assert await server.seen() == ["r0", "r1"]
    assert await server.first_token("r0") == ["r0", "r1"]
    assert await server.answer("r0") == ["r0", "r1", "r2", "r3"]
    for name in ("r1", "r2", "r3"):
        await server.answer(name)
    await task


async def test_an_open_loop_sends_at_planned_times_and_does_not_wait_for_answers() -> None:
    clock, sent = VirtualClock(), []

    async def send(dispatch: Dispatch) -> None:
        sent.append((clock.now_ns(), dispatch.planned_ns, dispatch.ready_ns))

    await dispatcher(
        send, concurrency=None, arrival_ns=lambda index, _: index * 7, clock=clock
    ).run(requests("a", "a", "a"))
    assert [planned for _, planned, _ in sent] == [0, 7, 14]
    assert [ready for _, _, ready in sent] == [0, 7, 14]
    assert clock.now_ns() == 14


async def test_a_limit_delays_an_open_loop_and_keeps_the_planned_time() -> None:
    server, clock = Server(), VirtualClock()
    running = dispatcher(server.send, concurrency=1, arrival_ns=lambda index, _: index, clock=clock)
    task = asyncio.create_task(running.run(requests("a", "a")))
    assert await server.seen() == ["r0"]
    clock.advance(100)
    assert await server.answer("r0") == ["r0", "r1"]
    late = server.sent["r1"]
    assert (late.planned_ns, late.ready_ns) == (1, 101)
    await server.answer("r1")
    await task


async def test_a_stop_sends_nothing_more_and_waits_for_what_was_sent() -> None:
    server, stop = Server(), asyncio.Event()
    running = dispatcher(server.send, concurrency=2, gate=Gate.PREDECESSOR, stop=stop)
    task = asyncio.create_task(running.run(requests("a", "a", "b")))
    assert await server.seen() == ["r0"]
    stop.set()
    assert await server.answer("r0") == ["r0"]
    await asyncio.wait_for(task, 1)


async def test_a_stop_ends_a_long_pause_of_an_open_loop() -> None:
    stop, server = asyncio.Event(), Server()
    running = Dispatcher(
        server.send,
        clock=RealClock(),
        gate=Gate.NONE,
        concurrency=None,
        stop=stop,
        arrival_ns=lambda index, _: index * 3_600_000_000_000,
    )
    task = asyncio.create_task(running.run(requests("a", "a")))
    await server.seen()
    await server.answer("r0")
    stop.set()
    await asyncio.wait_for(task, 2)
    assert server.arrived == ["r0"]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (ExecutionMode.COLD, [("cold", True, False)]),
        (ExecutionMode.WARMUP, [("warmup", True, True)]),
        (ExecutionMode.HOT, [("hot", False, True)]),
        (ExecutionMode.COMPARE, [("cold", True, False), ("hot", True, True)]),
        (ExecutionMode.PROGRESSIVE_PREFIX_FILL, [("progressive_prefix_fill", True, False)]),
    ],
)
def test_phases_of_each_mode(mode: ExecutionMode, expected: list[tuple[str, bool, bool]]) -> None:
    phases = phases_of(mode, rounds=2)
    assert [(p.name, p.isolated, p.warmed) for p in phases] == expected * 2
    assert [p.round for p in phases] == [1] * len(expected) + [2] * len(expected)
