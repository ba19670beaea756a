"""The driver between an engine and its clients, on a clock that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from prefixbench.core.clock import VirtualClock
from prefixbench.server.driver import Generation, RankDriver, TokenQueue
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest

STEP_NS = 1_000_000


def driver_on(clock: VirtualClock, time_scale: float, *, max_num_seqs: int = 8) -> RankDriver:
    engine = Engine(
        "vllm-0.33",
        capacity_blocks=100,
        max_num_seqs=max_num_seqs,
        cost=CostModel(step_ns=STEP_NS),
    )
    return RankDriver(engine, clock, time_scale=time_scale, rank=0, started_s=0.0)


def generation(name: str, clock: VirtualClock, outputs: int, queue: TokenQueue) -> Generation:
    request = EngineRequest(name, range(40), range(1000, 1000 + outputs))
    return Generation(request=request, choice=0, arrived_ns=clock.now_ns(), queue=queue)


async def until(is_reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(5):
        while not is_reached():
            await asyncio.sleep(0)


@pytest.mark.parametrize(("time_scale", "step_ns"), [(1.0, STEP_NS), (4.0, STEP_NS // 4), (0, 0)])
async def test_tokens_come_out_when_their_steps_end(time_scale: float, step_ns: int) -> None:
    clock, queue = VirtualClock(), TokenQueue()
    driver = driver_on(clock, time_scale)
    driver.start()
    driver.submit(generation("a", clock, 3, queue))
    seen = []
    for _ in range(3):
        token = await asyncio.wait_for(queue.get(), 5)
        assert token is not None
        seen.append((token.token_id, token.is_last))
    assert seen == [(1000, False), (1001, False), (1002, True)]
    assert clock.now_ns() == 3 * step_ns
    assert driver.counters.first_token_s.sum == pytest.approx(step_ns / 1e9)
    assert driver.counters.token_gap_s.sum == pytest.approx(2 * step_ns / 1e9)
    assert driver.counters.whole_request_s.sum == pytest.approx(3 * step_ns / 1e9)
    await driver.close()


async def test_load_tells_running_from_waiting() -> None:
    clock, queue = VirtualClock(), TokenQueue()
    driver = driver_on(clock, 1.0, max_num_seqs=1)
    first, second = (generation(name, clock, 50, queue) for name in "ab")
    driver.submit(first)
    driver.submit(second)
    assert (driver.load().running, driver.load().waiting) == (0, 2)
    driver.start()
    await asyncio.wait_for(queue.get(), 5)
    assert (driver.load().running, driver.load().waiting) == (1, 1)
    assert driver.load().kv_usage == pytest.approx(3 / 100)
    driver.abort(second)
    assert (driver.load().in_flight, driver.load().waiting) == (1, 0)
    driver.abort(first)
    driver.abort(first)
    assert (driver.load().in_flight, driver.load().kv_usage) == (0, 0)
    await asyncio.sleep(0)
    assert driver.is_alive
    await driver.close()


async def test_an_aborted_request_keeps_its_queries_and_nothing_else() -> None:
    clock, queue = VirtualClock(), TokenQueue()
    driver = driver_on(clock, 1.0)
    driver.start()
    gone = generation("gone", clock, 50, queue)
    driver.submit(gone)
    await until(lambda: gone.cached_tokens is not None)
    driver.abort(gone)
    again = generation("again", clock, 1, queue)
    driver.submit(again)
    await until(lambda: again.produced == 1)
    assert again.cached_tokens == 32
    assert (driver.counters.queries, driver.counters.hits) == (80, 32)
    assert sum(driver.counters.finished.values()) == 1
    await driver.close()
