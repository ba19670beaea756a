"""The page of a plan: what it adds up, and what it says beside the numbers."""

from __future__ import annotations

import io
import re
from typing import Any

import pytest
from rich.console import Console

from prefixbench.cli.plan_page import print_plan
from prefixbench.config.load import parse_config
from prefixbench.pipeline import plan_prefix_cache_dataset

BASE: dict[str, Any] = {
    "request_count": 120,
    "block_size": 16,
    "input_length": {"mode": "truncated_normal", "min": 200, "max": 900, "mean": 500, "std": 150},
    "prefix": {"group_count": 4},
    "target": {"hit_ratio": 0.4},
}
RANKS = {"cache_scope": "dp_local", "dp_size": 3, "policy": "round_robin"}


def page_of(**changes: Any) -> str:
    document = plan_prefix_cache_dataset(parse_config(BASE | changes)).to_json()
    written = io.StringIO()
    print_plan(document, Console(file=written, width=200, highlight=False))
    return written.getvalue()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"routing": RANKS},
        {"planning": {"concurrency": 16}},
        {"planning": {"capacity_blocks": 150}},
        {"planning": {"capacity_blocks": 150, "concurrency": 8}, "routing": RANKS},
        {"execution": {"mode": "warmup"}},
        {"target_prefix_ratio": 0.4, "target": {}, "execution": {"mode": "cold"}},
        {"sessions": {"turns": 3, "new_tokens": 30}},
        {"prefix": {"tree": [{"name": "system", "length": 100}, {"name": "tenant", "count": 4}]}},
    ],
)
def test_the_proof_on_the_page_adds_up(changes: dict[str, Any]) -> None:
    proof = page_of(**changes).split("proof in blocks: ")[1].split(";")[0]
    total, sums = 0, re.findall(r"(^|[-=] )([0-9,]+) (planned|cold|head|hits|with)", proof)
    assert len(sums) >= 4
    for sign, number, _ in sums:
        value = int(number.replace(",", ""))
        if sign == "= ":
            assert value == total
        total += {"": value, "- ": -value, "= ": 0}[sign]


def test_the_page_names_what_is_planned_for_and_what_it_takes() -> None:
    page = page_of(planning={"capacity_blocks": 150, "concurrency": 8}, target={"hit_ratio": 0.2})
    assert re.search(r"planned for +8 requests in flight, caches of 150 blocks", page)
    assert re.search(r"designed +(19\.99|20\.00|20\.01) %", page)
    without = re.search(r"without them +([0-9.]+) %", page)
    assert without is not None
    assert float(without[1]) > 20.1


def test_several_caches_show_what_each_routing_computes_cold() -> None:
    page = page_of(routing=RANKS)
    assert re.search(r"round_robin +12 +[0-9.]+ pp +planned", page)
    assert re.search(r"bound +4 +[0-9.]+ pp", page)
    assert re.search(r"group_\d +\d +\d+ +[0-9.]+ pp", page)
    assert "computed cold" not in page_of()


def test_a_target_that_is_missed_by_blocks_says_why() -> None:
    page = page_of(prefix={"group_count": 4, "nested_prefix": False}, target={"hit_ratio": 0.123})
    note = re.search(r"note (\d+) blocks? (less|more) than wanted: nested_prefix: false", page)
    assert note is not None
    assert "than wanted" not in page_of()


def test_a_target_that_no_change_reaches_is_said_so_on_the_page() -> None:
    page = page_of(target={"hit_ratio": 1.0})
    assert "no listed change reaches 1.0000; the highest ratio any reaches is 0.9" in page
    assert "what would come nearer" in page
    assert "--set target.hit_ratio=0." in page


def test_the_page_follows_the_ratio_through_the_run() -> None:
    page = page_of(planning={"profile": "ramp"})
    table = page.split("requests sent")[1].split("in flight")[0]
    ratios = [float(ratio) for ratio in re.findall(r"([0-9.]+) %", table)]
    assert len(ratios) == 10
    assert ratios == sorted(ratios)
    assert ratios[-1] == pytest.approx(40, abs=0.1)


def test_wanted_reuse_distances_are_compared_with_those_that_are_had() -> None:
    page = page_of(request_order={"reuse_distance": 4})
    assert re.search(r"reuse distance +4 requests \(median\); 4 wanted, had by \d+\.\d\d %", page)


def test_the_page_says_how_a_target_is_split_between_groups() -> None:
    assert re.search(r"split by +proportional", page_of(planning={"budget_policy": "proportional"}))
    groups = [{"id": f"group_{group}", "hit_ratio": 0.3} for group in range(4)]
    page = page_of(target={"scope": "per_group", "groups": groups})
    assert re.search(r"split by +per group targets", page)
    assert "split by" not in page_of()
