"""`run`: a data set from disk, sent to a server, becomes a run directory (RFC 3.1.5)."""

from __future__ import annotations

import asyncio
import logging
import platform
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import aiohttp

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.core.clock import Clock, RealClock
from prefixbench.core.errors import (
    ErrorContext,
    MetricsError,
    PrefixBenchError,
    Stage,
    TooManyFailuresError,
)
from prefixbench.core.log import event
from prefixbench.core.version import __version__
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.dataset.server_profile import read_server_profile
from prefixbench.run.addresses import origin_of
from prefixbench.run.bodies import SAMPLING, BodyBuilder
from prefixbench.run.cache_metrics import Gap
from prefixbench.run.calibration import Calibration, calibrate
from prefixbench.run.client import Client
from prefixbench.run.designed import DesignedHits
from prefixbench.run.directory import copy_dataset, naming, open_directory, storage_errors
from prefixbench.run.families import ADAPTERS
from prefixbench.run.interrupt import stop_on_signals
from prefixbench.run.isolation import Isolator, OpeningChoice
from prefixbench.run.journal import RunJournal, RunResult, RunStatus, now_text
from prefixbench.run.loops import loop_factory
from prefixbench.run.metrics_reader import MetricsReader
from prefixbench.run.options import RunOptions, RunSettings, resolve_settings
from prefixbench.run.phase_run import PhaseOutcome, PhaseRun, PhaseTools
from prefixbench.run.planned import last_turns
from prefixbench.run.preflight import Patience, ServerFacts, find_model, server_facts
from prefixbench.run.redact import redact_command
from prefixbench.run.schedule import phases_of
from prefixbench.run.sending import Sender
from prefixbench.run.witness import LengthGuard

log = logging.getLogger(__name__)

Progress = Callable[[str, int, int], None]

#: Requests in flight have this long to end by themselves once a run is stopped.
_GRACE_NS = 5_000_000_000

#: Blocks that a probe of a salt fills for certain.
_PROBE_BLOCKS = 2

#: Columns of request_results.jsonl that stay null, and why.
_NOT_MEASURED = {
    "actual_dp_id": "unless the server names its rank in the answer's header X-data-parallel-rank",
    "server_prefill_start_ns": "servers of this interface do not tell",
    "server_prefill_end_ns": "servers of this interface do not tell",
}

#: Kinds of gaps that mean: nothing was measured, as opposed to: what was measured is void.
_UNMEASURED = frozenset({Gap.UNREACHABLE, Gap.UNKNOWN_FAMILIES, Gap.RATE_ONLY})


