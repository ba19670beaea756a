"""The table of profiles: complete, versioned, every value with its source."""

from __future__ import annotations

from dataclasses import fields

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.simulator.profile import get_profile, profiles
from prefixbench.simulator.rules import (
    CacheKind,
    Counting,
    KeylessFreed,
    Lookahead,
    PublishPoint,
    Role,
)

NAMED = {
    "ideal",
    "vllm-0.9",
    "vllm-0.33",
    "vllm-ascend-0.23",
    "sglang-0.5",
    "mindie",
    "nano-vllm",
    "llamacpp",
    "lmcache",
    "trtllm",
    "lmdeploy",
}


def test_every_named_engine_has_a_row() -> None:
    assert {row.name for row in profiles()} >= NAMED
    assert len({row.name for row in profiles()}) == len(profiles())


@pytest.mark.parametrize("row", profiles(), ids=lambda row: row.name)
def test_every_value_of_a_row_has_a_source(row) -> None:
    about_the_row = {"name", "engine", "versions", "cache", "role", "notes"}
    about_the_row |= {"draft_tokens", "groups"}  # of the model that is served
    rules = {rule.name for rule in fields(row)} - about_the_row
    rules -= set() if row.tiers else {"tiers"}
    assert set(row.notes) <= rules
    assert not rules - set(row.notes), "values without a source"


@pytest.mark.parametrize(
    ("name", "freed", "counting", "whole_prompt", "sparse", "lookahead"),
    [
        ("vllm-0.9", "BACK", "LOOK_UP", False, False, "DROP_BLOCK"),
        ("vllm-0.18", "BACK", "LOOK_UP", False, False, "DROP_BLOCK"),
        ("vllm-0.19", "BACK", "LOOK_UP", True, False, "DROP_BLOCK"),
        ("vllm-0.23", "BACK", "LOOK_UP", True, False, "DROP_BLOCK"),
        ("vllm-0.24", "FRONT", "LOOK_UP", True, False, "DROP_BLOCK"),
        ("vllm-0.26", "FRONT", "LOOK_UP", True, False, "DROP_BLOCK"),
        ("vllm-0.27", "FRONT", "ADMISSION", True, False, "DROP_BLOCK"),
        ("vllm-0.28", "FRONT", "ADMISSION", True, False, "DROP_BLOCK"),
        ("vllm-0.29", "FRONT", "ADMISSION", True, True, "DROP_BLOCK"),
        ("vllm-0.32", "FRONT", "ADMISSION", True, True, "DROP_BLOCK"),
        ("vllm-0.33", "FRONT", "ADMISSION", True, True, "NEXT_TOKEN_KEY"),
    ],
)
def test_the_boundaries_between_vllm_versions(
    name, freed, counting, whole_prompt, sparse, lookahead
) -> None:
    row = get_profile(name)
    assert row.name == name
    assert row.keyless_freed is KeylessFreed[freed]
    assert row.counting is Counting[counting]
    assert row.reserve_whole_prompt is whole_prompt
    assert row.sparse_retention is sparse
    assert row.lookahead is Lookahead[lookahead]


def test_other_engines_at_a_glance() -> None:
    assert get_profile("vllm-ascend-0.23").block_size == 128
    assert get_profile("sglang-0.5").cache is CacheKind.TREE
    assert get_profile("mindie").publish is PublishPoint.ROUND_END
    assert get_profile("nano-vllm").block_size == 256
    assert get_profile("llamacpp").hit_granularity == 1
    assert get_profile("vllm-0.33").hit_granularity == 16


def test_roles_of_a_split_deployment() -> None:
    assert get_profile("vllm-0.33").role is Role.WHOLE
    assert get_profile("vllm-0.33:prefill").role is Role.PREFILL
    assert get_profile("vllm-0.33:decode").role is Role.DECODE


@pytest.mark.parametrize("name", ["vllm-0.8", "vllm-0.34", "vllm", "vlm-0.33", "ideal:both"])
def test_an_unknown_profile_is_refused_with_the_nearest_name(name) -> None:
    with pytest.raises(ConfigError) as refused:
        get_profile(name)
    assert repr(name) in refused.value.message
    assert refused.value.hint


def test_a_row_shows_every_rule_plainly() -> None:
    values = get_profile("vllm-0.33").values()
    assert values["publish"] == "at schedule, before it is computed"
    assert values["block_size"] == 16
    assert "notes" not in values


def test_a_row_says_whether_it_is_simulated_or_only_described() -> None:
    described = {row.name for row in profiles() if not row.is_simulated}
    assert described == {"trtllm", "lmdeploy"}
    assert get_profile("vllm-0.33").values()["simulated"] is True
