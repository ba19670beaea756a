"""A data set played against simulated engines: what the cache of such an engine does with it.

Prompts stand for themselves by their plan: the head is common to all groups, a first part of the
master prefix to the members of a group, the rest to nobody, so no text is read. Each cache of the
planned routing is one engine, unless a router is to place the requests. A closed loop keeps so many
of them on their way; engines advance together, in the order in which their steps end.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from prefixbench.core.records import RequestPlan
from prefixbench.core.tally import HitTally, total
from prefixbench.dataset.plan_walk import cache_scope, warm_up_places
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.stand_ins import StandIn, StandIns
from prefixbench.simulator.cluster import Cluster, Domain, Watch
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.play import ChosenPlay, play_script, refuse_compiled
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.routing import Arrival, RoundRobin, Router
from prefixbench.simulator.script import Script
from prefixbench.simulator.tokens import TokenRuns
from prefixbench.simulator.trace import TraceRequest
from prefixbench.simulator.trace_cache import IndexedTrace, TraceCache
from prefixbench.simulator.watermark import CACHE_OF, Cache

#: A token that no request of a data set has.
_FILLER = range(-1, 0)

Part = TypeVar("Part")

#: So many equal steps are taken at once where nothing can arrive meanwhile.
_MANY_STEPS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What the engines did, in tokens of measured requests; warm-up counts nowhere.

    `by_domain` are the hits in the engines' own caches, for each place (an engine) and group;
    `by_tier` what the tiers below gave, out of what all above them missed. `path` says how steps
    were taken.
    """

    by_domain: Mapping[Domain, HitTally]
    by_tier: Mapping[str, HitTally]
    evicted_blocks: int
    preemptions: int
    path: PlayPath

    @property
    def tally(self) -> HitTally:
        return total(self.by_domain.values())

    @property
    def by_group(self) -> Mapping[str, HitTally]:
        return self._summed(lambda domain: domain[1])

    @property
    def by_place(self) -> Mapping[int, HitTally]:
        return self._summed(lambda domain: domain[0])

    def _summed(self, part_of: Callable[[Domain], Part]) -> dict[Part, HitTally]:
        tallies: dict[Part, HitTally] = {}
        for domain, tally in self.by_domain.items():
            part = part_of(domain)
            tallies[part] = tallies.get(part, HitTally(0, 0)) + tally
        return tallies


@dataclass(frozen=True, slots=True)
class Spread:
    """So many engines, and the router that places the requests instead of the plan."""

    places: int
    router: Router


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """A request of the data set as an engine needs it; `waits_for` is an earlier request."""

    plan: RequestPlan
    stand_in: StandIn
    cache: Cache
    extra_key: tuple[str | None, ...]
    waits_for: str | None

    def engine_request(self) -> EngineRequest:
        prompt = TokenRuns([segment.tokens for segment in self.stand_in.prompt])
        answer = self.stand_in.answer.tokens
        return EngineRequest(self.plan.request_id, prompt, answer, self.extra_key)

    def warm_up_request(self) -> EngineRequest:
        """The planned prefix, and a token that no request has there."""
        tokens = [segment.tokens for segment in self.stand_in.prefix]
        prompt = TokenRuns([*tokens, _FILLER])
        name = f"warm-up for {self.plan.request_id}"
        return EngineRequest(name, prompt, _FILLER, self.extra_key)


