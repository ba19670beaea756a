"""Growth of counters between two snapshots: sums, reasons, units, engines and their versions."""

from __future__ import annotations

import pytest

from prefixbench.core.tally import HitTally, Unit
from prefixbench.run.cache_metrics import (
    Gap,
    PrefixCacheRuntimeMetrics,
    collect_prefix_cache_metrics,
    combined,
)
from prefixbench.run.snapshot import MetricsSnapshot

A, B = "http://a/metrics", "http://b/metrics"


def vllm(*ranks: tuple[int, int], start: float = 1.0, created: float | None = None) -> str:
    """A page of vLLM 0.12 or later: (queries, hits) of each rank."""
    lines = [f"process_start_time_seconds {start}"]
    for rank, (queries, hits) in enumerate(ranks):
        labels = f'{{engine="{rank}",model_name="m"}}'
        lines += [
            f"vllm:prefix_cache_queries_total{labels} {queries}",
            f"vllm:prefix_cache_hits_total{labels} {hits}",
        ]
        if created is not None:
            lines.append(f"vllm:prefix_cache_hits_created{labels} {created}")
    return "\n".join(lines) + "\n"


def grown(before: str, after: str) -> PrefixCacheRuntimeMetrics:
    return collect_prefix_cache_metrics(
        [A], MetricsSnapshot.of_pages({A: before}), MetricsSnapshot.of_pages({A: after})
    )


def test_a_rate_is_growth_of_hits_over_growth_of_queries() -> None:
    """Worked test 5 of peers.md: 1600 of 4000, never 2500 of 5000."""
    metrics = grown(vllm((1000, 900)), vllm((5000, 2500)))
    assert metrics.tally == HitTally(1600, 4000)
    assert metrics.adapter == "vllm"
    assert metrics.unit is Unit.TOKEN


def test_ranks_and_addresses_add_and_are_never_averaged() -> None:
    before = MetricsSnapshot.of_pages({A: vllm((0, 0), (0, 0)), B: vllm((10, 10))})
    after = MetricsSnapshot.of_pages({A: vllm((100, 90), (900, 0)), B: vllm((10, 10))})
    metrics = collect_prefix_cache_metrics([A, B], before, after)
    assert metrics.tally == HitTally(90, 1000)
    assert [(row.endpoint, row.engine) for row in metrics.instances] == [
        (A, "0"),
        (A, "1"),
        (B, "0"),
    ]
    assert metrics.instances[2].tally == HitTally(0, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (vllm((100, 50)), vllm((90, 60))),
        (vllm((100, 50)), vllm((190, 40))),
        (vllm((100, 50), start=1.0), vllm((200, 60), start=2.0)),
        (vllm((100, 50), created=1.0), vllm((200, 60), created=2.0)),
    ],
    ids=["fewer queries", "fewer hits", "process started anew", "counter created anew"],
)
def test_a_reset_gives_a_reason_and_no_number(before: str, after: str) -> None:
    metrics = grown(before, after)
    assert metrics.tally is None
    assert metrics.instances[0].gap is Gap.COUNTER_RESET
    assert "counter reset" in (metrics.reason or "")


def test_one_rank_reset_leaves_the_other_and_says_partial() -> None:
    metrics = grown(vllm((100, 50), (100, 50)), vllm((10, 5), (150, 75)))
    assert metrics.tally == HitTally(25, 50)
    assert metrics.is_partial
    assert [row.engine for row in metrics.gaps] == ["0"]


def test_a_rank_that_comes_or_goes_is_named() -> None:
    came = grown(vllm((10, 5)), vllm((20, 10), (7, 7)))
    assert [(row.engine, row.gap) for row in came.gaps] == [("1", Gap.APPEARED)]
    went = grown(vllm((10, 5), (7, 7)), vllm((20, 10)))
    assert [(row.engine, row.gap) for row in went.gaps] == [("1", Gap.VANISHED)]


def test_a_missing_page_is_null_and_named_never_zero() -> None:
    before = MetricsSnapshot.of_pages({A: vllm((0, 0)), B: vllm((0, 0))})
    after = MetricsSnapshot.of_pages({A: vllm((10, 5)), B: ""})
    metrics = collect_prefix_cache_metrics([A, B], before, after)
    assert metrics.tally == HitTally(5, 10)
    assert metrics.is_partial
    (gap,) = metrics.gaps
    assert (gap.endpoint, gap.engine, gap.gap) == (B, None, Gap.UNREACHABLE)
    assert gap.reason == "the metrics page is empty"
    alone = collect_prefix_cache_metrics([B], before, after)
    assert alone.tally is None
    assert not alone.is_partial


