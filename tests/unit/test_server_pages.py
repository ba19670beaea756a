"""Which families the metrics page has under which version; histograms in their own form."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from prometheus_client.parser import text_string_to_metric_families

from prefixbench.server.counters import FinishedReason, RankCounters
from prefixbench.server.dialects import imitated_version, parse_version
from prefixbench.server.families import RankState, ServerState
from prefixbench.server.metrics_page import render_metrics
from prefixbench.simulator.profile import get_profile
from prefixbench.simulator.routing import RankLoad

CONFIG: Mapping[str, str] = {
    "block_size": "16",
    "cache_hit_alignment_tokens": "16",
    "enable_prefix_caching": "True",
    "hash_block_size": "16",
    "kv_cache_size_tokens": "160",
    "num_gpu_blocks": "11",
    "prefix_caching_hash_algo": "sha256",
}


def page(version: str, counters: RankCounters | None = None) -> str:
    idle = RankLoad(in_flight=0, running=0, waiting=0, kv_usage=0.25)
    rank = RankState(rank=0, counters=counters or RankCounters(7.0), load=idle)
    state = ServerState(
        version=parse_version(version),
        model='a "quoted" name',
        started_s=7.0,
        cache_config=CONFIG,
        ranks=[rank],
    )
    return render_metrics(state, "vllm")


@pytest.mark.parametrize(
    ("sign", "first", "last"),
    [
        ("vllm:gpu_prefix_cache_queries_total", "0.9", "0.11.2"),
        ("vllm:gpu_cache_usage_perc", "0.9", "0.11.2"),
        ("vllm:prefix_cache_queries_total", "0.9", "0.33"),
        ("vllm:external_prefix_cache_hits_total", "0.11.2", "0.33"),
        ("vllm:prompt_tokens_by_source_total", "0.18", "0.33"),
        ("vllm:prompt_tokens_cached_by_source_total", "0.32", "0.33"),
        ('kv_cache_size_tokens="160"', "0.26", "0.33"),
        ('cache_hit_alignment_tokens="16"', "0.32", "0.33"),
    ],
)
def test_a_page_shows_the_signs_of_its_version(sign: str, first: str, last: str) -> None:
    for version in ("0.9", "0.11.1", "0.11.2", "0.18", "0.23", "0.26", "0.32", "0.33"):
        number = parse_version(version)
        expected = parse_version(first) <= number <= parse_version(last)
        assert (sign in page(version)) == expected, version


@pytest.mark.parametrize(
    ("profile", "version"),
    [
        ("vllm-0.33", "0.33"),
        ("vllm-0.9", "0.11.1"),
        ("vllm-ascend-0.23", "0.23"),
        ("ideal", "0.33"),
    ],
)
def test_a_profile_shows_the_page_of_its_latest_version(profile: str, version: str) -> None:
    assert imitated_version(get_profile(profile)) == version


def test_counters_and_histograms_survive_the_way_through_the_page() -> None:
    counters = RankCounters(1_700_000_000.0)
    counters.queries = 2**53 - 1
    counters.finished[FinishedReason.LENGTH] = 3
    for seconds in (0.0005, 0.02, 3000.0):
        counters.first_token_s.observe(seconds)
    samples = {
        (sample.name, sample.labels.get("le"), sample.labels.get("finished_reason")): sample
        for family in text_string_to_metric_families(page("0.33", counters))
        for sample in family.samples
    }

    def value(name: str, le: str | None = None, reason: str | None = None) -> float:
        return samples["vllm:" + name, le, reason].value

    assert value("prefix_cache_queries_total") == 2**53 - 1
    assert value("prefix_cache_queries_created") == 1_700_000_000.0
    assert value("request_success_total", None, "length") == 3
    assert value("request_success_total", None, "abort") == 0
    assert value("time_to_first_token_seconds_bucket", "0.001") == 1
    assert value("time_to_first_token_seconds_bucket", "0.02") == 2
    assert value("time_to_first_token_seconds_bucket", "2560.0") == 2
    assert value("time_to_first_token_seconds_bucket", "+Inf") == 3
    assert value("time_to_first_token_seconds_count") == 3
    assert value("time_to_first_token_seconds_sum") == pytest.approx(3000.0205)
    assert value("kv_cache_usage_perc") == 0.25
    labels = samples["vllm:prefix_cache_queries_total", None, None].labels
    assert labels == {"engine": "0", "model_name": 'a "quoted" name'}


ELSEWHERE = {
    "sglang": {
        'sglang:prefill_effective_tokens_total{dp_rank="0",mode="input",model_name="m",'
        'pp_rank="0",tp_rank="0"} 100.0',
        'sglang:prefill_effective_tokens_total{dp_rank="0",mode="device_hit",model_name="m",'
        'pp_rank="0",tp_rank="0"} 60.0',
        'sglang:token_usage{dp_rank="0",model_name="m",pp_rank="0",tp_rank="0"} 0.25',
    },
    "mindie": {
        "# TYPE all_radix_match_num gauge",
        'all_radix_match_num{model_name="m"} 100.0',
        'npu_radix_match_hit_num{model_name="m"} 60.0',
        'npu_prefix_cache_hit_rate{model_name="m"} 0.6',
    },
    "llamacpp": {
        "# TYPE llamacpp:prompt_tokens_total counter",
        "llamacpp:prompt_tokens_total 40.0",
        "llamacpp:prompt_tokens_cached_total 60.0",
        "llamacpp:requests_processing 0.0",
    },
}


@pytest.mark.parametrize(("dialect", "lines"), ELSEWHERE.items())
def test_another_dialect_has_its_own_names_and_labels(dialect: str, lines: set[str]) -> None:
    counters = RankCounters(7.0, queries=100, hits=60, prompt_tokens=100, cached_tokens=60)
    idle = RankLoad(in_flight=0, running=0, waiting=0, kv_usage=0.25)
    state = ServerState(
        version=parse_version("0.33"),
        model="m",
        started_s=7.0,
        cache_config=CONFIG,
        ranks=[RankState(rank=0, counters=counters, load=idle)],
    )
    shown = render_metrics(state, dialect)
    assert lines <= set(shown.splitlines())
    assert "vllm" not in shown