def rehearse(
    dataset: DatasetReader,
    make_engine: Callable[[], Engine],
    *,
    concurrency: int = 1,
    spread: Spread | None = None,
    watch: Watch | None = None,
    path: PlayPath = PlayPath.AUTO,
) -> Rehearsal:
    """Play a data set in its order, `concurrency` requests on their way, an engine for each cache.

    With `spread` its router says which engine serves a request, not the plan. Where the data set
    is planned for a warmed cache, every cache that may serve a group is warmed for it first;
    `watch` is told of what comes after. One engine and requests that wait for nobody are played in
    one go, on the path that is sooner; raises ConfigError where `path` asks for one that is not
    there.
    """
    order = dataset.manifest.config["request_order"]
    rows = list(_rows(dataset, _Waits(order)))
    caches = sorted({row.cache for row in rows})
    planned = {cache: place for place, cache in enumerate(caches)} if spread is None else {}
    engines = [make_engine() for _ in range(spread.places if spread else len(caches))]
    cluster = Cluster(engines, spread.router if spread else RoundRobin())
    loop = _ClosedLoop(
        rows, planned, cluster, concurrency, first_token_opens=order["preserve_group_dependency"]
    )
    places = warm_up_places(dataset.manifest, [row.plan for row in rows])
    warm_ups = [rows[index] for index in places]
    apart = _why_not_in_one_go(rows, engines, watch)
    if apart is None:
        script = _script([row.warm_up_request() for row in warm_ups], rows, concurrency)
        return loop.play_alone(play_script(engines[0], script, path), len(warm_ups))
    refuse_compiled(path, apart)
    for row in warm_ups:
        _warm_up(row, planned.get(row.cache), cluster)
    cluster.watch = watch
    return loop.play()


def _why_not_in_one_go(
    rows: Sequence[_Row], engines: Sequence[Engine], watch: Watch | None
) -> str | None:
    if len(engines) > 1:
        return "several engines"
    if any(row.waits_for is not None for row in rows):
        return "requests that wait for others"
    return None if watch is None else "times are asked for"


def _script(warm_ups: Sequence[EngineRequest], rows: Sequence[_Row], concurrency: int) -> Script:
    """Warm-up requests one by one, and when they are done the closed loop."""
    alone = len(warm_ups) + 1
    limits = [1] * alone + [concurrency] * (len(rows) - 1)
    return Script([*warm_ups, *(row.engine_request() for row in rows)], most_in_flight=limits)


def hits_by_capacity(dataset: DatasetReader) -> dict[int, HitTally]:
    """Tokens hit if every cache had so many blocks (LRU), one request after the other, from cold.

    Capacities are powers of two up to the least one from which nothing is lost any more.
    """
    block = dataset.manifest.hit_granularity
    plans = list(dataset.plans())
    curves = [
        TraceCache(IndexedTrace(requests)).lru_curve()
        for requests in _block_traces(dataset, plans, block)
    ]
    queries = sum(plan.input_len for plan in plans)
    return {
        capacity: HitTally(sum(curve.tally(capacity).hits for curve in curves) * block, queries)
        for capacity in _powers_up_to(max(curve.corners[-1] for curve in curves))
    }


def _block_traces(
    dataset: DatasetReader, plans: Iterable[RequestPlan], block: int
) -> Iterable[list[TraceRequest]]:
    """For each cache the blocks of its requests, answers included."""
    cache_of = CACHE_OF[cache_scope(dataset.manifest.data)]
    stand_ins = StandIns(dataset)
    traces: dict[Cache, list[TraceRequest]] = {}
    for plan in plans:
        blocks = (segment.blocks(block) for segment in stand_ins.of(plan).stored())
        request = TraceRequest(input_len=plan.input_len, blocks=tuple(filter(None, blocks)))
        traces.setdefault(cache_of(plan), []).append(request)
    return traces.values()


def _powers_up_to(most: int) -> Iterator[int]:
    """1, 2, 4, … and the number itself at the end."""
    yield from (1 << exponent for exponent in range((most - 1).bit_length()))
    yield most


def _rows(dataset: DatasetReader, waits: _Waits) -> Iterator[_Row]:
    cache_of = CACHE_OF[cache_scope(dataset.manifest.data)]
    stand_ins = StandIns(dataset)
    for sent, metadata in zip(dataset.requests(), dataset.metadata(), strict=True):
        plan = dataset.plan_of(metadata)
        yield _Row(
            plan=plan,
            stand_in=stand_ins.of(plan),
            cache=cache_of(plan),
            extra_key=(sent.get("model"), sent.get("cache_salt")),
            waits_for=waits.next(plan),
        )


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


def _warm_up(row: _Row, planned_place: int | None, cluster: Cluster) -> None:
    """Ask the planned engine, or all of them where a router may choose any."""
    everywhere = range(len(cluster.engines))
    for place in everywhere if planned_place is None else (planned_place,):
        cluster.submit(Arrival(row.warm_up_request(), pinned=place))
        while cluster.has_work:
            cluster.step()


