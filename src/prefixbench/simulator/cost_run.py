"""The cost model of a server from requests that were measured at its door.

Which steps a request took part in is not measured. It is played: a simulated engine is given the
same requests at the same moments, and says what was computed while each of them waited for its
first token, and while it was answered. Those sums, priced, should be the measured times; fitting
the prices moves the steps a little, so play and fit take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from prefixbench.core.percentiles import percentile
from prefixbench.simulator.cluster import Cluster
from prefixbench.simulator.cost import CostModel, Work
from prefixbench.simulator.cost_fit import (
    PRICES,
    WorkSample,
    fit_cost_model,
    unknown_prices,
)
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival, LeastLoaded
from prefixbench.simulator.stopwatch import Stopwatch
from prefixbench.simulator.tokens import TokenRuns

#: Turns of play and fit; the nearest one counts.
_ROUNDS = 12

#: A price below any that is measured, so that the work is counted.
_COUNTED_NS = 1e-6

#: Tokens of no other request; the cached ones are common to all, from 0 on.
_OWN_TOKENS, _SPAN = 1 << 60, 1 << 32


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRequest:
    """One answered request: tokens, and moments in ns of one clock.

    `cached_len` are prompt tokens that were found cached, 0 where nobody told.
    """

    input_len: int
    output_len: int
    cached_len: int = 0
    sent_ns: int
    first_token_ns: int
    finished_ns: int


@dataclass(frozen=True, slots=True)
class RelativeErrors:
    """How far played times are from measured ones, as shares of the measured; None: nothing."""

    median: float | None
    p95: float | None

    @classmethod
    def of(cls, pairs: Iterator[tuple[float, float]]) -> RelativeErrors:
        """From pairs of played and measured times."""
        errors = [abs(played / measured - 1) for played, measured in pairs if measured > 0]
        return cls(percentile(errors, 50), percentile(errors, 95))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunFit:
    """Prices, why the others are unknown, and the errors of the run when it is played with them.

    `model` charges nothing for what is unknown.
    """

    model: CostModel
    unknown: Mapping[str, str]
    errors: Mapping[str, RelativeErrors]


def fit_run(
    requests: Sequence[MeasuredRequest], make_engine: Callable[[CostModel], Engine], places: int = 1
) -> RunFit:
    """The prices with which a played run is nearest to the measured one.

    `places` engines are served by the least loaded rule (vLLM's DP). Raises ValueError without
    requests that took time.
    """
    ordered = sorted(requests, key=lambda request: request.sent_ns)
    model, best, nearest = fit_cost_model(_first_guess(ordered)), None, inf
    for _ in range(_ROUNDS):
        watch = play_measured(ordered, model, make_engine, places)
        errors = errors_of(ordered, watch)
        distance = sum(error.median or 0.0 for error in errors.values())
        samples = list(_samples(ordered, watch))
        if best is None or distance < nearest:
            unknown = unknown_prices(model, samples)
            best, nearest = RunFit(model=model, unknown=unknown, errors=errors), distance
        model = _halfway(model, fit_cost_model(samples))
    assert best is not None
    return replace(best, model=replace(best.model, **dict.fromkeys(best.unknown, 0.0)))


def _halfway(one: CostModel, other: CostModel) -> CostModel:
    """A whole step to the new prices would go too far: dearer steps make longer queues."""
    return CostModel(**{name: (getattr(one, name) + getattr(other, name)) / 2 for name in PRICES})


def play_measured(
    requests: Sequence[MeasuredRequest],
    cost: CostModel,
    make_engine: Callable[[CostModel], Engine],
    places: int = 1,
) -> Stopwatch:
    """Send the requests (ascending) at their moments; request k is named by its number."""
    counted = replace(cost, context_token_ns=max(cost.context_token_ns, _COUNTED_NS))
    engines = [make_engine(counted) for _ in range(places)]
    cluster = Cluster(engines, LeastLoaded())
    common = max((request.cached_len for request in requests), default=0)
    if common:
        for place in range(places):
            warm = EngineRequest("warm", range(common + 1), range(_OWN_TOKENS, _OWN_TOKENS + 1))
            cluster.submit(Arrival(warm, pinned=place))
            while cluster.has_work:
                cluster.step()
    cluster.watch = watch = Stopwatch()
    begin_ns = cluster.now_ns - min((request.sent_ns for request in requests), default=0)
    cluster.play_in_time(
        (request.sent_ns + begin_ns, Arrival(_engine_request(number, request)))
        for number, request in enumerate(requests)
    )
    return watch


def errors_of(
    requests: Sequence[MeasuredRequest], watch: Stopwatch, *, since: int = 0
) -> Mapping[str, RelativeErrors]:
    """Errors of the time to first token and of the whole time, from a request's number on."""
    pairs = [(watch.moments[str(number)], request) for number, request in enumerate(requests)]
    pairs = pairs[since:]
    return {
        "ttft": RelativeErrors.of(
            (played.ttft_ns, one.first_token_ns - one.sent_ns) for played, one in pairs
        ),
        "e2e": RelativeErrors.of(
            (played.e2e_ns, one.finished_ns - one.sent_ns) for played, one in pairs
        ),
    }


def _engine_request(number: int, request: MeasuredRequest) -> EngineRequest:
    own = _OWN_TOKENS + (number + 1) * _SPAN
    answer = own + request.input_len
    return EngineRequest(
        str(number),
        TokenRuns([range(request.cached_len), range(own, answer - request.cached_len)]),
        range(answer, answer + request.output_len),
    )


def _first_guess(requests: Sequence[MeasuredRequest]) -> list[WorkSample]:
    """As if every request had been alone: a step for its prompt, and one for each further token."""
    samples = []
    for one in requests:
        more = one.output_len - 1
        context = more * (one.input_len + one.output_len / 2)
        prompt = Work(1, one.input_len - one.cached_len, one.input_len, 0)
        samples += [
            WorkSample(work=prompt, duration_ns=one.first_token_ns - one.sent_ns),
            WorkSample(
                work=Work(more, 0, context, more), duration_ns=one.finished_ns - one.first_token_ns
            ),
        ]
    return samples


def _samples(requests: Sequence[MeasuredRequest], watch: Stopwatch) -> Iterator[WorkSample]:
    """What was computed before each request's first token and after it, as played."""
    for number, one in enumerate(requests):
        played = watch.moments[str(number)]
        halves = (
            (played.sent_ns, played.first_token_ns, one.first_token_ns - one.sent_ns),
            (played.first_token_ns, played.finished_ns, one.finished_ns - one.first_token_ns),
        )
        for start_ns, end_ns, duration_ns in halves:
            work = watch.work_between(played.place, start_ns, end_ns)
            yield WorkSample(work=work, duration_ns=duration_ns)
