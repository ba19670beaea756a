"""Cross-checks of a phase: the counters, the requests and the plan, each against the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from prefixbench.core.tally import HitTally, Unit
from prefixbench.run.cache_metrics import Gap, PrefixCacheRuntimeMetrics, combined
from prefixbench.run.isolation import CacheState, Isolated
from prefixbench.run.schedule import Phase
from prefixbench.run.warmup import WarmUpOutcome
from prefixbench.run.witness import OTHER_ANSWERS_HINT, Rank, UsageWitness


class CheckStatus(StrEnum):
    """`skipped`: what the check needs was not measured."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One line of the table; `cause` is a word of contract section 4 where it is known."""

    name: str
    status: CheckStatus
    detail: str
    cause: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseFacts:
    """All that the checks of a phase look at. `ranks` says which rank a row of metrics is."""

    phase: Phase
    isolated: Isolated
    metrics: PrefixCacheRuntimeMetrics
    witness: UsageWitness
    warm_up: WarmUpOutcome | None
    designed: HitTally
    most_hits: HitTally
    at_rest: Mapping[str, bool | None]
    planned_requests: int
    answered_requests: int
    block_size: int
    ranks: Mapping[tuple[str, str | None], Rank]
    labels: Mapping[str, str]


def phase_checks(facts: PhaseFacts) -> tuple[Check, ...]:
    """Every check, in the order in which a reader should look at them."""
    return tuple(
        check
        for checks in (
            _counters(facts),
            _rest(facts),
            _caching(facts),
            _requests(facts),
            _lengths(facts),
            _served_answers(facts),
            _hits(facts),
            _queries(facts),
            _routing(facts),
            _cache_state(facts),
            _warm_up(facts),
            _block_size(facts),
        )
        for check in checks
    )


def _counters(facts: PhaseFacts) -> Iterator[Check]:
    if not facts.metrics.gaps:
        yield _ok("counters", f"{len(facts.metrics.instances)} caches counted")
    for row in facts.metrics.gaps:
        place = facts.labels.get(row.endpoint, "?")
        yield Check(
            name="counters",
            status=CheckStatus.FAIL,
            detail=f"{place}{f' rank {row.engine}' if row.engine else ''}: {row.reason}",
            cause="server_restart" if row.gap is Gap.COUNTER_RESET else "metrics_unavailable",
        )


def _rest(facts: PhaseFacts) -> Iterator[Check]:
    busy = [moment for moment, at_rest in facts.at_rest.items() if at_rest is False]
    if busy:
        yield Check(
            name="server_at_rest",
            status=CheckStatus.FAIL,
            detail=f"the server did not come to rest {' and '.join(busy)} the phase",
            cause="foreign_traffic",
        )
    elif None in facts.at_rest.values():
        yield _skipped("server_at_rest", "no metrics page tells")
    else:
        yield _ok("server_at_rest", "nothing ran or waited at both snapshots")


def _caching(facts: PhaseFacts) -> Iterator[Check]:
    tally = facts.metrics.tally
    switched_off = any(row.config.enable_prefix_caching is False for row in facts.metrics.instances)
    if switched_off or (tally is not None and tally.queries == 0 and facts.witness.answered):
        yield Check(
            name="caching_enabled",
            status=CheckStatus.FAIL,
            detail="prefix caching is off, or the metrics are of another server: no query counted",
            cause="caching_disabled",
        )
    elif tally is None:
        return
    elif tally.hits or not facts.designed.hits:
        yield _ok("caching_enabled", f"{tally.queries} queries, {tally.hits} hits")
    elif facts.answered_requests < facts.planned_requests:
        yield _skipped("caching_enabled", "no hit yet in the requests that were answered")
    else:
        yield Check(
            name="caching_enabled",
            status=CheckStatus.WARN,
            detail="queries were counted and not one hit",
            cause="hit_granularity",
        )


def _requests(facts: PhaseFacts) -> Iterator[Check]:
    answered, planned = facts.answered_requests, facts.planned_requests
    detail = f"{answered} of {planned} planned requests were answered"
    if answered == planned:
        yield _ok("requests", detail)
    else:
        yield Check(
            name="requests", status=CheckStatus.WARN, detail=detail, cause="failed_requests"
        )


def _lengths(facts: PhaseFacts) -> Iterator[Check]:
    witness = facts.witness
    known = witness.prompt_tokens_known - witness.histories
    if not known:
        yield _skipped("prompt_tokens", "no answer told its prompt tokens")
    elif witness.other_lengths:
        yield Check(
            name="prompt_tokens",
            status=CheckStatus.FAIL,
            detail=f"{witness.other_lengths} of {known} answers count"
            " other prompt tokens than planned",
            cause="template_tokens",
        )
    else:
        yield _ok("prompt_tokens", f"as planned in {known} answers")


def _served_answers(facts: PhaseFacts) -> Iterator[Check]:
    witness = facts.witness
    if not witness.served:
        return
    if not witness.continued:
        yield _skipped("served_answers", "no answer that a later turn goes on from told its length")
    elif witness.other_turns:
        yield Check(
            name="served_answers",
            status=CheckStatus.WARN,
            detail=f"{witness.other_answers} of {witness.continued} answers, and"
            f" {witness.other_histories} of {witness.histories} prompts that hold answers, have"
            f" another length than planned; {OTHER_ANSWERS_HINT}",
            cause="served_answers",
        )
    else:
        yield _ok(
            "served_answers",
            f"as long as planned: {witness.continued} answers and {witness.histories} prompts that"
            " hold answers",
        )


