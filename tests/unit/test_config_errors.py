"""What is refused, all at once, each with its path, value, allowed values and nearest word."""

from __future__ import annotations

import json
from typing import Any

import pytest

from config_samples import minimal, problems_in, problems_with
from prefixbench.config.load import parse_config
from prefixbench.core.errors import ConfigError

NORMAL = {"mode": "truncated_normal", "min": 100, "max": 200, "mean": 150, "std": 10}


def test_all_problems_are_told_at_once_each_in_a_line() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(
            {
                "request_count": 0,
                "input_length": {**NORMAL, "mean": 900},
                "target": {"hit_ratio": 1.5, "semantics": "order_aware"},
                "prefix": {"groups": [{"id": "a", "request_wieght": 1}, {"id": "a"}]},
                "execution": {"mode": "progressive_prefix_fill", "warmup_rounds": 2},
                "sufix": {},
            }
        )
    error = caught.value
    paths = [problem.path for problem in error.problems]
    assert sorted(paths) == [
        "execution.warmup_rounds",
        "input_length.mean",
        "prefix.groups",
        "prefix.groups.0.request_wieght",
        "request_count",
        "sufix",
        "target.hit_ratio",
        "target.semantics",
    ]
    lines = error.render().splitlines()
    assert len(lines) == 1 + len(paths) + 2
    for path, line in zip(paths, lines[1:], strict=False):
        assert line.strip().startswith(f"- {path}: ")
    assert lines[-2].strip().startswith("at: stage=config")
    assert lines[-1].strip().startswith("hint: ")
    assert json.loads(json.dumps(error.to_json()))["code"] == "config"


@pytest.mark.parametrize(
    ("given", "path", "nearest"),
    [
        ({"request_cuont": 3}, "request_cuont", "request_count"),
        ({"target": {"hit_ratoi": 0.5}}, "target.hit_ratoi", "hit_ratio"),
        ({"prefix": {"groups": [{"ide": "a"}]}}, "prefix.groups.0.ide", "id"),
        ({"input_length": {**NORMAL, "sdt": 1}}, "input_length.sdt", "std"),
        (
            {"suffix": {"collision_detection": {"window_block": 1}}},
            "suffix.collision_detection.window_block",
            "window_blocks",
        ),
    ],
)
def test_unknown_keys_name_the_nearest_valid_key(
    given: dict[str, Any], path: str, nearest: str
) -> None:
    problem = problems_with(**given)[path]
    assert problem.message == "is an unknown key"
    assert problem.nearest == nearest
    assert nearest in str(problem.allowed) or "in all" in str(problem.allowed)


def test_a_misspelled_key_is_not_also_called_missing() -> None:
    given = minimal()
    given["request_cuont"] = given.pop("request_count")
    assert list(problems_in(given)) == ["request_cuont"]


def test_missing_settings_are_named() -> None:
    assert sorted(problems_in({"seed": 1})) == ["input_length", "request_count", "target"]


@pytest.mark.parametrize("count", [0, -1, True, 2.0, "10", None])
def test_request_count_is_a_positive_whole_number(count: object) -> None:
    assert list(problems_with(request_count=count)) == ["request_count"]


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"request_count": 2**31}, "request_count"),
        ({"input_length": 10**30}, "input_length.value"),
        ({"block_size": 10**30}, "block_size"),
        ({"routing": {"dp_size": 2**31}}, "routing.dp_size"),
        ({"prefix": {"minimum_non_shared_length": 10**30}}, "prefix.minimum_non_shared_length"),
        ({"seed": 2**63}, "seed"),
        ({"seed": -(2**63) - 1}, "seed"),
    ],
)
def test_numbers_that_no_column_holds_are_refused(settings: dict[str, Any], path: str) -> None:
    assert problems_with(**settings)[path].allowed is not None


@pytest.mark.parametrize("seed", [-(2**63), 2**63 - 1])
def test_every_seed_of_64_bits_is_legal(seed: int) -> None:
    assert parse_config(minimal(seed=seed)).seed == seed


@pytest.mark.parametrize("ratio", [-0.1, 1.0001, float("nan"), float("inf"), True, "0.5"])
def test_a_target_outside_0_to_1_is_refused(ratio: object) -> None:
    problem = problems_with(target={"hit_ratio": ratio})["target.hit_ratio"]
    assert problem.given is not None
    assert problem.allowed is not None


