"""Whatever happens in a run, the steps of its attribution sum to the deviation exactly."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixbench.explain.analysis import Analysis
from prefixbench.explain.report import report_of
from prefixbench.explain.run_files import read_run
from synthetic_runs import write_run
from synthetic_world import World

NAMES = ("a", "b", "c", "d")


@st.composite
def worlds(draw: st.DrawFn, *, faults: bool = True) -> World:
    ranks = draw(st.integers(1, 3))
    honest = World(
        requests=draw(st.integers(4, 24)),
        groups=NAMES[: draw(st.integers(1, 4))],
        shortest=64,
        longest=draw(st.sampled_from([64, 300])),
        theta=draw(st.floats(0, 0.95)),
        head=draw(st.sampled_from([0, 5, 16, 40])),
        ranks=ranks,
        scope="dp_local" if ranks > 1 else "global",
        mode=draw(st.sampled_from(["progressive_prefix_fill", "cold", "compare"])),
        semantics=draw(st.sampled_from(["order_aware_global", "static_prefix_ratio"])),
        concurrency=draw(st.integers(1, 8)),
        rounds=draw(st.integers(1, 2)),
        seed=draw(st.integers(0, 99)),
        planned_flight=draw(st.sampled_from([1, 1, 2, 5])),
        planned_blocks=draw(st.sampled_from([None, None, 20, 60])),
    )
    if not faults:
        return honest
    return replace(
        honest,
        failing=frozenset(draw(st.sets(st.integers(0, 23), max_size=3))),
        residue=draw(st.sampled_from([0, 32, 100])),
        extra_tokens=draw(st.sampled_from([0, 3])),
        server_step=draw(st.sampled_from([None, 32])),
        foreign_queries=draw(st.integers(0, 500)),
        misrouted=draw(st.booleans()) and ranks > 1,
        forgetful=draw(st.booleans()),
        evictions=draw(st.sampled_from([None, 7])),
        reports_cached=draw(st.booleans()),
        served_blocks=draw(st.sampled_from([None, 20, 50])),
    )


def analysed(world: World) -> Analysis:
    with TemporaryDirectory() as folder:
        return Analysis(read_run(write_run(Path(folder) / "run", world)))


@settings(max_examples=80, deadline=None)
@given(worlds())
def test_contributions_sum_to_actual_less_target_exactly(world: World) -> None:
    analysis = analysed(world)
    stations = analysis.attribution.stations
    assert analysis.actual is not None
    assert sum(station.contribution for station in stations) == (
        analysis.actual.ratio - analysis.target
    )
    for before, after in pairwise(stations):
        assert after.ratio == before.ratio + after.contribution
    report = report_of(analysis).to_json()
    written = report["attribution"]
    total_pp = sum(row["contribution_pp"] for row in written["stations"])
    asked, measured = report["target_hit_ratio"], report["actual_hit_rate"]
    assert abs(total_pp / 100 - (measured - asked)) < 1e-12
    assert written["stations"][-1]["contribution_pp"] == written["unexplained_pp"]


@settings(max_examples=80, deadline=None)
@given(worlds(faults=False))
def test_an_honest_unlimited_cache_is_explained_whatever_the_concurrency(world: World) -> None:
    """The toy cache shows blocks at the first token: order and overlap are all that can differ."""
    analysis = analysed(world)
    assert analysis.attribution.unexplained == 0
    found = {station.name for station in analysis.attribution.stations if station.is_cause}
    allowed = {"execution_mode", "processing_order", "concurrency_visibility"}
    if analysis.conditions is None:
        assert found <= allowed
        assert world.concurrency > 1 or found <= {"execution_mode"}
    else:
        assert found <= allowed | {"capacity_eviction"}


@settings(max_examples=60, deadline=None)
@given(worlds())
def test_what_a_plan_allows_for_is_walked_again_from_the_files(world: World) -> None:
    """The toy cache of the plan is an LRU list of blocks; its hits stand in the report's totals."""
    checks = report_of(analysed(world)).to_json()["checks"]
    (walked,) = [row for row in checks if row["name"] == "plan_walked_again"]
    assert walked["status"] in ("ok", "not_measured")


@settings(max_examples=60, deadline=None)
@given(worlds(faults=False), st.sampled_from([20, 60, None]))
def test_a_loss_that_the_plan_allows_for_is_no_cause(world: World, blocks: int | None) -> None:
    """Served as planned, one at a time: the way down from the theory is the plan's own."""
    served = replace(
        world, mode="progressive_prefix_fill", semantics="order_aware_global",
        planned_blocks=blocks, served_blocks=blocks, planned_flight=1, concurrency=1,
    )  # fmt: skip
    analysis = analysed(served)
    steps = {station.name: station for station in analysis.attribution.stations}
    assert analysis.actual is not None
    assert analysis.actual.ratio == analysis.planned
    assert analysis.attribution.unexplained == 0
    assert not any(station.is_cause for station in steps.values())
    assert ("theory" in steps) == ("planned_conditions" in steps) == (blocks is not None)
    if blocks is not None:
        assert steps["theory"].contribution == -steps["planned_conditions"].contribution >= 0
        assert steps["planned_conditions"].ratio == analysis.planned


@settings(max_examples=40, deadline=None)
@given(worlds())
def test_the_rate_is_the_sum_of_hits_over_the_sum_of_queries(world: World) -> None:
    analysis = analysed(world)
    report = report_of(analysis).to_json()
    headline = report["phases"][-1]["phase"]
    rows = [row for row in report["phases"] if row["phase"] == headline]
    hits, queries = sum(row["hits"] for row in rows), sum(row["queries"] for row in rows)
    assert report["actual_hit_rate"] == float(Fraction(hits, queries))


@settings(max_examples=40, deadline=None)
@given(worlds(faults=False))
def test_hits_of_an_unlimited_cache_lie_in_the_predicted_interval(world: World) -> None:
    report: dict[str, Any] = report_of(analysed(world)).to_json()
    prediction, actual = report["prediction"], report["actual_hit_rate"]
    assert prediction["low"] <= prediction["high"]
    if report["predicted_hit_ratio"] is not None:
        assert prediction["low"] == prediction["high"] == report["predicted_hit_ratio"]
    if world.rounds == 1 and world.mode != "compare":
        assert prediction["low"] - 1e-12 <= actual <= prediction["high"] + 1e-12