def _hits(facts: PhaseFacts) -> Iterator[Check]:
    tally, cached = _token_tally(facts.metrics), facts.witness.all_cached_tokens
    if tally is None or cached is None:
        yield _skipped("hits_vs_cached_tokens", "counters or cached_tokens are missing")
        return
    both = combined(tally, facts.metrics.external) or tally
    detail = f"counters {both.hits}, cached_tokens {cached}"
    yield _compared(facts, "hits_vs_cached_tokens", both.hits, cached, detail)


def _queries(facts: PhaseFacts) -> Iterator[Check]:
    tally, told = facts.metrics.tally, facts.witness.all_prompt_tokens
    if tally is not None and tally.unit is not Unit.TOKEN:
        yield Check(
            name="queries_vs_prompt_tokens",
            status=CheckStatus.WARN,
            detail=f"the counters count {tally.unit}s, the plan tokens",
            cause="metric_unit_mismatch",
        )
    elif tally is None or told is None or facts.metrics.is_partial:
        yield _skipped("queries_vs_prompt_tokens", "counters or prompt_tokens are missing")
    else:
        detail = f"counters {tally.queries}, prompt_tokens {told}"
        yield _compared(facts, "queries_vs_prompt_tokens", tally.queries, told, detail)


def _routing(facts: PhaseFacts) -> Iterator[Check]:
    if len(facts.ranks) < 2:
        return
    moved = [
        f"{facts.labels.get(row.endpoint, '?')} rank {row.engine}: {row.tally.queries} of"
        f" {facts.witness.planned_tokens[rank]}"
        for row in facts.metrics.instances
        if row.tally is not None
        and (rank := facts.ranks.get((row.endpoint, row.engine))) is not None
        and row.tally.queries != facts.witness.planned_tokens[rank]
    ]
    if moved:
        yield Check(
            name="routing",
            status=CheckStatus.WARN,
            detail="queries differ from the planned routing: " + "; ".join(moved),
            cause="routing",
        )
    else:
        yield _ok("routing", "every rank was asked for what was planned for it")


def _cache_state(facts: PhaseFacts) -> Iterator[Check]:
    isolated = facts.isolated
    if isolated.cache_state not in (CacheState.WARM, CacheState.UNKNOWN):
        yield _ok("cache_state", f"{isolated.cache_state}: {isolated.detail}")
        return
    excess = facts.most_hits.hits - facts.designed.hits
    yield Check(
        name="cache_state",
        status=CheckStatus.WARN,
        detail=f"{isolated.cache_state}: {isolated.detail}; what an earlier run of these prompts"
        f" left can add up to {excess} hits to the planned {facts.designed.hits}",
        cause="residual_cache",
    )


def _warm_up(facts: PhaseFacts) -> Iterator[Check]:
    outcome = facts.warm_up
    if outcome is None:
        return
    if outcome.failed_groups:
        yield Check(
            name="warm_up",
            status=CheckStatus.FAIL,
            detail=f"warm-up failed for {_some(sorted(outcome.failed_groups))}",
            cause="failed_requests",
        )
    elif outcome.wrong_lengths:
        yield Check(
            name="warm_up",
            status=CheckStatus.WARN,
            detail=f"{outcome.wrong_lengths} of {outcome.sent} warm-up prompts have another length"
            " than planned",
            cause="template_tokens",
        )
    else:
        yield _ok("warm_up", f"{outcome.sent} warm-up requests were answered")


def _block_size(facts: PhaseFacts) -> Iterator[Check]:
    told = {row.config.block_size for row in facts.metrics.instances} - {None}
    if not told:
        yield _skipped("block_size", "the metrics page does not state it")
    elif told == {facts.block_size}:
        yield _ok("block_size", f"{facts.block_size} tokens, as planned")
    else:
        yield Check(
            name="block_size",
            status=CheckStatus.WARN,
            detail=f"the server states {_some(sorted(map(str, told)))} tokens,"
            f" the plan has {facts.block_size}",
            cause="block_size_mismatch",
        )


def _token_tally(metrics: PrefixCacheRuntimeMetrics) -> HitTally | None:
    tally = metrics.tally
    return tally if tally is not None and tally.unit is Unit.TOKEN and not metrics.gaps else None


def _compared(facts: PhaseFacts, name: str, counted: int, told: int, detail: str) -> Check:
    """Counters against answers; requests without an answer are in the counters alone."""
    if counted == told:
        return _ok(name, detail)
    if counted < told:
        cause = "counter_window"
    elif facts.answered_requests < facts.planned_requests:
        cause = "failed_requests"
    else:
        cause = "foreign_traffic"
    return Check(name=name, status=CheckStatus.WARN, detail=detail, cause=cause)


def _ok(name: str, detail: str) -> Check:
    return Check(name=name, status=CheckStatus.OK, detail=detail)


def _skipped(name: str, detail: str) -> Check:
    return Check(name=name, status=CheckStatus.SKIPPED, detail=detail)


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:5])
    return f"{shown} and {len(names) - 5} more" if len(names) > 5 else shown


def as_row(check: Check, phase: Phase) -> dict[str, Any]:
    """A check as it stands in prefix_cache_metrics.json."""
    row = {
        "phase": phase.name,
        "round": phase.round,
        "name": check.name,
        "status": check.status,
        "detail": check.detail,
    }
    return row | ({"cause": check.cause} if check.cause else {})