def run_dataset(options: RunOptions, progress: Progress | None = None) -> RunResult:
    """Run a data set against a server; `progress` is told (phase, requests done, planned).

    The run directory is complete whenever this returns or raises after the preflight. Raises
    MetricsError at the end if no counter could be read (unless metrics are optional) and
    TooManyFailuresError if too many requests failed.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(run_dataset_async(options, progress))


async def run_dataset_async(options: RunOptions, progress: Progress | None = None) -> RunResult:
    """As `run_dataset`, inside a running loop."""
    DatasetReader(options.dataset).check_hashes()
    dataset = open_dataset(options.dataset, tokenizer=options.tokenizer, corpus=options.corpus)
    settings = resolve_settings(options, dataset.manifest)
    profile = read_server_profile(options.server_profile)
    async with Client(
        RealClock(),
        timeout_s=options.timeout_s,
        headers=settings.headers,
        origins=[origin_of(address.url) for address in settings.addresses],
        proxy=options.proxy,
    ) as client:
        run = _Run(options, settings, dataset, client, progress or _no_progress)
        await run.look_at_server(profile)
        with storage_errors(dataset.manifest.dataset_id):
            return await run.execute()


class _Run:
    """One run: everything decided, nothing sent yet."""

    def __init__(
        self,
        options: RunOptions,
        settings: RunSettings,
        dataset: DatasetReader,
        client: Client,
        progress: Progress,
    ) -> None:
        self._options = options
        self._settings = settings
        self._dataset = dataset
        self._client = client
        self._progress = progress
        self._clock: Clock = RealClock()
        self._stop = asyncio.Event()
        self._metrics = MetricsReader(
            client,
            settings.metrics_urls,
            clock=self._clock,
            adapter=options.adapter,
            idle_timeout_s=options.idle_timeout_s,
        )
        self._sender = Sender(
            client=client,
            addresses=settings.addresses,
            dp_size=settings.dp_size,
            planned_instances=settings.instances,
        )
        self._last_turns = last_turns(dataset)
        self._phases = phases_of(settings.mode, settings.rounds)
        self._model = ""
        self._server = ServerFacts()
        self._calibration: Calibration | None = None

    async def look_at_server(self, profile: Mapping[str, Any]) -> None:
        """Preflight: raises EndpointError before anything is written; metrics may be missing."""
        settings = self._settings
        patience = Patience(self._clock, self._options.startup_timeout_s)
        self._model = await find_model(
            self._client, settings.addresses, self._options.model, patience
        )
        snapshot = await self._metrics.snapshot()
        for endpoint, error in snapshot.errors.items():
            event(
                log,
                "metrics.missing",
                level=logging.WARNING,
                endpoint=settings.labels[endpoint],
                problem=error.problem,
            )
        if self._options.calibrate:
            self._calibration = await calibrate(self._clock, settings.concurrency or 1)
        facts = await server_facts(self._client, settings.addresses[0], self._metrics, snapshot)
        self._server = facts.or_else(profile)

    async def execute(self) -> RunResult:
        """Run every phase and write everything down."""
        directory = open_directory(
            self._options.output, resume=self._options.resume, overwrite=self._options.overwrite
        )
        journal = RunJournal(
            directory,
            identity={
                "dataset_id": self._dataset.manifest.dataset_id,
                "manifest_sha256": self._dataset.manifest_sha256,
            },
            headline=self._phases[-1].name,
            description=self._description(),
        )
        done = journal.resume() if self._options.resume else set()
        copy_dataset(self._dataset, directory)
        with naming(directory), journal, stop_on_signals(self._stop):
            return await self._execute(journal, done)

    async def _execute(self, journal: RunJournal, done: set[tuple[str, int]]) -> RunResult:
        hang_up = asyncio.create_task(self._hang_up_when_stopped())
        try:
            outcomes = await self._run_phases(journal, done)
            problem = self._problem(outcomes)
        except PrefixBenchError as error:
            journal.finish(RunStatus.FAILED, error.to_json())
            raise
        except BaseException as error:
            journal.finish(RunStatus.FAILED, {"code": "internal", "message": type(error).__name__})
            raise
        finally:
            hang_up.cancel()
        if problem is not None:
            journal.finish(RunStatus.FAILED, problem.to_json())
            raise problem
        stopped = self._stop.is_set()
        return journal.finish(RunStatus.INTERRUPTED if stopped else RunStatus.COMPLETE)

    async def _run_phases(
        self, journal: RunJournal, done: set[tuple[str, int]]
    ) -> list[PhaseOutcome]:
        tools = self._tools(journal)
        outcomes = []
        for phase in self._phases:
            if self._stop.is_set():
                break
            if (phase.name, phase.round) in done:
                continue
            event(log, "phase.started", phase=phase.name, round=phase.round)
            journal.event("phase.started", {"phase": phase.name, "round": phase.round})
            outcome = await PhaseRun(tools, phase).execute()
            journal.phase_done(outcome)
            outcomes.append(outcome)
            event(log, "phase.ended", phase=phase.name, round=phase.round, sent=outcome.sent)
        return outcomes

    def _problem(self, outcomes: Sequence[PhaseOutcome]) -> PrefixBenchError | None:
        """What the run ends with although everything was written down."""
        wrong_prompts = next((outcome.problem for outcome in outcomes if outcome.problem), None)
        if wrong_prompts is not None or self._stop.is_set():
            return wrong_prompts  # of an interrupted run nothing more is demanded
        return self._too_many_failures(outcomes) or self._no_metrics(outcomes)

    def _too_many_failures(self, outcomes: Sequence[PhaseOutcome]) -> PrefixBenchError | None:
        due = sum(outcome.due for outcome in outcomes)
        failed = sum(outcome.failed for outcome in outcomes)
        if not due or failed / due <= self._options.max_failure_rate:
            return None
        return TooManyFailuresError(
            f"{failed} of {due} requests failed, more than"
            f" {self._options.max_failure_rate:.2%} of them",
            context=ErrorContext(
                stage=Stage.RUN,
                dataset_id=self._dataset.manifest.dataset_id,
                field="--max-failure-rate",
            ),
            hint="see status and error in runtime/request_results.jsonl",
        )

    def _no_metrics(self, outcomes: Sequence[PhaseOutcome]) -> PrefixBenchError | None:
        if self._options.metrics_optional:
            return None
        for outcome in outcomes:
            metrics = outcome.facts.metrics
            if metrics.tally is None and all(row.gap in _UNMEASURED for row in metrics.gaps):
                return MetricsError(
                    f"the run is done, but there is no hit rate: {metrics.reason}",
                    context=ErrorContext(
                        stage=Stage.METRICS,
                        dataset_id=self._dataset.manifest.dataset_id,
                        field="--metrics-url",
                    ),
                    hint="give the metrics address with --metrics-url, or --metrics-optional",
                )
        return None

    async def _hang_up_when_stopped(self) -> None:
        await self._stop.wait()
        await self._clock.sleep_ns(_GRACE_NS)
        self._client.hang_up()

    def _tools(self, journal: RunJournal) -> PhaseTools:
        return PhaseTools(
            dataset=self._dataset,
            last_turns=self._last_turns,
            settings=self._settings,
            clock=self._clock,
            client=self._client,
            metrics=self._metrics,
            isolator=self._isolator(),
            sender=self._sender,
            designed=DesignedHits(self._dataset, self._settings.cache_scope),
            guard=LengthGuard(self._dataset.manifest.dataset_id),
            stop=self._stop,
            epoch_ns=time.time_ns() - self._clock.now_ns(),
            metrics_optional=self._options.metrics_optional,
            record=journal.event,
            keep=journal.result,
            progress=self._progress,
        )

    def _isolator(self) -> Isolator:
        settings = self._settings
        return Isolator(
            self._client,
            self._metrics,
            BodyBuilder(
                model=self._model,
                rank_field=self._rank_field(),
                answer_fields=settings.answer_fields,
            ),
            addresses=settings.addresses,
            asked=settings.isolation,
            opening_words=self._opening_words(),
            probe_words=_PROBE_BLOCKS * self._longest_step(),
            is_chat=settings.prompt_format is PromptFormat.CHAT,
            probe_headers=self._sender.rank_headers(0),
        )

    def _opening_words(self) -> list[OpeningChoice]:
        """Words that may open every prompt, the planned one first; none without the ids to send."""
        data = self._dataset.manifest.data
        words, ids = data.get("opening_words", ()), data.get("opening_word_ids", ())
        if self._settings.prompt_format is PromptFormat.TOKEN_IDS:
            return list(zip(words, ids, strict=False))
        return [(word, None) for word in words]

    def _longest_step(self) -> int:
        """Tokens after which a hit is certain, by the plan and by what the server says."""
        planned = self._dataset.manifest.hit_granularity
        return max(planned, self._server.block_size or 0, self._server.hit_granularity or 0)

    def _rank_field(self) -> str | None:
        """The body field that pins a rank, on engines that take no header for it."""
        adapter = ADAPTERS.get(self._server.engine or "")
        return adapter.rank_field if adapter is not None and self._settings.dp_size > 1 else None

    def _description(self) -> dict[str, Any]:
        """run.json as far as it is known before anything is sent."""
        options, settings, manifest = self._options, self._settings, self._dataset.manifest
        return {
            "run_id": secrets.token_hex(8),
            "dataset_id": manifest.dataset_id,
            "manifest_sha256": self._dataset.manifest_sha256,
            "versions": _versions(),
            "command": redact_command(options.command),
            "mode": settings.mode,
            "warmup_rounds": settings.warmup_rounds,
            "rounds": settings.rounds,
            "concurrency": settings.concurrency,
            "request_rate": settings.request_rate,
            "gate": settings.gate,
            "max_failure_rate": options.max_failure_rate,
            "timeouts": {"request_s": options.timeout_s, "idle_s": options.idle_timeout_s},
            "sampling": {**SAMPLING, **settings.answer_fields},
            "sessions": manifest.config.get("sessions"),
            "model": self._model,
            "routing": {
                **manifest.config.get("routing", {}),
                "endpoints": [settings.labels[address.url] for address in settings.addresses],
                "metrics": [settings.labels[url] for url in settings.metrics_urls],
            },
            "isolation": {"asked": settings.isolation},
            "server": asdict(self._server),
            "calibration": asdict(self._calibration) if self._calibration else None,
            "not_measured": _NOT_MEASURED,
            "started": now_text(),
        }


def _versions() -> dict[str, str]:
    return {
        "prefixbench": __version__,
        "python": platform.python_version(),
        "aiohttp": aiohttp.__version__,
    }


def _no_progress(phase: str, done: int, planned: int) -> None:
    """Nobody wants to know."""
