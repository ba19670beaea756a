"""The designed ratio of cold and of warmed phases, whichever the plan was made for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from prefixbench.core.records import CacheScope
from prefixbench.core.tally import HitTally
from prefixbench.dataset.reader import DatasetReader
from prefixbench.run.designed import DesignedHits
from run_samples import COLD, STATIC, sample

BLOCK = 16


def watermark_oracle(rows: list[dict[str, Any]], *, warm: bool, by_rank: bool) -> HitTally:
    """One integer a group and cache; the head of these data sets fills no block."""
    deepest: dict[str, int] = {}
    for row in rows:
        group = row["prefix_group_id"]
        deepest[group] = max(deepest.get(group, 0), row["planned_prefix_len"] // BLOCK)
    depths: dict[Any, int] = {}
    hits = 0
    for row in rows:
        group, prefix = row["prefix_group_id"], row["planned_prefix_len"] // BLOCK
        domain = (group, row["planned_dp_id"] if by_rank else None)
        depth = depths.get(domain, deepest[group] if warm else 0)
        hits += min(prefix, depth) * BLOCK
        depths[domain] = max(depth, prefix)
    return HitTally(hits, sum(row["input_len"] for row in rows))


@pytest.mark.parametrize("base", [COLD, STATIC], ids=["cold plan", "static plan"])
def test_each_kind_of_phase_has_its_own_ratio(tmp_path: Path, base: dict[str, Any]) -> None:
    reader = DatasetReader(sample(base))
    rows = list(reader.metadata())
    designed = DesignedHits(reader, CacheScope.GLOBAL)
    for warm in (False, True):
        expected = watermark_oracle(rows, warm=warm, by_rank=False)
        assert designed.tally(warmed=warm) == expected
        assert expected.hits > 0
    assert designed.tally(warmed=False) != designed.tally(warmed=True)


def test_the_plan_of_record_is_what_its_own_kind_of_phase_should_show(tmp_path: Path) -> None:
    reader = DatasetReader(sample(STATIC))
    planned = sum(row["expected_hit_len"] for row in reader.metadata())
    assert DesignedHits(reader, CacheScope.GLOBAL).tally(warmed=True).hits == planned


def test_a_warmed_plan_that_begins_with_a_group_without_hits_is_still_warmed() -> None:
    groups = {"groups": [{"id": "a"}, {"id": "b"}]}
    shares = [{"id": "a", "hit_ratio": 0.0}, {"id": "b", "hit_ratio": 0.7}]
    target = {"scope": "per_group", "semantics": "static_prefix_ratio", "groups": shares}
    order = {"within_group": "sequential", "across_group": "grouped"}
    reader = DatasetReader(sample(STATIC, prefix=groups, target=target, request_order=order))
    rows = list(reader.metadata())
    assert rows[0]["cached_watermark_before"] == 0
    designed = DesignedHits(reader, CacheScope.GLOBAL)
    assert designed.tally(warmed=False) == watermark_oracle(rows, warm=False, by_rank=False)


def test_caches_of_ranks_are_walked_apart(tmp_path: Path) -> None:
    routing = {"cache_scope": "dp_local", "dp_size": 2, "policy": "round_robin"}
    reader = DatasetReader(sample(STATIC, routing=routing))
    rows = list(reader.metadata())
    assert {row["planned_dp_id"] for row in rows} == {0, 1}
    designed = DesignedHits(reader, CacheScope.DP_LOCAL)
    assert designed.tally(warmed=False) == watermark_oracle(rows, warm=False, by_rank=True)


def test_the_most_hits_are_all_but_the_last_block_of_every_prompt(tmp_path: Path) -> None:
    reader = DatasetReader(sample())
    most = sum((row["input_len"] - 1) // BLOCK * BLOCK for row in reader.metadata())
    assert DesignedHits(reader, CacheScope.GLOBAL).most().hits == most
