"""Every YAML text of the specification loads as it stands."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

import pytest
import yaml

from config_samples import load_text, minimal
from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.execution import ExecutionMode
from prefixbench.config.lengths import FixedLength, HistogramLength, TruncatedNormalLength
from prefixbench.config.load import parse_config
from prefixbench.config.prefix import PrefixMode
from prefixbench.config.routing import RoutingPolicy
from prefixbench.config.suffix import CacheMatchSemantics
from prefixbench.config.target import TargetScope, TargetSemantics
from shared_folder import REPOSITORY, shared_folder

EXAMPLES = sorted((REPOSITORY / "examples").glob("*.yaml"))


def test_the_short_form_is_a_warmed_static_ratio(tmp_path: Path) -> None:
    config = load_text(
        tmp_path,
        "request_count: 1000\n"
        "input_length: 4096\n"
        "target_prefix_ratio: 0.5\n"
        "prefix_mode: single_prefix\n",
    )
    assert config.request_count == 1000
    assert config.input_length == FixedLength(value=4096)
    assert config.target.hit_ratio == 0.5
    assert config.target.semantics is TargetSemantics.STATIC_PREFIX_RATIO
    assert config.execution.mode is ExecutionMode.WARMUP
    assert config.prefix.mode is PrefixMode.SINGLE_PREFIX
    assert config.dataset_id == "sample"


def test_the_truncated_normal_snippet_loads() -> None:
    snippet = yaml.safe_load("""
        input_length:
          mode: truncated_normal
          min: 1024
          max: 8192
          mean: 4096
          std: 1024
    """)
    length = parse_config(minimal(**snippet)).input_length
    assert length == TruncatedNormalLength(min=1024, max=8192, mean=4096, std=1024)


def test_the_histogram_snippet_loads() -> None:
    snippet = yaml.safe_load("""
        input_length:
          mode: histogram
          bins:
            - range: [0, 1000]
              weight: 2
            - range: [1000, 2000]
              weight: 3
            - range: [2000, 4000]
              weight: 10
            - range: [4000, 8000]
              weight: 5
    """)
    length = parse_config(minimal(**snippet)).input_length
    assert isinstance(length, HistogramLength)
    assert [(one.range, one.weight) for one in length.bins] == [
        ((0, 1000), 2.0),
        ((1000, 2000), 3.0),
        ((2000, 4000), 10.0),
        ((4000, 8000), 5.0),
    ]


def test_both_target_snippets_load() -> None:
    one = parse_config(minimal(target={"scope": "global", "hit_ratio": 0.50}))
    assert one.target.semantics is TargetSemantics.ORDER_AWARE_GLOBAL

    groups = [{"id": "group_a", "hit_ratio": 0.50}, {"id": "group_b", "hit_ratio": 0.60}]
    each = parse_config(
        minimal(
            target={"scope": "per_group", "groups": groups},
            prefix={"groups": [{"id": "group_a"}, {"id": "group_b"}]},
        )
    )
    assert each.target.scope is TargetScope.PER_GROUP
    assert [(target.id, target.hit_ratio) for target in each.target.groups] == [
        ("group_a", 0.5),
        ("group_b", 0.6),
    ]


@pytest.mark.parametrize("semantics", list(CacheMatchSemantics))
def test_the_match_semantics_snippet_loads(semantics: CacheMatchSemantics) -> None:
    detection = {"cache_match_semantics": semantics.value}
    config = parse_config(minimal(suffix={"collision_detection": detection}))
    assert config.suffix.collision_detection.cache_match_semantics is semantics


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_examples_load_without_a_warning(example: Path) -> None:
    config = PrefixCacheDatasetConfig.load(example)
    assert config.request_count > 0
    expected = 1 if config.routing.cache_scope == "dp_local" else 0
    assert len(config.warnings()) == expected


def test_the_multi_prefix_example_means_what_it_says() -> None:
    config = PrefixCacheDatasetConfig.load(REPOSITORY / "examples/progressive_multi_prefix.yaml")
    assert config.dataset_id == "progressive_multi_prefix_50"
    assert config.prefix.group_ids == ("customer_a", "customer_b", "customer_c")
    assert config.routing.policy is RoutingPolicy.BOUND
    assert config.request_order.preserve_group_dependency
    assert "dp_local equals global" in config.warnings()[0]


def test_the_specification_itself_loads() -> None:
    """Its whole files as they stand, and equal to the examples of the repository."""
    files = sorted((shared_folder() / "seeds").glob("000_*.txt"))
    if not files:
        pytest.skip("the specification's text is not at hand (PREFIXBENCH_SHARED)")
    blocks = re.findall(r"^```yaml\n(.*?)^```", files[0].read_text("utf-8"), re.M | re.S)
    whole = [textwrap.dedent(block) for block in blocks if "prefix_cache_dataset:" in block]
    assert len(whole) == 3
    for block in whole:
        given: dict[str, Any] = yaml.safe_load(block)
        config = parse_config(given)
        same = [PrefixCacheDatasetConfig.load(example) for example in EXAMPLES]
        assert config in same
