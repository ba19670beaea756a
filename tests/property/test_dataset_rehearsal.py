"""A data set played on a simulated engine against an unlimited cache that reads tokens."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_paths import BOTH, take_loops
from oracles import ToyRequest, served_hits
from prefixbench.core.errors import ConfigError
from prefixbench.core.tally import HitTally
from prefixbench.core.version import FORMAT_VERSION
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.rehearsal import Rehearsal, Spread, hits_by_capacity, rehearse
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.routing import RoundRobin, Sticky
from prefixbench.simulator.rules import TierRules
from prefixbench.simulator.stopwatch import Stopwatch

BLOCK = 4
SHORTEST, LONGEST = 10, 60


@st.composite
def toy_requests(draw: st.DrawFn, head: int) -> list[ToyRequest]:
    count = draw(st.integers(1, 12))
    requests = []
    for _ in range(count):
        input_len = draw(st.integers(SHORTEST, LONGEST))
        requests.append(
            ToyRequest(
                cache=draw(st.integers(0, 1)),
                group=draw(st.integers(0, 2)),
                input_len=input_len,
                prefix_len=draw(st.integers(head, input_len - 1)),
            )
        )
    return requests


def written(
    folder: Path,
    requests: Sequence[ToyRequest],
    *,
    head: int = 0,
    warm: dict[int, int] | None = None,
    salts: dict[int, str] | None = None,
    **order: Any,
) -> DatasetReader:
    """A data set on disk as far as a rehearsal reads it."""
    depths = warm or {}
    manifest = {
        "format_version": FORMAT_VERSION,
        "dataset_id": "toy",
        "status": "complete",
        "hit_granularity": BLOCK,
        "head_len": head,
        "warmed": warm is not None,
        "routing": {"cache_scope": "dp_local"},
        "groups": [{"id": f"g{g}", "master_prefix_len": depths.get(g, 0)} for g in range(3)],
        "config": {
            "request_order": {"preserve_group_dependency": False, "leaders": "none"} | order
        },
    }
    (folder / "manifest.json").write_text(json.dumps(manifest))
    rows, metadata = [], []
    for place, request in enumerate(requests):
        salt = (salts or {}).get(request.group)
        row = {"request_id": f"r{place}", "max_tokens": 5}
        rows.append(row | ({"cache_salt": salt} if salt else {}))
        metadata.append(
            {
                "request_id": f"r{place}",
                "prefix_group_id": f"g{request.group}",
                "order_index": place,
                "input_len": request.input_len,
                "output_len": 5,
                "expected_hit_len": 0,
                "expected_hit_ratio": 0.0,
                "planned_prefix_len": request.prefix_len,
                "divergence_len": 1,
                "suffix_len": request.input_len - request.prefix_len - 1,
                "planned_dp_id": request.cache,
                "planned_instance_id": 0,
            }
        )
    for name, lines in (("data.jsonl", rows), ("request_metadata.jsonl", metadata)):
        (folder / name).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return DatasetReader(folder)


def played(dataset: DatasetReader, profile: str = "vllm-0.33", **chosen: Any) -> Rehearsal:
    capacity = chosen.pop("capacity_blocks", None)
    return rehearse(dataset, lambda: Engine(profile, capacity, block_size=BLOCK), **chosen)


@pytest.mark.parametrize("loops", BOTH)
def test_in_one_go_or_step_by_step_a_data_set_hits_the_same(
    loops: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch makes the engines go step by step; without one the whole is a script."""
    take_loops(loops, monkeypatch)

    @given(st.data(), st.booleans(), st.integers(1, 5), st.sampled_from([None, 20]))
    @settings(max_examples=40, deadline=None)
    def check(data: st.DataObject, warm: bool, concurrency: int, capacity: int | None) -> None:
        drawn = data.draw(toy_requests(0))
        requests = [replace(request, cache=0) for request in drawn]
        depths = dict.fromkeys(range(3), max(request.prefix_len for request in requests))
        limits = {"concurrency": concurrency, "capacity_blocks": capacity}
        with TemporaryDirectory() as folder:
            dataset = written(Path(folder), requests, warm=depths if warm else None)
            stepwise = played(dataset, watch=Stopwatch(), **limits)
            for path in (PlayPath.PURE, PlayPath.COMPILED):
                assert played(dataset, path=path, **limits) == replace(stepwise, path=path)

    check()


