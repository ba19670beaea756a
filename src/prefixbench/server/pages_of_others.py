"""The pages of SGLang, MindIE and llama.cpp, as far as they speak of the cache and its load.

Names, labels and meanings: metrics-adapters.md section 2 (SGLang 0.5.23 and MindIE read, llama.cpp
executed); MindIE's gauges of load, MindIE-LLM `prometheus_metrics.cpp`; SGLang's, its
`metrics_collector.py`. The real SGLang counts `prompt_tokens` and `cached_tokens` when a request
ends, this page at its first token: a request that breaks off in between is in them.
"""

from __future__ import annotations

from prefixbench.server.counters import RankCounters
from prefixbench.server.families import CounterFamily, Dialect, GaugeFamily, RankState, Row


def _effective_tokens(counters: RankCounters) -> list[Row]:
    return [
        Row(counters.queries, ("input",)),
        Row(counters.hits, ("device_hit",)),
        Row(counters.external_hits, ("host_hit",)),
        Row(0, ("storage_hit",)),
    ]


def _cached_tokens(counters: RankCounters) -> list[Row]:
    return [
        Row(counters.cached_tokens - counters.loaded_tokens, ("device",)),
        Row(counters.loaded_tokens, ("host",)),
        Row(0, ("storage",)),
    ]


SGLANG = Dialect(
    rank_labels=lambda model, rank: {
        "model_name": model,
        "tp_rank": "0",
        "pp_rank": "0",
        "dp_rank": str(rank),
    },
    families=(
        CounterFamily(
            name="sglang:prefill_effective_tokens",
            help="Prompt tokens of admitted requests, and those found cached, by tier.",
            extra_labels=("mode",),
            rows=_effective_tokens,
        ),
        CounterFamily(
            name="sglang:prompt_tokens",
            help="Prompt tokens.",
            rows=lambda counters: [Row(counters.prompt_tokens)],
        ),
        CounterFamily(
            name="sglang:cached_tokens",
            help="Prompt tokens that were found cached, by tier.",
            extra_labels=("cache_source",),
            rows=_cached_tokens,
        ),
        CounterFamily(
            name="sglang:generation_tokens",
            help="Generated tokens.",
            rows=lambda counters: [Row(counters.generation_tokens)],
        ),
        CounterFamily(
            name="sglang:num_retracted_requests",
            help="Running requests pushed back to wait.",
            rows=lambda counters: [Row(counters.preemptions)],
        ),
        GaugeFamily(
            name="sglang:token_usage",
            help="Share of the cache in use by requests, 0 to 1.",
            number=lambda rank: rank.load.kv_usage,
        ),
        GaugeFamily(
            name="sglang:num_running_reqs",
            help="Requests in the running batch.",
            number=lambda rank: rank.load.running,
        ),
        GaugeFamily(
            name="sglang:num_queue_reqs",
            help="Requests that wait for admission.",
            number=lambda rank: rank.load.waiting,
        ),
    ),
)


def _hit_rate(rank: RankState) -> float:
    return rank.counters.hits / rank.counters.queries if rank.counters.queries else 0.0


MINDIE = Dialect(
    rank_labels=lambda model, _: {"model_name": model},
    tells_ranks=False,
    returns_token_ids=False,
    families=(
        GaugeFamily(
            name="all_radix_match_num",
            help="Prompt tokens looked up so far.",
            number=lambda rank: rank.counters.queries,
        ),
        GaugeFamily(
            name="npu_radix_match_hit_num",
            help="Prompt tokens found cached so far.",
            number=lambda rank: rank.counters.hits,
        ),
        GaugeFamily(
            name="npu_prefix_cache_hit_rate",
            help="The one over the other.",
            number=_hit_rate,
        ),
        GaugeFamily(
            name="npu_cache_usage_perc",
            help="Share of the cache's blocks in use by requests, 0 to 1.",
            number=lambda rank: rank.load.kv_usage,
        ),
        GaugeFamily(
            name="num_requests_running",
            help="Requests in the running batch.",
            number=lambda rank: rank.load.running,
        ),
        GaugeFamily(
            name="num_requests_waiting",
            help="Requests that wait for admission.",
            number=lambda rank: rank.load.waiting,
        ),
        CounterFamily(
            name="num_preemptions",
            help="Running requests pushed back to wait.",
            states_created=False,
            rows=lambda counters: [Row(counters.preemptions)],
        ),
        CounterFamily(
            name="prompt_tokens",
            help="Prompt tokens.",
            states_created=False,
            rows=lambda counters: [Row(counters.prompt_tokens)],
        ),
    ),
)

LLAMACPP = Dialect(
    rank_labels=lambda _model, _rank: {},
    tells_ranks=False,
    returns_token_ids=False,
    families=(
        CounterFamily(
            name="llamacpp:prompt_tokens",
            help="Prompt tokens that were computed, without those found cached.",
            states_created=False,
            rows=lambda counters: [Row(counters.prompt_tokens - counters.cached_tokens)],
        ),
        CounterFamily(
            name="llamacpp:prompt_tokens_cached",
            help="Prompt tokens that were found cached.",
            states_created=False,
            rows=lambda counters: [Row(counters.cached_tokens)],
        ),
        CounterFamily(
            name="llamacpp:tokens_predicted",
            help="Generated tokens.",
            states_created=False,
            rows=lambda counters: [Row(counters.generation_tokens)],
        ),
        GaugeFamily(
            name="llamacpp:requests_processing",
            help="Requests being processed.",
            number=lambda rank: rank.load.running,
        ),
        GaugeFamily(
            name="llamacpp:requests_deferred",
            help="Requests that wait.",
            number=lambda rank: rank.load.waiting,
        ),
    ),
)
