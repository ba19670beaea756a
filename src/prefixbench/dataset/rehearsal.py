"""A data set played against simulated engines: what the cache of such an engine does with it.

Prompts stand for themselves by their plan: the head is common to all groups, a first part of the
master prefix to the members of a group, the rest to nobody, so no text is read. Each cache of the
planned routing is one engine. A closed loop keeps so many requests on their way; engines advance
step by step together, and a step costs no time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prefixbench.core.records import RequestPlan
from prefixbench.core.tally import HitTally, total
from prefixbench.dataset.plan_walk import cache_scope, warm_up_places
from prefixbench.dataset.reader import DatasetReader, request_plan
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.stack_distance import chain_requests, lru_curve
from prefixbench.simulator.tokens import TokenRuns
from prefixbench.simulator.watermark import CACHE_OF, Cache

#: Every group and every request has token numbers of its own, more than any prompt is long.
_SPAN = 1 << 32
_MASTER_PREFIXES, _OWN_TOKENS, _OUTPUTS, _FILLERS = (kind << 58 for kind in range(1, 5))

#: So many equal steps are taken at once where nothing can arrive meanwhile.
_MANY_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What the engines did, in tokens of measured requests; warm-up counts nowhere."""

    by_group: Mapping[str, HitTally]
    evicted_blocks: int
    preemptions: int

    @property
    def tally(self) -> HitTally:
        return total(self.by_group.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A request of the data set as an engine needs it; `waits_for` is an earlier request."""

    plan: RequestPlan
    group: int
    number: int
    cache: Cache
    extra_key: tuple[str | None, ...]
    head_len: int
    waits_for: str | None

    def engine_request(self) -> EngineRequest:
        plan = self.plan
        own = _run(_OWN_TOKENS, self.number, plan.planned_prefix_len, plan.input_len)
        return EngineRequest(
            plan.request_id,
            TokenRuns([*self._prefix, own]),
            _run(_OUTPUTS, self.number, 0, plan.output_len),
            self.extra_key,
        )

    def warm_up_request(self) -> EngineRequest:
        """The planned prefix, and a token that no request has there."""
        filler = _run(_FILLERS, self.number, 0, 1)
        return EngineRequest("warm-up", TokenRuns([*self._prefix, filler]), filler, self.extra_key)

    @property
    def _prefix(self) -> tuple[range, range]:
        master = _run(_MASTER_PREFIXES, self.group, self.head_len, self.plan.planned_prefix_len)
        return range(self.head_len), master


def rehearse(
    dataset: DatasetReader, make_engine: Callable[[], Engine], *, concurrency: int = 1
) -> Rehearsal:
    """Play a data set in its order, `concurrency` requests on their way, an engine for each cache.

    Where the data set is planned for a warmed cache, every cache is warmed first.
    """
    order = dataset.manifest.config["request_order"]
    rows = list(_rows(dataset, _Waits(order)))
    engines = {cache: make_engine() for cache in sorted({row.cache for row in rows})}
    for place in warm_up_places(dataset.manifest, [row.plan for row in rows]):
        _warm_up(rows[place], engines[rows[place].cache])
    loop = _ClosedLoop(
        rows, engines, concurrency, first_token_opens=order["preserve_group_dependency"]
    )
    return loop.play()


def hits_by_capacity(dataset: DatasetReader) -> dict[int, HitTally]:
    """Tokens hit if every cache had so many blocks (LRU), one request after the other, from cold.

    Capacities are powers of two up to the least one from which nothing is lost any more. A head of
    whole blocks, which all groups share, counts for each group on its own here.
    """
    cache_of = CACHE_OF[cache_scope(dataset.manifest.data)]
    plans: dict[Cache, list[RequestPlan]] = {}
    for plan in map(request_plan, dataset.metadata()):
        plans.setdefault(cache_of(plan), []).append(plan)
    block = dataset.manifest.hit_granularity
    curves = [lru_curve(list(chain_requests(own, block))) for own in plans.values()]
    queries = sum(plan.input_len for own in plans.values() for plan in own)
    return {
        capacity: HitTally(sum(curve.tally(capacity).hits for curve in curves) * block, queries)
        for capacity in _powers_up_to(max(curve.corners[-1] for curve in curves))
    }


def _powers_up_to(most: int) -> Iterator[int]:
    """1, 2, 4, … and the number itself at the end."""
    yield from (1 << exponent for exponent in range((most - 1).bit_length()))
    yield most


def _rows(dataset: DatasetReader, waits: _Waits) -> Iterator[_Row]:
    cache_of = CACHE_OF[cache_scope(dataset.manifest.data)]
    groups: dict[str, int] = {}
    pairs = zip(dataset.requests(), dataset.metadata(), strict=True)
    for number, (sent, metadata) in enumerate(pairs):
        plan = request_plan(metadata)
        yield _Row(
            plan=plan,
            group=groups.setdefault(plan.prefix_group_id, len(groups)),
            number=number,
            cache=cache_of(plan),
            extra_key=(sent.get("model"), sent.get("cache_salt")),
            head_len=dataset.manifest.head_len,
            waits_for=waits.next(plan),
        )


def _run(kind: int, owner: int, start: int, stop: int) -> range:
    base = kind + owner * _SPAN
    return range(base + start, base + stop)


class _Waits:
    """Which earlier request of its group a request waits for, as `request_order` asks."""

    def __init__(self, request_order: Mapping[str, Any]) -> None:
        self.predecessor = bool(request_order["preserve_group_dependency"])
        self.leader = request_order["leaders"] == "barrier"
        self._latest: dict[str, str] = {}

    def next(self, plan: RequestPlan) -> str | None:
        """The request that the group's next one waits for."""
        latest = self._latest.get(plan.prefix_group_id)
        if self.predecessor or latest is None:
            self._latest[plan.prefix_group_id] = plan.request_id
        return latest if self.predecessor or self.leader else None


def _warm_up(row: _Row, engine: Engine) -> None:
    engine.submit(row.warm_up_request())
    while engine.has_work:
        engine.step()


class _ClosedLoop:
    """Feeds engines in sending order; a request that waits for another keeps its slot."""

    def __init__(
        self,
        rows: Sequence[_Row],
        engines: Mapping[Cache, Engine],
        concurrency: int,
        *,
        first_token_opens: bool,
    ) -> None:
        self._rows = rows
        self._engines = engines
        self._concurrency = concurrency
        self._coming = iter(rows)
        self._first_token_opens = first_token_opens
        self._step_limit = _MANY_STEPS if len(engines) == concurrency == 1 else 1
        self._slots: set[str] = set()
        self._held: list[_Row] = []
        self._opened: set[str] = set()
        self._hits: dict[str, int] = {}
        self._evicted_blocks = 0
        self._preemptions = 0

    def play(self) -> Rehearsal:
        """Serve every request."""
        self._fill_slots()
        while self._slots:
            for engine in self._engines.values():
                if engine.has_work:
                    self._note(engine.step(self._step_limit))
            self._fill_slots()
        return Rehearsal(
            by_group=self._tallies(),
            evicted_blocks=self._evicted_blocks,
            preemptions=self._preemptions,
        )

    def _fill_slots(self) -> None:
        for row in islice(self._coming, self._concurrency - len(self._slots)):
            self._slots.add(row.plan.request_id)
            self._held.append(row)
        held, self._held = self._held, []
        for row in held:
            if row.waits_for is None or row.waits_for in self._opened:
                self._engines[row.cache].submit(row.engine_request())
            else:
                self._held.append(row)

    def _note(self, outcome: StepOutcome) -> None:
        self._hits.update(outcome.hits)
        self._slots.difference_update(outcome.finished)
        self._opened.update(outcome.finished)
        if self._first_token_opens:
            self._opened.update(outcome.sampled)
        self._evicted_blocks += outcome.evicted_blocks
        self._preemptions += len(outcome.preempted)

    def _tallies(self) -> dict[str, HitTally]:
        tallies: dict[str, HitTally] = {}
        for row in self._rows:
            found = HitTally(self._hits[row.plan.request_id], row.plan.input_len)
            group = row.plan.prefix_group_id
            tallies[group] = tallies.get(group, HitTally(0, 0)) + found
        return tallies