def test_what_is_no_script_is_not_compiled(tmp_path: Path) -> None:
    one = [ToyRequest(cache=0, group=0, input_len=20, prefix_len=8)]
    two = [*one, ToyRequest(cache=1, group=1, input_len=20, prefix_len=8)]
    for requests, order, reason in (
        (two, {}, "several engines"),
        (one * 2, {"preserve_group_dependency": True}, "wait for others"),
    ):
        dataset = written(tmp_path, requests, **order)
        assert played(dataset).path is PlayPath.PURE
        with pytest.raises(ConfigError, match=reason):
            played(dataset, path=PlayPath.COMPILED)


def hits_of_groups(requests: Sequence[ToyRequest], hits: Sequence[int]) -> dict[str, int]:
    sums: Counter[str] = Counter({f"g{request.group}": 0 for request in requests})
    for request, hit in zip(requests, hits, strict=True):
        sums[f"g{request.group}"] += hit
    return dict(sums)


@given(st.data(), st.sampled_from([0, 3, 9]), st.integers(1, 5))
def test_an_engine_without_limit_hits_what_a_token_cache_hits(
    data: st.DataObject, head: int, concurrency: int
) -> None:
    """vLLM publishes when it schedules, so the number on their way changes nothing there."""
    requests = data.draw(toy_requests(head))
    expected = hits_of_groups(requests, served_hits(requests, block=BLOCK, head=head))
    with TemporaryDirectory() as folder:
        dataset = written(Path(folder), requests, head=head)
        found = played(dataset, concurrency=concurrency)
    assert {name: tally.hits for name, tally in found.by_group.items()} == expected
    assert found.tally.queries == sum(request.input_len for request in requests)


@given(st.data(), st.sampled_from([0, 9]))
def test_a_warmed_cache_holds_every_master_prefix(data: st.DataObject, head: int) -> None:
    requests = data.draw(toy_requests(head))
    depths = dict.fromkeys(range(3), head)
    for request in requests:
        depths[request.group] = max(depths[request.group], request.prefix_len)
    domains = dict.fromkeys((request.cache, request.group) for request in requests)
    warm_up = [ToyRequest(cache, g, depths[g] + 1, depths[g]) for cache, g in domains]
    hits = served_hits([*warm_up, *requests], block=BLOCK, head=head)[len(warm_up) :]
    with TemporaryDirectory() as folder:
        found = played(written(Path(folder), requests, head=head, warm=depths))
    assert {name: tally.hits for name, tally in found.by_group.items()} == hits_of_groups(
        requests, hits
    )


SAME = [ToyRequest(cache=0, group=0, input_len=20, prefix_len=16)] * 3


def test_a_cache_that_shows_blocks_late_loses_hits_to_concurrency(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAME)
    assert played(dataset, "nano-vllm").tally.hits == 32
    assert played(dataset, "nano-vllm", concurrency=3).tally.hits == 0


def test_waiting_for_the_predecessor_saves_them(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAME, preserve_group_dependency=True)
    assert played(dataset, "nano-vllm", concurrency=3).tally.hits == 32


class WatchedEngine(Engine):
    """Remembers how many requests it ran at once."""

    most_running = 0

    def step(self, limit: int = 1) -> StepOutcome:
        outcome = super().step(limit)
        self.most_running = max(self.most_running, outcome.running)
        return outcome