def test_an_address_that_was_not_looked_at_is_missing() -> None:
    empty = MetricsSnapshot({})
    assert collect_prefix_cache_metrics([A], empty, empty).gaps[0].gap is Gap.UNREACHABLE


def test_the_external_tier_keeps_its_own_denominator() -> None:
    def page(local: tuple[int, int], external: tuple[int, int]) -> str:
        return (
            vllm(local)
            + f"vllm:external_prefix_cache_queries_total {external[0]}\n"
            + f"vllm:external_prefix_cache_hits_total {external[1]}\n"
        )

    metrics = grown(page((0, 0), (0, 0)), page((300, 96), (204, 96)))
    assert metrics.external == HitTally(96, 204)
    assert combined(metrics.tally, metrics.external) == HitTally(192, 300)


def test_without_an_external_tier_there_is_no_combined_rate() -> None:
    metrics = grown(vllm((0, 0)), vllm((10, 5)))
    assert metrics.external is None
    assert combined(metrics.tally, metrics.external) is None


OLD_VLLM = "vllm:gpu_prefix_cache_queries_total {0}\nvllm:gpu_prefix_cache_hits_total {1}\n"


@pytest.mark.parametrize(
    ("queries", "prompt_tokens", "unit"), [(64, 1030, Unit.BLOCK), (1030, 1030, Unit.TOKEN)]
)
def test_old_counters_are_told_apart_by_their_ratio_to_prompt_tokens(
    queries: int, prompt_tokens: int, unit: Unit
) -> None:
    before = OLD_VLLM.format(0, 0) + "vllm:prompt_tokens_total 0\n"
    after = OLD_VLLM.format(queries, 32) + f"vllm:prompt_tokens_total {prompt_tokens}\n"
    assert grown(before, after).tally == HitTally(32, queries, unit)


def test_old_counters_without_prompt_tokens_have_no_unit() -> None:
    metrics = grown(OLD_VLLM.format(0, 0), OLD_VLLM.format(64, 32))
    assert metrics.instances[0].gap is Gap.UNKNOWN_UNIT


def test_both_names_of_vllm_0_9_2_are_never_added() -> None:
    both = OLD_VLLM.format(100, 50) + vllm((100, 50))
    assert grown(OLD_VLLM.format(0, 0) + vllm((0, 0)), both).tally == HitTally(50, 100)


@pytest.mark.parametrize(
    "page", ["vllm:gpu_prefix_cache_hit_rate 0.5\n", "npu_prefix_cache_hit_rate 0.5\n"]
)
def test_a_page_with_a_rate_alone_cannot_be_compared(page: str) -> None:
    assert grown(page, page).instances[0].gap is Gap.RATE_ONLY


def test_a_page_of_an_unknown_engine_says_so() -> None:
    assert grown("up 1\n", "up 1\n").instances[0].gap is Gap.UNKNOWN_FAMILIES


SGLANG_0_5 = """\
# TYPE sglang:prefill_effective_tokens_total counter
sglang:prefill_effective_tokens_total{{dp_rank="0",tp_rank="0",mode="input"}} {0}
sglang:prefill_effective_tokens_total{{dp_rank="0",tp_rank="0",mode="device_hit"}} {1}
sglang:prefill_effective_tokens_total{{dp_rank="0",tp_rank="0",mode="host_hit"}} {2}
sglang:prefill_effective_tokens_total{{dp_rank="0",tp_rank="1",mode="input"}} {0}
sglang:prefill_effective_tokens_total{{dp_rank="0",tp_rank="1",mode="device_hit"}} {1}
sglang:cache_hit_rate 0.0
"""
SGLANG_REALTIME = """\
sglang:prompt_tokens_total 0
sglang:realtime_tokens_total{{mode="prefill_compute"}} {0}
sglang:realtime_tokens_total{{mode="prefill_cache"}} {1}
sglang:realtime_tokens_total{{mode="decode"}} 77
"""
SGLANG_OLD = """\
sglang:prompt_tokens_total {0}
# TYPE sglang:cached_tokens_total counter
sglang:cached_tokens_total{{cache_source="device"}} {1}
sglang:cached_tokens_total{{cache_source="total"}} {2}
"""
MINDIE = """\
all_radix_match_num{{model_name="m"}} {0}
npu_radix_match_hit_num{{model_name="m"}} {1}
npu_prefix_cache_hit_rate 0.9
"""
LLAMACPP = "llamacpp:prompt_tokens_total {0}\nllamacpp:prompt_tokens_cached_total {1}\n"