@pytest.mark.parametrize("ratio", [0, 0.0, 1, 1.0])
def test_both_ends_are_legal_targets(ratio: float) -> None:
    assert parse_config(minimal(target={"hit_ratio": ratio})).target.hit_ratio == ratio


def test_a_wrong_word_names_the_allowed_ones_and_the_nearest() -> None:
    problem = problems_with(request_order={"within_group": "input_len_ascending"})
    within = problem["request_order.within_group"]
    assert within.nearest == "input_len_asc"
    assert "prefix_len_desc" in str(within.allowed)


@pytest.mark.parametrize(
    ("settings", "paths"),
    [
        # lengths
        ({"input_length": {**NORMAL, "max": 50}}, ["input_length.max"]),
        ({"input_length": {**NORMAL, "mean": 99}}, ["input_length.mean"]),
        ({"input_length": {**NORMAL, "mean": 201}}, ["input_length.mean"]),
        ({"input_length": {**NORMAL, "std": 0}}, ["input_length.std"]),
        ({"input_length": {**NORMAL, "min": 0}}, ["input_length.min"]),
        ({"input_length": 0}, ["input_length.value"]),
        ({"input_length": "long"}, ["input_length.value"]),
        ({"input_length": {"mode": "gauss"}}, ["input_length.mode"]),
        ({"input_length": {"value": 5}}, ["input_length.mode"]),
        ({"input_length": {"mode": "explicit", "values": []}}, ["input_length.values"]),
        ({"input_length": {"mode": "explicit", "values": [1] * 9}}, ["input_length.values"]),
        ({"output_length": {"mode": "explicit", "values": [1] * 11}}, ["output_length.values"]),
        ({"input_length": {"mode": "histogram", "bins": []}}, ["input_length.bins"]),
        (
            {"input_length": {"mode": "histogram", "bins": [{"range": [5, 5], "weight": 1}]}},
            ["input_length.bins.0.range"],
        ),
        (
            {"input_length": {"mode": "histogram", "bins": [{"range": [1, 5], "weight": 0}]}},
            ["input_length.bins"],
        ),
        (
            {"input_length": {"mode": "histogram", "bins": [{"range": [1, 5], "weight": -1}]}},
            ["input_length.bins.0.weight"],
        ),
        ({"input_length": {"mode": "empirical"}}, ["input_length"]),
        ({"input_length": {"mode": "empirical", "path": "a", "values": [1]}}, ["input_length"]),
        ({"max_model_len": 1000}, ["max_model_len"]),
        # target
        ({"target": 0.5}, ["target"]),
        ({"target": {}}, ["target.hit_ratio"]),
        ({"target": {"scope": "per_group"}}, ["target.groups"]),
        (
            {
                "target": {
                    "scope": "global",
                    "hit_ratio": 0.5,
                    "groups": [{"id": "group_0", "hit_ratio": 0}],
                }
            },
            ["target.groups"],
        ),
        (
            {
                "target": {
                    "scope": "per_group",
                    "hit_ratio": 0.5,
                    "groups": [{"id": "group_0", "hit_ratio": 0}],
                }
            },
            ["target.hit_ratio"],
        ),
        (
            {"target": {"scope": "per_group", "groups": [{"id": "group_0", "hit_ratio": 0}] * 2}},
            ["target.groups"],
        ),
        # prefix
        ({"prefix": {"minimum_non_shared_length": 1000}}, ["prefix.minimum_non_shared_length"]),
        ({"prefix": {"minimum_non_shared_length": -1}}, ["prefix.minimum_non_shared_length"]),
        ({"prefix": {"mode": "multi_prefix"}}, ["prefix.mode"]),
        ({"prefix": {"mode": "single_prefix", "group_count": 2}}, ["prefix.mode"]),
        ({"prefix": {"group_count": 2, "groups": [{"id": "a"}]}}, ["prefix.group_count"]),
        ({"prefix": {"group_count": 11}}, ["prefix.group_count"]),
        ({"prefix": {"groups": [{"id": "a"}, {"id": "a"}]}}, ["prefix.groups"]),
        ({"prefix": {"groups": [{"id": ""}]}}, ["prefix.groups.0.id"]),
        ({"prefix": {"groups": [{"id": 1}]}}, ["prefix.groups.0.id"]),
        ({"prefix": {"groups": [{"request_weight": 1}]}}, ["prefix.groups.0.id"]),
        (
            {"prefix": {"groups": [{"id": "a", "request_weight": 0}]}},
            ["prefix.groups.0.request_weight"],
        ),
        (
            {"prefix": {"groups": [{"id": "a", "request_weight": 1, "request_count": 10}]}},
            ["prefix.groups.0"],
        ),
        (
            {"prefix": {"groups": [{"id": "a", "request_weight": 1}, {"id": "b"}]}},
            ["prefix.groups.1"],
        ),
        ({"prefix": {"groups": [{"id": "a", "request_count": 9}]}}, ["prefix.groups"]),
        (
            {
                "prefix": {
                    "groups": [{"id": "a", "request_count": 10}, {"id": "b", "request_weight": 1}]
                }
            },
            ["prefix.groups"],
        ),
        ({"prefix": {"assignment": ["a"] * 9}}, ["prefix.assignment"]),
        (
            {"prefix": {"groups": [{"id": "a"}], "assignment": ["b"] + ["a"] * 9}},
            ["prefix.assignment"],
        ),
        (
            {"prefix": {"groups": [{"id": "a"}, {"id": "b"}], "assignment": ["a"] * 10}},
            ["prefix.assignment"],
        ),
        (
            {"prefix": {"groups": [{"id": "a", "request_count": 9}], "assignment": ["a"] * 10}},
            ["prefix.assignment"],
        ),
        ({"prefix": {"sample_ids": [-1]}}, ["prefix.sample_ids.0"]),
        # suffix
        ({"suffix": []}, ["suffix"]),
        ({"suffix": {"source": "text"}}, ["suffix.path"]),
        ({"suffix": {"source": "builtin", "path": "x.jsonl"}}, ["suffix.path"]),
        ({"suffix": {"source": "random", "sample_ids": [1]}}, ["suffix.sample_ids"]),
        ({"suffix": {"source": "gsm9k"}}, ["suffix.source"]),
        ({"suffix": {"divergence_block": "yes"}}, ["suffix.divergence_block"]),
        (
            {"suffix": {"collision_detection": {"window_blocks": 0}}},
            ["suffix.collision_detection.window_blocks"],
        ),
        (
            {"suffix": {"collision_detection": {"max_retries": -1}}},
            ["suffix.collision_detection.max_retries"],
        ),
        # order
        (
            {"request_order": {"mode": "shuffle", "within_group": "sequential"}},
            ["request_order.within_group"],
        ),
        (
            {"request_order": {"mode": "shuffle", "across_group": "interleave"}},
            ["request_order.across_group"],
        ),
        ({"request_order": {"mode": "lag_robust"}}, ["request_order.mode"]),
        ({"request_order": {"within_group": "lag_robust"}}, ["request_order.within_group"]),
        ({"request_order": {"leaders": "last"}}, ["request_order.leaders"]),
        # execution
        (
            {"execution": {"mode": "progressive_prefix_fill", "warmup_rounds": 1}},
            ["execution.warmup_rounds"],
        ),
        ({"execution": {"mode": "cold", "warmup_rounds": 1}}, ["execution.warmup_rounds"]),
        ({"execution": {"mode": "warmup", "warmup_rounds": 0}}, ["execution.warmup_rounds"]),
        ({"execution": {"concurrency": 0}}, ["execution.concurrency"]),
        ({"execution": {"request_rate": 0}}, ["execution.request_rate"]),
        ({"execution": {"urls": ["localhost:8000"]}}, ["execution.urls.0"]),
        ({"execution": {"metrics_urls": "http://a"}}, ["execution.metrics_urls"]),
        ({"execution": {"isolation": "salted"}}, ["execution.isolation"]),
        # routing
        ({"routing": {"cache_scope": "local"}}, ["routing.cache_scope"]),
        ({"routing": {"dp_size": 0}}, ["routing.dp_size"]),
        (
            {"routing": {"policy": "round_robin", "sticky_routing": True}},
            ["routing.sticky_routing"],
        ),
        (
            {"routing": {"policy": "sticky", "bind_prefix_group_to_dp": True}},
            ["routing.bind_prefix_group_to_dp"],
        ),
        ({"routing": {"policy": "explicit"}}, ["routing.bindings"]),
        ({"routing": {"bindings": {"group_0": 0}}}, ["routing.bindings"]),
        (
            {"routing": {"policy": "explicit", "bindings": {"group_0": 1}}},
            ["routing.bindings.group_0"],
        ),
        (
            {"routing": {"policy": "explicit", "bindings": {"group_0": 0, "group_1": 0}}},
            ["routing.bindings"],
        ),
        # planning, validation, the rest
        ({"planning": {"max_iterations": 0}}, ["planning.max_iterations"]),
        ({"planning": {"base_ratio_search": "guess"}}, ["planning.base_ratio_search"]),
        ({"planning": {"capacity_blocks": 0}}, ["planning.capacity_blocks"]),
        ({"validation": {"pass_tolerance": -0.1}}, ["validation.pass_tolerance"]),
        ({"validation": {"pass_tolerance": 0.05}}, ["validation.warning_tolerance"]),
        ({"validation": {"on_failure": "ignore"}}, ["validation.on_failure"]),
        ({"block_size": 0}, ["block_size"]),
        ({"hit_granularity": 1.5}, ["hit_granularity"]),
        ({"seed": "42"}, ["seed"]),
        ({"seed": False}, ["seed"]),
        ({"dataset_id": "a\nb"}, ["dataset_id"]),
        ({"prompt_format": "html"}, ["prompt_format"]),
        ({"save_prompts": 1}, ["save_prompts"]),
        ({"tokenizer": ""}, ["tokenizer"]),
    ],
    ids=lambda value: json.dumps(value, default=str)[:70],
)
def test_this_is_refused_at_this_place(settings: dict[str, Any], paths: list[str]) -> None:
    assert sorted(problems_with(**settings)) == paths