@pytest.mark.parametrize(
    ("order", "most_running"),
    [({"preserve_group_dependency": True}, 3), ({"leaders": "barrier"}, 2), ({}, 3)],
)
def test_a_first_token_lets_one_follow_and_the_end_of_a_leader_all(
    tmp_path: Path, order: dict[str, Any], most_running: int
) -> None:
    """Five output tokens each: who waits for a first token runs beside the one it waited for."""
    engine = WatchedEngine("vllm-0.33", block_size=BLOCK)
    rehearse(written(tmp_path, SAME, **order), lambda: engine, concurrency=3)
    assert engine.most_running == most_running


def test_waiting_for_the_leader_saves_them_too(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAME, leaders="barrier")
    assert played(dataset, "nano-vllm", concurrency=3).tally.hits == 32


def test_groups_with_different_salts_do_not_share_the_head(tmp_path: Path) -> None:
    requests = [ToyRequest(0, group, 20, 16) for group in (0, 1)]
    shared = written(tmp_path, requests, head=8)
    assert played(shared).tally.hits == 8
    salted = written(tmp_path, requests, head=8, salts={1: "own"})
    assert played(salted).tally.hits == 0


@given(st.data(), st.integers(1, 3))
def test_a_router_in_turn_is_a_plan_in_turn(data: st.DataObject, places: int) -> None:
    drawn = data.draw(toy_requests(0))
    in_turn = [
        ToyRequest(number % places, each.group, each.input_len, each.prefix_len)
        for number, each in enumerate(drawn)
    ]
    with TemporaryDirectory() as folder:
        dataset = written(Path(folder), in_turn)
        planned = played(dataset)
        routed = played(dataset, spread=Spread(places, RoundRobin()))
    assert routed.by_domain == planned.by_domain
    assert sum(row.queries for row in routed.by_place.values()) == routed.tally.queries


def test_a_router_that_may_choose_any_engine_finds_all_of_them_warm(tmp_path: Path) -> None:
    dataset = written(tmp_path, SAME, warm={0: 16})
    assert played(dataset, spread=Spread(3, RoundRobin())).by_place == {
        place: HitTally(16, 20) for place in range(3)
    }
    assert set(played(dataset, spread=Spread(3, Sticky())).by_place) == {0}


def test_tiers_below_give_what_a_small_cache_lost(tmp_path: Path) -> None:
    requests = [ToyRequest(0, group, 20, 16) for group in (0, 1, 0, 1)]
    tiers = [TierRules(name="host", unit_len=8)]
    found = rehearse(
        written(tmp_path, requests),
        lambda: Engine("vllm-0.33", 6, block_size=BLOCK, tiers=tiers),
    )
    missed = found.tally.queries - found.tally.hits
    assert found.tally.hits < 32
    assert found.by_tier == {"host": HitTally(32 - found.tally.hits, missed)}


def test_a_small_cache_evicts(tmp_path: Path) -> None:
    requests = [ToyRequest(0, group, 20, 16) for group in (0, 1, 0, 1)]
    dataset = written(tmp_path, requests)
    assert played(dataset).tally.hits == 32
    tight = played(dataset, capacity_blocks=6)
    assert tight.tally.hits < 32
    assert tight.evicted_blocks > 0


def test_the_curve_ends_at_the_capacity_that_loses_nothing(tmp_path: Path) -> None:
    requests = [ToyRequest(0, group, 20, 16) for group in (0, 1, 0, 1)]
    curve = hits_by_capacity(written(tmp_path, requests))
    capacities = list(curve)
    assert capacities == sorted(capacities)
    # Two master prefixes of four blocks, and between two uses of one of them the other group's own
    # two blocks: four tokens of the prompt and four of the answer.
    assert capacities[-1] == 10
    assert curve[10].hits == 32
    assert curve[8].hits < 32
    assert curve[10].queries == 80


@pytest.mark.parametrize("concurrency", [1, 4])
def test_every_request_is_played_once(tmp_path: Path, concurrency: int) -> None:
    requests = [ToyRequest(place % 2, place % 3, 20, 8) for place in range(10)]
    found = played(written(tmp_path, requests), concurrency=concurrency)
    assert found.tally.queries == 200
    assert found.preemptions == 0
