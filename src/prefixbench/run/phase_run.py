"""Runs one phase: isolate, warm up, look, send, look again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from prefixbench.core.clock import Clock
from prefixbench.core.errors import EndpointError, ErrorContext, MetricsError, Stage
from prefixbench.core.log import event
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.bodies import BodyBuilder
from prefixbench.run.cache_metrics import PrefixCacheRuntimeMetrics, collect_prefix_cache_metrics
from prefixbench.run.checks import PhaseFacts
from prefixbench.run.client import Client, Exchange
from prefixbench.run.conversations import Conversations
from prefixbench.run.designed import DesignedHits
from prefixbench.run.dispatch import Arrival, Dispatch, Dispatcher
from prefixbench.run.isolation import Isolated, Isolator
from prefixbench.run.metrics_reader import MetricsReader, RestingSnapshot
from prefixbench.run.observe import ClientObserver, ClientReport
from prefixbench.run.options import RunSettings
from prefixbench.run.performance import PhaseLoad
from prefixbench.run.planned import PlannedRequest, planned_requests
from prefixbench.run.preflight import check_token_ids
from prefixbench.run.results import RequestResult, ResultContext
from prefixbench.run.sampling import LoadSampler
from prefixbench.run.schedule import Phase, evenly_spaced_ns, recorded_ns
from prefixbench.run.sending import Sender
from prefixbench.run.warmup import WarmUp, WarmUpOutcome
from prefixbench.run.witness import OTHER_ANSWERS_HINT, LengthGuard, Rank, UsageWitness

log = logging.getLogger(__name__)

#: Warm-up requests are of different groups, so they may go out together.
_WARM_UP_CONCURRENCY = 8

_NS_PER_MS = 1e6

Record = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTools:
    """What all phases of a run share.

    `record` writes an event, `keep` a row of results; `progress` is told (phase, done, planned).
    """

    dataset: DatasetReader
    last_turns: Mapping[str, int]
    settings: RunSettings
    clock: Clock
    client: Client
    metrics: MetricsReader
    isolator: Isolator
    sender: Sender
    designed: DesignedHits
    guard: LengthGuard
    stop: asyncio.Event
    epoch_ns: int
    metrics_optional: bool
    record: Record
    keep: Callable[[RequestResult], None]
    progress: Callable[[str, int, int], None]


@dataclass(slots=True)
class _Measured:
    """What is collected while requests go out and answers come in."""

    load: PhaseLoad
    witness: UsageWitness
    problem: EndpointError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseOutcome:
    """One phase as it went. `due` counts also turns whose session had broken off, which were not
    sent. `problem`: the server does not see the planned prompts.
    """

    phase: Phase
    facts: PhaseFacts
    performance: Mapping[str, Any]
    sent: int
    due: int
    failed: int
    is_complete: bool
    problem: EndpointError | None


class PhaseRun:
    """One phase of a run."""

    def __init__(self, tools: PhaseTools, phase: Phase) -> None:
        self._tools = tools
        self._phase = phase
        self._warned = False
        self._observer = ClientObserver(tools.clock)
        self._rows = ResultContext(
            phase=phase,
            dataset_id=tools.dataset.manifest.dataset_id,
            manifest_sha256=tools.dataset.manifest_sha256,
            epoch_ns=tools.epoch_ns,
        )
        self._measured = _Measured(
            PhaseLoad(planned=tools.dataset.manifest.request_count),
            UsageWitness(served=tools.settings.is_served),
        )

    async def execute(self) -> PhaseOutcome:
        """Run the phase; raise MetricsError if somebody else is using the server."""
        tools = self._tools
        isolated = await tools.isolator.isolate(self._phase)
        self._record_isolation(isolated)
        await self._check_token_ids(isolated.bodies)
        warm_up = await self._warm_up(isolated.bodies) if self._phase.warmed else None
        before = await tools.metrics.resting_snapshot()
        self._refuse_foreign_traffic(before)
        sampler = self._sampler(before)
        async with self._observer, sampler:
            most_in_flight = await self._send_all(isolated.bodies)
        after = await tools.metrics.resting_snapshot()
        metrics = self._with_usage(self._collect(before, after), sampler)
        facts = self._facts(isolated, warm_up, metrics, before, after)
        return self._outcome(facts, most_in_flight, self._observer.report())

    async def _warm_up(self, bodies: BodyBuilder) -> WarmUpOutcome:
        tools = self._tools
        outcome = await WarmUp(tools.dataset).run(
            tools.sender,
            bodies,
            clock=tools.clock,
            rounds=tools.settings.warmup_rounds,
            concurrency=min(tools.settings.concurrency or 1, _WARM_UP_CONCURRENCY),
            stop=tools.stop,
        )
        tools.record(
            "warm_up.done", {"sent": outcome.sent, "failed_groups": len(outcome.failed_groups)}
        )
        return outcome

    async def _check_token_ids(self, bodies: BodyBuilder) -> None:
        sender = self._tools.sender
        if self._tools.settings.needs_token_ids:
            await check_token_ids(
                sender.client, sender.addresses, bodies, sender.rank_headers(dp_id=0)
            )

    async def _send_all(self, bodies: BodyBuilder) -> int:
        tools = self._tools
        conversations = Conversations(bodies, served=tools.settings.is_served)

        async def send(due: Dispatch) -> None:
            request = due.request
            why_unsent = conversations.why_unsent(request)
            if why_unsent is not None:
                self._take_unsent(due, why_unsent)
                return
            prompt = conversations.prompt_of(request)
            body = bodies.measured(request, prompt)
            exchange = await tools.sender.send(request, body, due.ticket.first_token)
            conversations.answered(request, prompt, exchange)
            self._take(due, exchange)

        dispatcher = Dispatcher(
            send,
            clock=tools.clock,
            gate=tools.settings.gate,
            concurrency=tools.settings.concurrency,
            stop=tools.stop,
            arrival_ns=self._arrival(),
        )
        await dispatcher.run(planned_requests(tools.dataset, tools.last_turns))
        return dispatcher.most_in_flight

    def _take(self, sent: Dispatch, exchange: Exchange) -> None:
        """Keep one answer, and stop the run if it shows that the server sees other prompts."""
        tools, measured, request = self._tools, self._measured, sent.request
        result = self._rows.result(
            sent,
            exchange,
            endpoint=self._endpoint_of(request),
            instance_id=tools.sender.instance_of(request),
        )
        self._keep(result, exchange.gaps_ns)
        measured.witness.add(request, exchange)
        self._warn_of_other_answers()
        self._observer.send_delays_ms.append((exchange.sent_ns - sent.ready_ns) / _NS_PER_MS)
        problem = tools.guard.problem(request, exchange)
        if problem is not None and measured.problem is None:
            measured.problem = problem
            tools.stop.set()

    def _take_unsent(self, due: Dispatch, why: str) -> None:
        self._keep(self._rows.unsent(due, why, endpoint=self._endpoint_of(due.request)))

    def _keep(self, result: RequestResult, gaps_ns: Sequence[int] = ()) -> None:
        load = self._measured.load
        self._tools.keep(result)
        load.add(result, gaps_ns)
        self._tools.progress(self._phase.name, load.due, load.planned)

    def _endpoint_of(self, request: PlannedRequest) -> str:
        return self._tools.settings.labels[self._tools.sender.address_of(request).url]

    def _warn_of_other_answers(self) -> None:
        """Once a phase: what follows in its sessions is not what was planned."""
        if self._warned or not self._measured.witness.other_turns:
            return
        self._warned = True
        event(
            log,
            "answers.other_length",
            level=logging.WARNING,
            phase=self._phase.name,
            effect="later turns are not as planned",
            hint=OTHER_ANSWERS_HINT,
        )

    def _arrival(self) -> Arrival | None:
        rate = self._tools.settings.request_rate
        if rate is not None:
            return lambda index, _: evenly_spaced_ns(index, rate)
        first = next(self._tools.dataset.requests(), {})
        if "arrival_ms" in first:
            return _recorded_arrival
        return None

    def _sampler(self, before: RestingSnapshot) -> LoadSampler:
        tools = self._tools
        labels = tools.settings.labels
        adapters = {
            endpoint: adapter
            for endpoint, scrape in before.snapshot.scrapes.items()
            if scrape.page and (adapter := tools.metrics.adapter_of(scrape.page))
        }
        return LoadSampler(
            tools.client,
            adapters,
            clock=tools.clock,
            record=lambda name, row: tools.record(
                name, {**row, "endpoint": labels[row["endpoint"]]}
            ),
        )

    def _collect(
        self, before: RestingSnapshot, after: RestingSnapshot
    ) -> PrefixCacheRuntimeMetrics:
        metrics = self._tools.metrics
        return collect_prefix_cache_metrics(
            metrics.endpoints, before.snapshot, after.snapshot, adapter=metrics.adapter_name
        )

    def _with_usage(
        self, metrics: PrefixCacheRuntimeMetrics, sampler: LoadSampler
    ) -> PrefixCacheRuntimeMetrics:
        usage = sampler.summaries()
        rows = tuple(
            replace(row, kv_cache_usage=usage.get((row.endpoint, row.engine or "")))
            for row in metrics.instances
        )
        return replace(metrics, instances=rows)

    def _facts(
        self,
        isolated: Isolated,
        warm_up: WarmUpOutcome | None,
        metrics: PrefixCacheRuntimeMetrics,
        before: RestingSnapshot,
        after: RestingSnapshot,
    ) -> PhaseFacts:
        tools, load = self._tools, self._measured.load
        return PhaseFacts(
            phase=self._phase,
            isolated=isolated,
            metrics=metrics,
            witness=self._measured.witness,
            warm_up=warm_up,
            designed=tools.designed.tally(warmed=self._phase.warmed),
            most_hits=tools.designed.most(),
            at_rest={"before": before.at_rest, "after": after.at_rest},
            planned_requests=load.planned,
            answered_requests=load.succeeded,
            block_size=tools.dataset.manifest.block_size,
            ranks=dict(self._ranks(metrics)),
            labels=tools.settings.labels,
        )

    def _ranks(
        self, metrics: PrefixCacheRuntimeMetrics
    ) -> Iterator[tuple[tuple[str, str | None], Rank]]:
        """Which planned rank each row of metrics is, where the addresses tell."""
        endpoints = self._tools.metrics.endpoints
        if len(endpoints) != self._tools.settings.instances:
            return
        for row in metrics.instances:
            if row.engine is not None and row.engine.isdecimal():
                yield (row.endpoint, row.engine), (endpoints.index(row.endpoint), int(row.engine))

    def _outcome(
        self, facts: PhaseFacts, most_in_flight: int, client: ClientReport
    ) -> PhaseOutcome:
        load = self._measured.load
        return PhaseOutcome(
            phase=self._phase,
            facts=facts,
            performance=load.to_json(
                self._phase,
                concurrency=self._tools.settings.concurrency,
                most_in_flight=most_in_flight,
                client=client,
            ),
            sent=load.sent,
            due=load.due,
            failed=load.failed,
            is_complete=load.due == load.planned,
            problem=self._measured.problem,
        )

    def _record_isolation(self, isolated: Isolated) -> None:
        self._tools.record(
            "isolation.done",
            {
                "phase": self._phase.name,
                "round": self._phase.round,
                "method": isolated.method,
                "cache_state": isolated.cache_state,
                "verified": isolated.verified,
                "detail": isolated.detail,
            },
        )

    def _refuse_foreign_traffic(self, before: RestingSnapshot) -> None:
        if before.at_rest is not False or self._tools.metrics_optional:
            return
        raise MetricsError(
            "the server is not idle: it runs requests that are not ours",
            context=ErrorContext(
                stage=Stage.METRICS, dataset_id=self._tools.dataset.manifest.dataset_id
            ),
            hint="wait until it has nothing to do, or measure without counters: --metrics-optional",
        )


def _recorded_arrival(_: int, request: PlannedRequest) -> int:
    return recorded_ns(request.row["arrival_ms"])