@pytest.mark.parametrize("mean", [100, 200])
def test_a_mean_on_an_edge_of_the_range_is_legal(mean: int) -> None:
    assert parse_config(minimal(input_length={**NORMAL, "mean": mean}))


def test_progressive_fill_with_a_warmup_names_both_settings() -> None:
    execution = {"mode": "progressive_prefix_fill", "warmup_rounds": 3}
    problem = problems_with(execution=execution)["execution.warmup_rounds"]
    assert "execution.mode: progressive_prefix_fill" in problem.message
    assert problem.given == "3"


def test_a_stated_length_below_the_unshared_part_is_named() -> None:
    lengths = {"mode": "explicit", "values": [500] * 9 + [40]}
    prefix = {"minimum_non_shared_length": 41}
    problem = problems_with(input_length=lengths, prefix=prefix)["prefix.minimum_non_shared_length"]
    assert "request 9" in problem.message


def test_a_drawn_length_may_be_below_the_unshared_part() -> None:
    prefix = {"minimum_non_shared_length": 150}
    assert parse_config(minimal(input_length=NORMAL, prefix=prefix))


def test_per_group_targets_name_every_group_and_no_other() -> None:
    groups = [{"id": "group_1", "hit_ratio": 0.5}, {"id": "grp_0", "hit_ratio": 0.5}]
    with pytest.raises(ConfigError) as caught:
        parse_config(
            minimal(target={"scope": "per_group", "groups": groups}, prefix={"group_count": 2})
        )
    told = [(problem.message, problem.given, problem.nearest) for problem in caught.value.problems]
    assert told == [
        ("names an unknown group", "grp_0", "group_0"),
        ("has no target for a group", "group_0", None),
    ]


def test_an_address_is_never_repeated_in_an_error() -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(minimal(execution={"urls": ["ftp://user:secret@inside.example"]}))
    assert "inside" not in caught.value.render()
    assert "secret" not in str(caught.value.to_json())


def test_checks_across_sections_run_beside_other_problems() -> None:
    paths = problems_with(
        input_length={"mode": "explicit", "values": [5, 5]},
        suffix={"source": "nothing"},
        prefix={"group_count": 20},
    )
    assert sorted(paths) == ["input_length.values", "prefix.group_count", "suffix.source"]


@pytest.mark.parametrize("given", [{}, {"prefix_cache_dataset": None}, {"prefix_cache_dataset": 5}])
def test_nothing_usable_is_refused(given: dict[str, Any]) -> None:
    assert problems_in(given)


def test_a_misspelled_root_key_is_recognised() -> None:
    problems = problems_in({"prefix_cache_datset": minimal(seed="x")})
    assert problems["prefix_cache_datset"].nearest == "prefix_cache_dataset"
    assert "seed" in problems


def test_keys_beside_the_root_key_are_refused() -> None:
    problems = problems_in({"prefix_cache_dataset": minimal(), "seed": 4})
    assert list(problems) == ["seed"]
