"""How each engine names what the cache does: one table, no code an engine.

A *reading* is one way to get hits and queries; an adapter lists its readings best first, and the
first whose families are on the page is used. Names are written without `_total`. Sources:
metrics-adapters.md sections 2 to 5; MindIE's gauges of load, MindIE-LLM `prometheus_metrics.cpp`;
SGLang's gauges of load, its `metrics_collector.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from prefixbench.core.tally import Unit


class CountingRule(StrEnum):
    """When the engine counts a request's tokens."""

    ADMISSION = "admission"
    #: vLLM to 0.26 counts each look-up, from 0.27 on once at admission; names do not tell.
    ADMISSION_OR_LOOKUP = "admission_or_lookup"
    PREFILL = "prefill"
    FINISH = "finish"


@dataclass(frozen=True, slots=True)
class Term:
    """The sum of a family's samples; of those whose label has one of the values, if given."""

    family: str
    label: str = ""
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Hits and queries as sums of terms. `unit` None: tokens or blocks, to be found out."""

    queries: tuple[Term, ...]
    hits: tuple[Term, ...]
    rule: CountingRule
    unit: Unit | None = Unit.TOKEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """One engine. Tuples of names are alternatives: the first that is on the page is used.

    `engine_labels` name the cache inside a server (DP rank); of several `replica_labels` values
    (tensor or pipeline ranks, which count the same tokens again) only the first is read.
    `rank_field` names the field of a request's body that pins its rank, beside vLLM's header.
    """

    name: str
    readings: tuple[Reading, ...]
    engine_labels: tuple[str, ...] = ()
    replica_labels: tuple[str, ...] = ()
    rate_gauges: tuple[str, ...] = ()
    external: Reading | None = None
    usage: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    preemptions: tuple[str, ...] = ()
    evictions: tuple[str, ...] = ()
    eviction_unit: Unit | None = None
    prompt_tokens: tuple[str, ...] = ()
    config_info: str | None = None
    rank_field: str | None = None

    @property
    def signs(self) -> tuple[str, ...]:
        """Names by which a page of this engine is recognised."""
        counted = (term.family for reading in self.readings for term in reading.queries)
        return (*counted, *self.rate_gauges, *self.usage)


VLLM = Adapter(
    name="vllm",
    engine_labels=("engine",),
    readings=(
        Reading(
            queries=(Term("vllm:prefix_cache_queries"),),
            hits=(Term("vllm:prefix_cache_hits"),),
            rule=CountingRule.ADMISSION_OR_LOOKUP,
        ),
        # Blocks in 0.8, tokens in 0.9.0 and 0.9.1; with the name above, later, never added to it.
        Reading(
            queries=(Term("vllm:gpu_prefix_cache_queries"),),
            hits=(Term("vllm:gpu_prefix_cache_hits"),),
            rule=CountingRule.ADMISSION_OR_LOOKUP,
            unit=None,
        ),
    ),
    rate_gauges=("vllm:gpu_prefix_cache_hit_rate",),
    external=Reading(
        queries=(Term("vllm:external_prefix_cache_queries"),),
        hits=(Term("vllm:external_prefix_cache_hits"),),
        rule=CountingRule.ADMISSION,
    ),
    usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    running=("vllm:num_requests_running",),
    waiting=("vllm:num_requests_waiting",),
    preemptions=("vllm:num_preemptions",),
    prompt_tokens=("vllm:prompt_tokens",),
    config_info="vllm:cache_config_info",
)

SGLANG = Adapter(
    name="sglang",
    engine_labels=("dp_rank", "dp"),
    replica_labels=("tp_rank", "pp_rank", "moe_ep_rank"),
    readings=(
        Reading(
            queries=(Term("sglang:prefill_effective_tokens", "mode", ("input",)),),
            hits=(
                Term(
                    "sglang:prefill_effective_tokens",
                    "mode",
                    ("device_hit", "host_hit", "storage_hit"),
                ),
            ),
            rule=CountingRule.PREFILL,
        ),
        Reading(
            queries=(Term("sglang:realtime_tokens", "mode", ("prefill_compute", "prefill_cache")),),
            hits=(Term("sglang:realtime_tokens", "mode", ("prefill_cache",)),),
            rule=CountingRule.PREFILL,
        ),
        Reading(
            # Each request counts under its sources or, where these are unknown, under `total`.
            queries=(Term("sglang:prompt_tokens"),),
            hits=(Term("sglang:cached_tokens"),),
            rule=CountingRule.FINISH,
        ),
    ),
    rate_gauges=("sglang:cache_hit_rate",),
    usage=("sglang:token_usage",),
    running=("sglang:num_running_reqs",),
    waiting=("sglang:num_queue_reqs",),
    preemptions=("sglang:num_retracted_requests",),
    evictions=("sglang:evicted_tokens",),
    eviction_unit=Unit.TOKEN,
    prompt_tokens=("sglang:prompt_tokens",),
    rank_field="routed_dp_rank",
)

MINDIE = Adapter(
    name="mindie",
    readings=(
        Reading(
            queries=(Term("all_radix_match_num"),),
            hits=(Term("npu_radix_match_hit_num"),),
            rule=CountingRule.PREFILL,
        ),
    ),
    rate_gauges=("npu_prefix_cache_hit_rate",),
    usage=("npu_cache_usage_perc",),
    running=("num_requests_running",),
    waiting=("num_requests_waiting",),
    preemptions=("num_preemptions",),
    prompt_tokens=("prompt_tokens",),
)

LLAMACPP = Adapter(
    name="llamacpp",
    readings=(
        # `prompt_tokens` are the processed ones only: without what was found cached.
        Reading(
            queries=(Term("llamacpp:prompt_tokens"), Term("llamacpp:prompt_tokens_cached")),
            hits=(Term("llamacpp:prompt_tokens_cached"),),
            rule=CountingRule.FINISH,
        ),
    ),
    running=("llamacpp:requests_processing",),
    waiting=("llamacpp:requests_deferred",),
)

ADAPTERS: Mapping[str, Adapter] = {
    adapter.name: adapter for adapter in (VLLM, SGLANG, MINDIE, LLAMACPP)
}

#: Start of the server's process in Unix seconds, from prometheus_client; a change is a restart.
PROCESS_START = "process_start_time_seconds"
