"""Short ways to drive a simulated engine in tests; every step is followed by an integrity check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count

from prefixbench.core.records import RequestPlan
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.tokens import TokenRuns

_OUTPUT_BASE, _STRIDE = 10**12, 10**6
_numbers = count()


def text(*parts: tuple[int, int] | int) -> TokenRuns:
    """Tokens from (seed, length) parts; a bare length is a part that no other text has."""
    runs = []
    for part in parts:
        seed, length = part if isinstance(part, tuple) else (10**4 + next(_numbers), part)
        runs.append(range(seed * _STRIDE, seed * _STRIDE + length))
    return TokenRuns(runs)


def request(
    prompt: Sequence[int], outputs: int = 1, *, name: str = "", salt: str = "", priority: int = 0
) -> EngineRequest:
    first = _OUTPUT_BASE + next(_numbers) * _STRIDE
    return EngineRequest(
        request_id=name or f"request-{first}",
        prompt=prompt,
        output=range(first, first + outputs),
        extra_key=(salt,) if salt else (),
        priority=priority,
    )


def history(past: EngineRequest) -> list[int]:
    """What a conversation looks like after a request was answered."""
    return [*past.prompt, *past.output]


def drain(engine: Engine) -> list[StepOutcome]:
    """Steps until nothing is left to do."""
    outcomes = []
    while engine.has_work:
        outcomes.append(engine.step())
        engine.check_integrity()
        assert len(outcomes) < 10_000, "no progress"
    return outcomes


def together(engine: Engine, requests: Iterable[EngineRequest]) -> list[StepOutcome]:
    for each in requests:
        engine.submit(each)
    return drain(engine)


def hits_of(outcomes: Iterable[StepOutcome]) -> list[int]:
    """Hit tokens at first admissions, in order of admission."""
    return [hit for outcome in outcomes for hit in outcome.hits.values()]


def one_by_one(engine: Engine, requests: Iterable[EngineRequest]) -> list[int]:
    """Hit tokens of requests that are sent when the one before has finished."""
    return [hit for each in requests for hit in hits_of(together(engine, [each]))]


# Of planned requests: where the text of a group, or of a request, begins.
_SPAN = 1 << 32
_OWN_BASE = 1 << 60


def engine_requests(plans: Iterable[RequestPlan], *, head_len: int = 0) -> Iterator[EngineRequest]:
    """Requests with the lengths and the sharing of the plans, in their order."""
    masters: dict[str, int] = {}
    for number, plan in enumerate(plans):
        master = masters.setdefault(plan.prefix_group_id, (len(masters) + 1) * _SPAN)
        own = _OWN_BASE + number * _SPAN
        shared_len, input_len = plan.planned_prefix_len, plan.input_len
        prompt = TokenRuns(
            (
                range(min(head_len, shared_len)),
                range(master + head_len, master + shared_len),
                range(own + shared_len, own + input_len),
            )
        )
        output = range(own + input_len, own + input_len + plan.output_len)
        yield EngineRequest(plan.request_id, prompt, output)


def closed_loop_hits(
    engine: Engine, requests: Iterable[EngineRequest], concurrency: int = 1
) -> dict[str, int]:
    """Tokens that each request finds cached when `concurrency` clients send one after the other.

    A client sends its next request when its last one has finished. The requests stream: only those
    in flight are held.
    """
    hits: dict[str, int] = {}
    in_flight = 0
    for request in requests:
        while in_flight >= concurrency:
            in_flight -= _step(engine, hits)
        engine.submit(request)
        in_flight += 1
    while engine.has_work:
        _step(engine, hits)
    return hits


def _step(engine: Engine, hits: dict[str, int]) -> int:
    """One step, or many equal ones; returns how many requests finished."""
    outcome = engine.step(limit=1 << 30)
    hits.update(outcome.hits)
    return len(outcome.finished)
