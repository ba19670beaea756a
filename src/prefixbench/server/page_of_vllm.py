"""The page of vLLM, with the versions that have each family.

Names, labels and meanings are those from 0.9.2 on (metrics-adapters.md sections 2 to 4; executed
0.32, the others read). The external families count what a profile has below the device, and stay 0
where that is nothing.
"""

from __future__ import annotations

from prefixbench.server.counters import RankCounters
from prefixbench.server.families import (
    CacheConfigFamily,
    CounterFamily,
    Dialect,
    Family,
    GaugeFamily,
    HistogramFamily,
    Row,
    StartTimeFamily,
)


def _finished(counters: RankCounters) -> list[Row]:
    return [Row(count, (reason,)) for reason, count in counters.finished.items()]


def _prompt_tokens_by_source(counters: RankCounters) -> list[Row]:
    return [
        Row(counters.prompt_tokens - counters.cached_tokens, ("local_compute",)),
        Row(counters.cached_tokens - counters.loaded_tokens, ("local_cache_hit",)),
        Row(counters.loaded_tokens, ("external_kv_transfer",)),
    ]


def _cached_tokens_by_source(counters: RankCounters) -> list[Row]:
    return [
        Row(counters.hits, ("device",)),
        *(Row(0, (source,)) for source in ("host", "p2p", "disk")),
        Row(counters.external_hits, ("external_unspecified",)),
    ]


_VLLM_FAMILIES: tuple[Family, ...] = (
    StartTimeFamily(
        name="process_start_time_seconds",
        help="Start of the process, in seconds since the Unix epoch.",
    ),
    GaugeFamily(
        name="vllm:num_requests_running",
        help="Requests in the running batch.",
        number=lambda rank: rank.load.running,
    ),
    GaugeFamily(
        name="vllm:num_requests_waiting",
        help="Requests that wait for admission.",
        number=lambda rank: rank.load.waiting,
    ),
    GaugeFamily(
        name="vllm:kv_cache_usage_perc",
        help="Share of the cache's blocks in use by requests, 0 to 1.",
        number=lambda rank: rank.load.kv_usage,
    ),
    GaugeFamily(
        name="vllm:gpu_cache_usage_perc",
        help="The same under its old name.",
        number=lambda rank: rank.load.kv_usage,
        until=(0, 11, 2),
    ),
    CounterFamily(
        name="vllm:prefix_cache_queries",
        help="Tokens looked up in the prefix cache.",
        rows=lambda counters: [Row(counters.queries)],
    ),
    CounterFamily(
        name="vllm:prefix_cache_hits",
        help="Tokens found in the prefix cache.",
        rows=lambda counters: [Row(counters.hits)],
    ),
    CounterFamily(
        name="vllm:gpu_prefix_cache_queries",
        help="The same queries under their old name.",
        rows=lambda counters: [Row(counters.queries)],
        until=(0, 11, 2),
    ),
    CounterFamily(
        name="vllm:gpu_prefix_cache_hits",
        help="The same hits under their old name.",
        rows=lambda counters: [Row(counters.hits)],
        until=(0, 11, 2),
    ),
    CounterFamily(
        name="vllm:external_prefix_cache_queries",
        help="Tokens looked up in the external cache.",
        since=(0, 11, 2),
        rows=lambda counters: [Row(counters.external_queries)],
    ),
    CounterFamily(
        name="vllm:external_prefix_cache_hits",
        help="Tokens found in the external cache.",
        since=(0, 11, 2),
        rows=lambda counters: [Row(counters.external_hits)],
    ),
    CounterFamily(
        name="vllm:num_preemptions",
        help="Running requests pushed back to wait.",
        rows=lambda counters: [Row(counters.preemptions)],
    ),
    CounterFamily(
        name="vllm:prompt_tokens",
        help="Prompt tokens of requests whose first token came out.",
        rows=lambda counters: [Row(counters.prompt_tokens)],
    ),
    CounterFamily(
        name="vllm:prompt_tokens_cached",
        since=(0, 18),
        help="The part of the prompt tokens that was found cached.",
        rows=lambda counters: [Row(counters.cached_tokens)],
    ),
    CounterFamily(
        name="vllm:prompt_tokens_by_source",
        since=(0, 18),
        help="Prompt tokens by where their KV came from.",
        extra_labels=("source",),
        rows=_prompt_tokens_by_source,
    ),
    CounterFamily(
        name="vllm:prompt_tokens_cached_by_source",
        since=(0, 32),
        help="Cached prompt tokens by tier, counted at admission.",
        extra_labels=("source",),
        rows=_cached_tokens_by_source,
    ),
    CounterFamily(
        name="vllm:generation_tokens",
        help="Generated tokens.",
        rows=lambda counters: [Row(counters.generation_tokens)],
    ),
    CounterFamily(
        name="vllm:request_success",
        help="Finished requests by reason.",
        extra_labels=("finished_reason",),
        rows=_finished,
    ),
    HistogramFamily(
        name="vllm:time_to_first_token_seconds",
        help="From arrival at the front end to the first token.",
        histogram=lambda counters: counters.first_token_s,
    ),
    HistogramFamily(
        name="vllm:inter_token_latency_seconds",
        since=(0, 11),
        help="Between two tokens of a request.",
        histogram=lambda counters: counters.token_gap_s,
    ),
    HistogramFamily(
        name="vllm:e2e_request_latency_seconds",
        help="From arrival at the front end to the last token.",
        histogram=lambda counters: counters.whole_request_s,
    ),
    CacheConfigFamily(
        name="vllm:cache_config_info",
        help="Configuration of the cache.",
        labels={
            "block_size": (),
            "cache_hit_alignment_tokens": (0, 32),
            "enable_prefix_caching": (),
            "hash_block_size": (0, 32),
            "kv_cache_size_tokens": (0, 26),
            "num_gpu_blocks": (),
            "prefix_caching_hash_algo": (),
        },
    ),
)

#: The latest version the table knows.
NEWEST_VLLM = "0.33"

VLLM = Dialect(
    families=_VLLM_FAMILIES,
    rank_labels=lambda model, rank: {"engine": str(rank), "model_name": model},
)