@pytest.mark.parametrize(
    ("adapter", "page", "before", "after", "tally"),
    [
        ("sglang", SGLANG_0_5, (10, 4, 0), (110, 44, 8), HitTally(48, 100)),
        ("sglang", SGLANG_REALTIME, (10, 5), (70, 45), HitTally(40, 100)),
        ("sglang", SGLANG_OLD, (10, 5, 0), (110, 35, 10), HitTally(40, 100)),
        ("mindie", MINDIE, (10, 5), (110, 45), HitTally(40, 100)),
        ("llamacpp", LLAMACPP, (10, 5), (70, 45), HitTally(40, 100)),
    ],
)
def test_every_engine_by_its_own_names(
    adapter: str, page: str, before: tuple[int, ...], after: tuple[int, ...], tally: HitTally
) -> None:
    metrics = grown(page.format(*before), page.format(*after))
    assert metrics.adapter == adapter
    assert metrics.tally == tally


def test_counters_that_were_never_raised_begin_at_zero() -> None:
    before = "sglang:num_running_reqs 0\n# TYPE sglang:prefill_effective_tokens_total counter\n"
    assert grown(before, SGLANG_0_5.format(100, 40, 0)).tally == HitTally(40, 100)


def test_a_label_that_appears_later_is_no_reset() -> None:
    page = SGLANG_0_5 + 'sglang:prefill_effective_tokens_created{{dp_rank="0",mode="input"}} 5\n'
    later = 'sglang:prefill_effective_tokens_created{dp_rank="0",mode="device_hit"} 9\n'
    metrics = grown(page.format(10, 4, 0), page.format(20, 8, 0) + later)
    assert metrics.tally == HitTally(4, 10)


def test_old_llamacpp_without_a_count_of_cached_tokens_has_no_rate() -> None:
    page = "llamacpp:prompt_tokens_total 5\nllamacpp:requests_processing 0\n"
    assert grown(page, page).instances[0].gap is Gap.UNKNOWN_FAMILIES


def test_a_named_adapter_is_used_even_if_the_page_looks_like_another() -> None:
    snapshot = MetricsSnapshot.of_pages({A: vllm((0, 0))})
    metrics = collect_prefix_cache_metrics([A], snapshot, snapshot, adapter="mindie")
    assert metrics.adapter == "mindie"
    assert metrics.tally is None


def test_tokens_and_blocks_are_not_added() -> None:
    before = MetricsSnapshot.of_pages(
        {A: vllm((0, 0)), B: OLD_VLLM.format(0, 0) + "vllm:prompt_tokens_total 0\n"}
    )
    after = MetricsSnapshot.of_pages(
        {A: vllm((9, 3)), B: OLD_VLLM.format(4, 2) + "vllm:prompt_tokens_total 64\n"}
    )
    metrics = collect_prefix_cache_metrics([A, B], before, after)
    assert metrics.tally is None
    assert metrics.reason == "the caches count in different units"


def test_configuration_comes_from_the_labels() -> None:
    labels = 'block_size="32",num_gpu_blocks="501",enable_prefix_caching="False",engine="0"'
    page = vllm((0, 0)) + f"vllm:cache_config_info{{{labels}}} 1\n"
    config = grown(page, page).instances[0].config
    assert (config.block_size, config.num_blocks) == (32, 501)
    assert config.enable_prefix_caching is False
    assert config.hit_granularity is None


def test_more_hits_than_queries_are_no_rate() -> None:
    metrics = grown(vllm((1000, 900), (0, 0)), vllm((1010, 950), (10, 5)))
    assert [row.gap for row in metrics.instances] == [Gap.IMPOSSIBLE, None]
    assert metrics.tally == HitTally(5, 10)
    assert metrics.is_partial