class _ClosedLoop:
    """Feeds engines in sending order; a request that waits for another keeps its slot."""

    def __init__(
        self,
        rows: Sequence[_Row],
        planned: Mapping[Cache, int],
        cluster: Cluster,
        concurrency: int,
        *,
        first_token_opens: bool,
    ) -> None:
        self._rows = rows
        self._planned = planned
        self._cluster = cluster
        self._concurrency = concurrency
        self._coming = iter(rows)
        self._first_token_opens = first_token_opens
        self._step_limit = _MANY_STEPS if len(cluster.engines) == concurrency == 1 else 1
        self._slots: set[str] = set()
        self._held: list[_Row] = []
        self._opened: set[str] = set()
        self._finished: set[str] = set()
        self._place: dict[str, int] = {}
        self._hits: dict[str, int] = {}
        self._tier_hits: Counter[str] = Counter()
        self._evicted_blocks = 0
        self._preemptions = 0

    def play(self) -> Rehearsal:
        """Serve every request."""
        self._fill_slots()
        while self._slots:
            for outcome in self._cluster.step(self._step_limit):
                self._note(outcome)
            self._fill_slots()
        return self._told(PlayPath.PURE)

    def play_alone(self, chosen: ChosenPlay, warm_ups: int) -> Rehearsal:
        """Let a play serve every request with one engine, after so many that warm it."""
        self._place = dict.fromkeys((row.plan.request_id for row in self._rows), 0)
        for outcome in chosen.play.steps():
            if warm_ups:
                warm_ups -= len(outcome.finished)
            else:
                self._note(outcome)
        return self._told(chosen.path)

    def _told(self, path: PlayPath) -> Rehearsal:
        return Rehearsal(
            by_domain=self._tallies(),
            by_tier=self._tier_tallies(),
            evicted_blocks=self._evicted_blocks,
            preemptions=self._preemptions,
            path=path,
        )

    def _fill_slots(self) -> None:
        for row in islice(self._coming, self._concurrency - len(self._slots)):
            self._slots.add(row.plan.request_id)
            self._held.append(row)
        held, self._held = self._held, []
        for row in held:
            if self._is_ready(row):
                self._send(row)
            else:
                self._held.append(row)

    def _is_ready(self, row: _Row) -> bool:
        """A turn waits for the end of the one before it, whatever its group waits for."""
        history = row.plan.history_request_id
        if history is not None and history not in self._finished:
            return False
        return row.waits_for is None or row.waits_for in self._opened

    def _send(self, row: _Row) -> None:
        group, planned_place = row.plan.prefix_group_id, self._planned.get(row.cache)
        arrival = Arrival(row.engine_request(), group, planned_place)
        self._place[row.plan.request_id] = self._cluster.submit(arrival)

    def _note(self, outcome: StepOutcome) -> None:
        self._hits.update(outcome.hits)
        for request_id in outcome.hits.keys() & outcome.tier_hits.keys():
            self._tier_hits.update(outcome.tier_hits[request_id])
        self._slots.difference_update(outcome.finished)
        self._opened.update(outcome.finished)
        self._finished.update(outcome.finished)
        if self._first_token_opens:
            self._opened.update(outcome.sampled)
        self._evicted_blocks += outcome.evicted_blocks
        self._preemptions += len(outcome.preempted)

    def _tallies(self) -> dict[Domain, HitTally]:
        tallies: dict[Domain, HitTally] = {}
        for row in self._rows:
            found = HitTally(self._hits[row.plan.request_id], row.plan.input_len)
            domain = (self._place[row.plan.request_id], row.plan.prefix_group_id)
            tallies[domain] = tallies.get(domain, HitTally(0, 0)) + found
        return tallies

    def _tier_tallies(self) -> dict[str, HitTally]:
        """Each tier is asked for what the device and the tiers before it had not."""
        missed = sum(row.plan.input_len for row in self._rows) - sum(self._hits.values())
        tallies: dict[str, HitTally] = {}
        for store in self._cluster.engines[0].options.stores:
            name = store.rules.name
            tallies[name] = HitTally(self._tier_hits[name], missed)
            missed -= self._tier_hits[name]
        return tallies
