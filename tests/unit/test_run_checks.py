"""Cross-checks of a phase: each of them, when all is well and when it is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from prefixbench.config.execution import Isolation
from prefixbench.core.tally import HitTally, Unit
from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder
from prefixbench.run.cache_document import cache_document, metrics_of, phase_row
from prefixbench.run.cache_metrics import Gap, InstanceMetrics, PrefixCacheRuntimeMetrics
from prefixbench.run.checks import Check, PhaseFacts, as_row, phase_checks
from prefixbench.run.client import Exchange
from prefixbench.run.counters import EngineConfig
from prefixbench.run.isolation import CacheState, Isolated
from prefixbench.run.planned import PlannedRequest
from prefixbench.run.schedule import Phase
from prefixbench.run.warmup import WarmUpOutcome
from prefixbench.run.witness import LengthGuard, UsageWitness

A, B = "http://a/metrics", "http://b/metrics"
PHASE = Phase(name="cold", round=1, isolated=True, warmed=False)


def request(number: int = 0, *, input_len: int = 100, dp: int = 0) -> PlannedRequest:
    metadata = {
        "prefix_group_id": "g",
        "input_len": input_len,
        "planned_dp_id": dp,
        "planned_instance_id": 0,
    }
    return PlannedRequest(row={"request_id": f"r{number}"}, metadata=metadata)


def answer(**fields: Any) -> Exchange:
    base: dict[str, Any] = {"prompt_tokens": 100, "cached_tokens": 40, "status": Status.OK}
    return Exchange(sent_ns=0, finished_ns=1, **(base | fields))


def witness(*exchanges: Exchange) -> UsageWitness:
    found = UsageWitness()
    for number, exchange in enumerate(exchanges):
        found.add(request(number, dp=number % 2), exchange)
    return found


def counted(*tallies: HitTally | None, **more: Any) -> PrefixCacheRuntimeMetrics:
    rows = tuple(
        InstanceMetrics(
            endpoint=A,
            engine=str(rank),
            tally=tally,
            gap=None if tally else Gap.COUNTER_RESET,
            reason=None if tally else "counter reset",
            **{"config": EngineConfig(block_size=16), **more},
        )
        for rank, tally in enumerate(tallies)
    )
    return PrefixCacheRuntimeMetrics(adapter="vllm", instances=rows)


FACTS = PhaseFacts(
    phase=PHASE,
    isolated=Isolated(
        method=Isolation.SALT,
        cache_state=CacheState.SALTED,
        bodies=BodyBuilder(model="m"),
        verified=True,
        detail="one salt",
    ),
    metrics=counted(HitTally(80, 200)),
    witness=witness(answer(), answer()),
    warm_up=None,
    designed=HitTally(80, 200),
    most_hits=HitTally(180, 200),
    at_rest={"before": True, "after": True},
    planned_requests=2,
    answered_requests=2,
    block_size=16,
    ranks={},
    labels={A: "http://a:80", B: "http://b:80"},
)


def check(name: str, **changes: Any) -> Check:
    """The check of that name on changed facts."""
    (found,) = [one for one in phase_checks(replace(FACTS, **changes)) if one.name == name]
    return found


def test_all_is_well() -> None:
    assert {one.status for one in phase_checks(FACTS)} == {"ok"}


@pytest.mark.parametrize(
    ("name", "changes", "status", "cause"),
    [
        ("counters", {"metrics": counted(None)}, "fail", "server_restart"),
        (
            "counters",
            {
                "metrics": PrefixCacheRuntimeMetrics(
                    adapter=None,
                    instances=(
                        InstanceMetrics(
                            endpoint=B, engine=None, gap=Gap.UNREACHABLE, reason="empty"
                        ),
                    ),
                )
            },
            "fail",
            "metrics_unavailable",
        ),
        ("server_at_rest", {"at_rest": {"after": False}}, "fail", "foreign_traffic"),
        ("server_at_rest", {"at_rest": {"after": None}}, "skipped", None),
        ("caching_enabled", {"metrics": counted(HitTally(0, 0))}, "fail", "caching_disabled"),
        (
            "caching_enabled",
            {"metrics": counted(HitTally(0, 9), config=EngineConfig(enable_prefix_caching=False))},
            "fail",
            "caching_disabled",
        ),
        ("caching_enabled", {"metrics": counted(HitTally(0, 200))}, "warn", "hit_granularity"),
        (
            "caching_enabled",
            {"metrics": counted(HitTally(0, 100)), "answered_requests": 1},
            "skipped",
            None,
        ),
        (
            "caching_enabled",
            {"metrics": counted(HitTally(0, 0)), "witness": witness(), "answered_requests": 0},
            "skipped",
            None,
        ),
        ("requests", {"answered_requests": 1}, "warn", "failed_requests"),
        ("prompt_tokens", {"witness": witness(answer(prompt_tokens=None))}, "skipped", None),
        (
            "prompt_tokens",
            {"witness": witness(answer(prompt_tokens=101))},
            "fail",
            "template_tokens",
        ),
        ("hits_vs_cached_tokens", {"metrics": counted(None)}, "skipped", None),
        (
            "hits_vs_cached_tokens",
            {"witness": witness(answer(cached_tokens=None))},
            "skipped",
            None,
        ),
        (
            "hits_vs_cached_tokens",
            {"metrics": counted(HitTally(96, 200))},
            "warn",
            "foreign_traffic",
        ),
        (
            "hits_vs_cached_tokens",
            {"metrics": counted(HitTally(64, 200))},
            "warn",
            "counter_window",
        ),
        (
            "queries_vs_prompt_tokens",
            {"metrics": counted(HitTally(80, 300))},
            "warn",
            "foreign_traffic",
        ),
        (
            "queries_vs_prompt_tokens",
            {"metrics": counted(HitTally(80, 300)), "planned_requests": 3},
            "warn",
            "failed_requests",
        ),
        (
            "queries_vs_prompt_tokens",
            {"metrics": counted(HitTally(5, 12, Unit.BLOCK))},
            "warn",
            "metric_unit_mismatch",
        ),
        (
            "warm_up",
            {"warm_up": WarmUpOutcome(sent=3, failed_groups={"g"})},
            "fail",
            "failed_requests",
        ),
        ("warm_up", {"warm_up": WarmUpOutcome(sent=3, wrong_lengths=1)}, "warn", "template_tokens"),
        ("warm_up", {"warm_up": WarmUpOutcome(sent=3)}, "ok", None),
        ("block_size", {"block_size": 32}, "warn", "block_size_mismatch"),
        (
            "block_size",
            {"metrics": counted(HitTally(80, 200), config=EngineConfig())},
            "skipped",
            None,
        ),
    ],
)
def test_what_is_not_well_has_a_status_and_a_cause(
    name: str, changes: dict[str, Any], status: str, cause: str | None
) -> None:
    found = check(name, **changes)
    assert (found.status, found.cause) == (status, cause)
    assert found.detail


def test_local_and_external_hits_together_are_the_cached_tokens() -> None:
    metrics = counted(HitTally(48, 200), external=HitTally(32, 152))
    assert check("hits_vs_cached_tokens", metrics=metrics).status == "ok"


@pytest.mark.parametrize(("first", "second", "status"), [(100, 100, "ok"), (150, 50, "warn")])
def test_every_rank_is_asked_for_what_was_planned_for_it(
    first: int, second: int, status: str
) -> None:
    found = check(
        "routing",
        metrics=counted(HitTally(40, first), HitTally(40, second)),
        ranks={(A, "0"): (0, 0), (A, "1"): (0, 1)},
    )
    assert found.status == status
    assert found.cause == ("routing" if status == "warn" else None)


@pytest.mark.parametrize("state", [CacheState.WARM, CacheState.UNKNOWN])
def test_a_cache_that_may_hold_something_is_flagged_with_the_excess(state: CacheState) -> None:
    found = check("cache_state", isolated=replace(FACTS.isolated, cache_state=state))
    assert (found.status, found.cause) == ("warn", "residual_cache")
    assert "100 hits" in found.detail


def test_no_full_address_is_in_a_check() -> None:
    for facts in (FACTS, replace(FACTS, metrics=counted(None))):
        assert A not in str(phase_checks(facts))


def test_the_first_answers_are_held_against_the_plan() -> None:
    guard = LengthGuard("d")
    for number in range(5):
        assert guard.problem(request(number), answer()) is None
    assert guard.problem(request(6), answer(prompt_tokens=101)) is None  # counted, not fatal
    strict = LengthGuard("d")
    assert strict.problem(request(), answer(prompt_tokens=None)) is None
    problem = strict.problem(request(), answer(prompt_tokens=104))
    assert problem is not None
    assert "104" in problem.message
    assert "100" in problem.message


def test_rounds_are_summed_and_a_missing_part_makes_no_sum() -> None:
    rows = [phase_row(FACTS, is_complete=True), phase_row(FACTS, is_complete=True)]
    identity = {"dataset_id": "d", "manifest_sha256": "m"}
    whole = cache_document(rows, [], headline="cold", identity=identity)
    assert (whole["global"]["hits"], whole["global"]["queries"]) == (160, 400)
    assert whole["usage"] == {
        "prompt_tokens": 400,
        "cached_tokens": 160,
        "requests_with_hit_rate": 4,
    }
    void = phase_row(replace(FACTS, metrics=counted(None)), is_complete=True)
    part = cache_document([rows[0], void], [], headline="cold", identity=identity)
    assert part["global"]["hits"] is None
    assert part["global"]["reason"] == "counter reset"
    assert part["instances"][0]["gap"] == "counter_reset"


def test_only_the_headline_phase_is_summed() -> None:
    other = dict(phase_row(FACTS, is_complete=True), phase="hot", hits=1)
    whole = cache_document(
        [phase_row(FACTS, is_complete=True), other], [], headline="cold", identity={}
    )
    assert whole["global"]["hits"] == 80


def test_deviation_needs_a_whole_phase_and_the_same_unit() -> None:
    assert phase_row(FACTS, is_complete=True)["runtime_deviation"] == 0
    assert phase_row(FACTS, is_complete=False)["runtime_deviation"] is None
    blocks = replace(FACTS, metrics=counted(HitTally(5, 12, Unit.BLOCK)))
    assert phase_row(blocks, is_complete=True)["runtime_deviation"] is None
    assert phase_row(blocks, is_complete=True)["hit_rate"] == pytest.approx(5 / 12)


def test_a_row_on_disk_gives_its_tallies_back() -> None:
    facts = replace(FACTS, metrics=counted(HitTally(8, 9), external=HitTally(1, 1)))
    again = metrics_of(phase_row(facts, is_complete=True))
    assert again.tally == HitTally(8, 9)
    assert again.external == HitTally(1, 1)


def test_a_check_names_its_phase() -> None:
    row = as_row(check("requests"), PHASE)
    assert (row["phase"], row["round"], row["status"]) == ("cold", 1, "ok")
    assert "cause" not in row
