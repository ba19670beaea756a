"""Every setting: its default, its effect on other settings, and what is recorded of it."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from config_samples import load_text, minimal, parsed
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.execution import ExecutionMode, Isolation
from prefixbench.config.lengths import (
    EmpiricalLength,
    ExplicitLength,
    FixedLength,
    HistogramLength,
    LengthDistributionConfig,
    TruncatedNormalLength,
)
from prefixbench.config.load import parse_config, with_changes
from prefixbench.config.order import Leaders, OrderWord, resolve_order
from prefixbench.config.prefix import PrefixMode
from prefixbench.config.routing import RoutingPolicy
from prefixbench.config.suffix import SourceName
from prefixbench.config.target import TargetHitRateConfig, TargetSemantics, exact

DEFAULTS = {
    "dataset_id": "dataset",
    "seed": 0,
    "request_count": 10,
    "block_size": None,
    "hit_granularity": None,
    "input_length": {"mode": "fixed", "value": 1000},
    "output_length": {"mode": "fixed", "value": 16},
    "max_model_len": None,
    "target": {
        "scope": "global",
        "hit_ratio": 0.5,
        "semantics": "order_aware_global",
        "groups": [],
    },
    "prefix": {
        "mode": "single_prefix",
        "nested_prefix": True,
        "minimum_non_shared_length": None,
        "source": "builtin",
        "path": None,
        "sample_ids": [],
        "group_count": None,
        "popularity": None,
        "tree": [],
        "carrier": "user",
        "groups": [],
        "assignment": [],
    },
    "suffix": {
        "source": "builtin",
        "mode": "concat",
        "sample_ids": [],
        "path": None,
        "separator": "\n\n",
        "divergence_block": True,
        "collision_detection": {
            "enabled": True,
            "cache_match_semantics": "chained_prefix",
            "first_non_shared_block_unique": True,
            "window_blocks": 2,
            "max_retries": 8,
            "on_collision": "error",
        },
    },
    "sessions": None,
    "request_order": {
        "within_group": "input_len_asc",
        "across_group": "lag_robust",
        "reuse_distance": None,
        "leaders": "none",
        "preserve_group_dependency": False,
    },
    "execution": {
        "mode": "progressive_prefix_fill",
        "warmup_rounds": 0,
        "concurrency": 1,
        "request_rate": None,
        "isolation": "auto",
    },
    "routing": {
        "cache_scope": "global",
        "instances": 1,
        "dp_size": 1,
        "policy": "bound",
        "bindings": {},
        "sticky_routing": None,
        "bind_prefix_group_to_dp": None,
    },
    "planning": {
        "reachability_check": True,
        "base_ratio_search": "exact",
        "block_residual_calibration": True,
        "max_iterations": 1000,
        "profile": "proportional",
        "concurrency": 1,
        "capacity_blocks": None,
        "budget_policy": "global_ratio",
    },
    "validation": {"pass_tolerance": 0.01, "warning_tolerance": 0.02, "on_failure": "error"},
    "tokenizer": "builtin",
    "engine_profile": "vllm-0.33",
    "prompt_format": "text",
    "save_prompts": True,
}


def test_the_effective_configuration_shows_every_default() -> None:
    assert parsed().effective() == DEFAULTS


def test_what_is_recorded_can_be_read_again() -> None:
    config = parsed(
        prefix={"groups": [{"id": "a", "request_weight": 2}, {"id": "b", "request_weight": 1}]},
        input_length={"mode": "truncated_normal", "min": 100, "max": 900, "mean": 300, "std": 90},
        execution={"mode": "compare"},
        routing={"dp_size": 2, "sticky_routing": True},
    ).with_block_size(16)
    recorded = json.loads(json.dumps(config.effective()))
    assert parse_config(recorded).effective() == recorded
    zipf = {"group_count": 5, "popularity": {"exponent": 1.1}}
    spaced = parsed(request_count=9, prefix=zipf, request_order={"reuse_distance": 4})
    assert parse_config(spaced.effective()).effective() == spaced.effective()
    tree = [{"name": "system", "length": 30}, {"name": "tenant", "count": 2}]
    chat = parsed(prefix={"tree": tree}, sessions={"turns": 2, "new_tokens": 9})
    assert parse_config(chat.effective()).effective() == chat.effective()


def test_a_known_block_size_settles_what_depends_on_it() -> None:
    config = parsed().with_block_size(128)
    assert (config.block_size, config.hit_granularity) == (128, 128)
    assert config.prefix.minimum_non_shared_length == 128
    given = parsed(hit_granularity=64, prefix={"minimum_non_shared_length": 5})
    assert given.with_block_size(16).hit_granularity == 64
    assert given.with_block_size(16).prefix.minimum_non_shared_length == 5


def test_no_path_and_no_address_is_recorded(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        "request_count: 1\n"
        "input_length: {mode: empirical, path: lengths.txt}\n"
        "target: {hit_ratio: 0}\n"
        "suffix: {source: text, path: private/words.jsonl}\n"
        "tokenizer: /models/qwen/tokenizer.json\n"
        "execution: {urls: ['http://inside.example:8000']}\n",
    )
    assert isinstance(config.input_length, EmpiricalLength)
    assert config.input_length.path == str(tmp_path / "lengths.txt")
    assert config.suffix.path == str(tmp_path / "private/words.jsonl")
    recorded = json.dumps(config.effective())
    assert "words.jsonl" in recorded
    for hidden in (str(tmp_path), "private", "models", "inside"):
        assert hidden not in recorded


def test_the_file_names_the_data_set_unless_it_names_itself(tmp_path: Path) -> None:
    text = "request_count: 1\ninput_length: 64\ntarget: {hit_ratio: 0}\n"
    assert load_text(tmp_path, text).dataset_id == "sample"
    assert load_text(tmp_path, text + "dataset_id: other\n").dataset_id == "other"


def test_a_configuration_is_frozen() -> None:
    config = parsed()
    with pytest.raises(ValidationError):
        config.seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (4096, FixedLength(value=4096)),
        ({"mode": "fixed", "value": 7}, FixedLength(value=7)),
        ({"mode": "explicit", "values": [3] * 10}, ExplicitLength(values=(3,) * 10)),
        ({"mode": "empirical", "values": [3, 4]}, EmpiricalLength(values=(3, 4))),
    ],
)
def test_a_length_is_a_number_or_a_distribution(
    given: Any, expected: LengthDistributionConfig
) -> None:
    assert parsed(input_length=given).input_length == expected
    assert parsed(output_length=given).output_length == expected


def test_one_name_constructs_every_distribution() -> None:
    normal = LengthDistributionConfig(
        mode="truncated_normal", min=1, max=9, mean=5, std=2, out_of_range="clip"
    )
    assert isinstance(normal, TruncatedNormalLength)
    assert normal.out_of_range == "clip"
    bins = [{"range": [1, 5], "weight": 1}]
    assert isinstance(LengthDistributionConfig(mode="histogram", bins=bins), HistogramLength)
    with pytest.raises(ValidationError):
        LengthDistributionConfig(mode="fixed", value=0)
    with pytest.raises(ValidationError):
        LengthDistributionConfig(mode="gauss")


def test_a_ratio_is_the_decimal_the_user_wrote() -> None:
    assert exact(0.1) == Fraction(1, 10)
    assert exact(1e-05) == Fraction(1, 100_000)


@pytest.mark.parametrize("mode", list(ExecutionMode))
def test_semantics_follow_a_given_mode(mode: ExecutionMode) -> None:
    config = parsed(execution={"mode": mode.value})
    expected = (
        TargetSemantics.STATIC_PREFIX_RATIO
        if mode.is_warmed
        else TargetSemantics.ORDER_AWARE_GLOBAL
    )
    assert config.target.semantics is expected
    assert config.execution.warmup_rounds == (1 if mode.is_warmed else 0)
    assert config.warnings() == ()


def test_the_mode_follows_given_semantics() -> None:
    static = parsed(target={"hit_ratio": 0.5, "semantics": "static_prefix_ratio"})
    assert static.execution.mode is ExecutionMode.WARMUP
    assert static.execution.warmup_rounds == 1
    counted = parsed(
        target={"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
        execution={"warmup_rounds": 2},
    )
    assert (counted.execution.mode, counted.execution.warmup_rounds) == (ExecutionMode.WARMUP, 2)
    cold = parsed(target={"hit_ratio": 0.5, "semantics": "order_aware_global"})
    assert cold.execution.mode is ExecutionMode.PROGRESSIVE_PREFIX_FILL


def test_the_same_defaults_hold_for_objects() -> None:
    config = PrefixCacheDatasetConfig(
        request_count=4,
        input_length=LengthDistributionConfig(mode="fixed", value=64),
        target=TargetHitRateConfig(hit_ratio=0.5, semantics=TargetSemantics.STATIC_PREFIX_RATIO),
    )
    assert config.execution.mode is ExecutionMode.WARMUP
    assert config.execution.isolation is Isolation.AUTO


@pytest.mark.parametrize("word", [word for word in OrderWord if word is not OrderWord.LAG_ROBUST])
def test_one_order_word_sets_both_axes(word: OrderWord) -> None:
    order = resolve_order(parsed(request_order={"mode": word.value}))
    assert (order.within, order.across, order.leaders) == (word, word, Leaders.NONE)


@pytest.mark.parametrize("word", list(OrderWord))
def test_every_order_word_may_rule_across_groups(word: OrderWord) -> None:
    order = resolve_order(parsed(request_order={"across_group": word.value}))
    assert (order.within, order.across) == (OrderWord.INPUT_LEN_ASC, word)


def test_orders_default_by_what_the_cache_holds() -> None:
    warmed = {"execution": {"mode": "warmup"}}
    cold = resolve_order(parsed())
    assert (cold.within, cold.across, cold.leaders) == (
        OrderWord.INPUT_LEN_ASC,
        OrderWord.LAG_ROBUST,
        Leaders.NONE,
    )
    hot = resolve_order(parsed(**warmed))
    assert (hot.within, hot.across, hot.leaders) == (
        OrderWord.SEQUENTIAL,
        OrderWord.LAG_ROBUST,
        Leaders.FIRST,
    )
    ordered = resolve_order(parsed(**warmed, request_order={"within_group": "shuffle"}))
    assert (ordered.within, ordered.leaders) == (OrderWord.SHUFFLE, Leaders.NONE)
    declined = resolve_order(parsed(**warmed, request_order={"leaders": "none"}))
    assert declined.leaders is Leaders.NONE
    asked = resolve_order(parsed(request_order={"mode": "shuffle", "leaders": "barrier"}))
    assert asked.leaders is Leaders.BARRIER


def test_groups_are_named_in_every_way_to_give_them() -> None:
    assert parsed().prefix.group_ids == ("group_0",)
    several = parsed(prefix={"group_count": 3}).prefix
    assert (several.mode, several.group_ids) == (
        PrefixMode.MULTI_PREFIX,
        ("group_0", "group_1", "group_2"),
    )
    many = parsed(request_count=11, prefix={"group_count": 11}).prefix
    assert many.group_ids[:2] == ("group_00", "group_01")
    assigned = parsed(prefix={"assignment": ["b", "a"] * 5}).prefix
    assert assigned.group_ids == ("b", "a")
    named = parsed(
        prefix={
            "groups": [
                {"id": "x", "request_count": 4, "model": "lora-1", "cache_salt": "s"},
                {"id": "y", "request_weight": 0.5},
            ]
        }
    ).prefix
    assert named.group_ids == ("x", "y")
    assert (named.groups[0].model, named.groups[0].cache_salt) == ("lora-1", "s")


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ({}, RoutingPolicy.BOUND),
        ({"bind_prefix_group_to_dp": True, "sticky_routing": True}, RoutingPolicy.BOUND),
        ({"bind_prefix_group_to_dp": True}, RoutingPolicy.BOUND),
        ({"sticky_routing": True}, RoutingPolicy.STICKY),
        ({"sticky_routing": True, "bind_prefix_group_to_dp": False}, RoutingPolicy.STICKY),
        ({"sticky_routing": False}, RoutingPolicy.ROUND_ROBIN),
        ({"bind_prefix_group_to_dp": False}, RoutingPolicy.ROUND_ROBIN),
        ({"policy": "hash", "sticky_routing": True}, RoutingPolicy.HASH),
    ],
)
def test_the_routing_flags_imply_a_policy(flags: dict[str, Any], policy: RoutingPolicy) -> None:
    assert parsed(routing={"dp_size": 2, **flags}).routing.policy is policy


def test_explicit_routing_names_a_rank_for_each_group() -> None:
    routing = parsed(
        prefix={"group_count": 2},
        routing={
            "policy": "explicit",
            "instances": 2,
            "dp_size": 2,
            "bindings": {"group_0": 0, "group_1": 3},
        },
    ).routing
    assert routing.rank_count == 4
    assert routing.bindings == {"group_0": 0, "group_1": 3}


def test_the_prefix_takes_the_source_of_the_suffix_unless_it_names_one() -> None:
    follows = parsed(suffix={"source": "gsm8k", "separator": "--"}).prefix_source
    assert (follows.source, follows.separator) == (SourceName.GSM8K, "--")
    own = parsed(
        suffix={"source": "text", "path": "a.txt"}, prefix={"source": "random"}
    ).prefix_source
    assert (own.source, own.path) == (SourceName.RANDOM, None)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"routing": {"cache_scope": "dp_local"}}, "dp_local equals global"),
        ({"routing": {"cache_scope": "instance_local"}}, "instance_local equals global"),
        ({"execution": {"concurrency": 8}}, "planning.concurrency"),
        (
            {"execution": {"urls": ["http://a:1", "http://b:1"]}},
            "routing.instances: 1 plans for fewer",
        ),
        (
            {
                "target": {"hit_ratio": 0.5, "semantics": "order_aware_global"},
                "execution": {"mode": "hot"},
            },
            "counts from a cold cache",
        ),
        (
            {
                "target": {"hit_ratio": 0.5, "semantics": "static_prefix_ratio"},
                "execution": {"mode": "cold"},
            },
            "counts on a warmed cache",
        ),
    ],
)
def test_what_is_probably_not_meant_is_warned_of(settings: dict[str, Any], words: str) -> None:
    (warning,) = parsed(**settings).warnings()
    assert words in warning


def test_nothing_is_warned_of_where_it_was_answered() -> None:
    assert parsed().warnings() == ()
    assert parsed(routing={"cache_scope": "dp_local", "dp_size": 2}).warnings() == ()
    answered = parsed(execution={"concurrency": 8}, planning={"concurrency": 8})
    assert answered.warnings() == ()


def test_an_empty_section_says_nothing() -> None:
    assert parsed(suffix=None, prefix=None, max_model_len=None) == parsed()


def test_changes_settle_the_defaults_anew() -> None:
    config = parsed(prefix={"group_count": 5})
    warmed = with_changes(config, ["execution.mode=warmup", "prefix.group_count=2"])
    assert warmed.execution.warmup_rounds == 1
    assert warmed.prefix.group_ids == ("group_0", "group_1")
    assert warmed.input_length == config.input_length
    single = with_changes(config, ["prefix.group_count=null"])
    assert single.prefix.mode is PrefixMode.SINGLE_PREFIX


def test_all_of_the_reference_keys_have_a_description() -> None:
    assert set(minimal()) < set(PrefixCacheDatasetConfig.model_fields)
    for name, field in PrefixCacheDatasetConfig.model_fields.items():
        assert field.description, name
