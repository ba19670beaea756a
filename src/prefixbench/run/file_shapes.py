"""The shapes of the files in runtime/, as far as a report or a resumed run reads them.

Contract, section 4. What was not measured is null, so most keys may be.
"""

from __future__ import annotations

from prefixbench.core.shapes import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    POSITIVE,
    TEXT,
    Needed,
    Shape,
    one_of,
)
from prefixbench.core.tally import Unit

_NAME, _NUMBERED = Needed(TEXT), Needed(COUNT)
_UNIT = one_of(Unit)
_IDENTITY: dict[str, Shape] = {"dataset_id": _NAME, "manifest_sha256": _NAME}
_OF_A_PHASE: dict[str, Shape] = {"phase": _NAME, "round": _NUMBERED}

RESULT_ROW: dict[str, Shape] = {
    **_IDENTITY,
    **_OF_A_PHASE,
    "request_id": _NAME,
    "status": _NAME,
    "attempt": COUNT,
    "actual_dp_id": COUNT,
    "actual_instance_id": COUNT,
    "http_status": COUNT,
    "prompt_tokens": COUNT,
    "cached_tokens": COUNT,
    **dict.fromkeys(("sent_ns", "first_token_ns", "server_prefill_start_ns"), INTEGER),
    **dict.fromkeys(
        ("ttft_ms", "tpot_ms", "e2e_ms", "schedule_ttft_ms", "schedule_e2e_ms"), NUMBER
    ),
}

#: A line of events.jsonl: anything that happened.
EVENT_ROW: dict[str, Shape] = {"event": _NAME}

RUN_DOCUMENT: dict[str, Shape] = {
    **_IDENTITY,
    **dict.fromkeys(("run_id", "mode", "status", "started", "ended"), TEXT),
    **dict.fromkeys(("warmup_rounds", "rounds"), COUNT),
    "concurrency": POSITIVE,
    **dict.fromkeys(("request_rate", "max_failure_rate"), NUMBER),
    "isolation": Needed({"asked": TEXT, "phases": Needed([{**_OF_A_PHASE, "used": TEXT}])}),
    "server": {
        **dict.fromkeys(("engine", "version"), TEXT),
        **dict.fromkeys(("block_size", "hit_granularity", "num_blocks"), POSITIVE),
        "enable_prefix_caching": FLAG,
    },
    "error": {"code": TEXT, "message": TEXT},
}

_DISTRIBUTION: dict[str, Shape] = {
    **dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "min", "max"), NUMBER),
    "count": COUNT,
}
_LATENCIES = ("ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "schedule_ttft_ms", "schedule_e2e_ms")

PERFORMANCE_DOCUMENT: dict[str, Shape] = {
    **_IDENTITY,
    "phases": Needed(
        [
            {
                **_OF_A_PHASE,
                **dict.fromkeys(_LATENCIES, _DISTRIBUTION),
                **dict.fromkeys(
                    (
                        "duration_s", "request_throughput", "qps", "input_token_throughput",
                        "output_token_throughput", "success_rate", "timeout_rate",
                    ),
                    NUMBER,
                ),
                "requests": dict.fromkeys(
                    ("planned", "sent", "succeeded", "failed", "timed_out", "retried"), COUNT
                ),
                "concurrency": {
                    "configured": COUNT,
                    "achieved_mean": NUMBER,
                    "achieved_max": COUNT,
                },
                "client": {"verdict": TEXT, "reason": TEXT},
            }
        ]
    ),
}  # fmt: skip

_TALLY: dict[str, Shape] = {"queries": COUNT, "hits": COUNT, "hit_rate": NUMBER}
_FIGURES: dict[str, Shape] = {**_TALLY, "external": _TALLY, "combined_hit_rate": NUMBER}
_EVICTIONS: dict[str, Shape] = {"count": COUNT, "unit": TEXT}
_INSTANCE: dict[str, Shape] = {
    **_FIGURES,
    **dict.fromkeys(("endpoint", "engine", "gap", "reason"), TEXT),
    "unit": _UNIT,
    **dict.fromkeys(("preemptions", "block_size", "num_blocks"), COUNT),
    "kv_cache_usage": {"mean": NUMBER, "max": NUMBER},
    "evictions": _EVICTIONS,
}
_PHASE: dict[str, Shape] = {
    **_OF_A_PHASE,
    **_FIGURES,
    **dict.fromkeys(("cache_state_before", "adapter", "reason"), TEXT),
    **dict.fromkeys(("complete", "partial"), FLAG),
    **dict.fromkeys(("designed_hit_ratio", "runtime_deviation"), NUMBER),
    "unit": _UNIT,
    "warmup_requests": COUNT,
}
_CHECK: dict[str, Shape] = {
    **dict.fromkeys(("name", "status"), _NAME),
    **dict.fromkeys(("phase", "detail", "cause"), TEXT),
}

COUNTERS_DOCUMENT: dict[str, Shape] = {
    **_IDENTITY,
    "adapter": TEXT,
    "unit": _UNIT,
    "global": {**_FIGURES, "partial": FLAG},
    "phases": Needed([_PHASE]),
    "instances": [_INSTANCE],
    "checks": [_CHECK],
}

#: What a run that goes on takes over, with every key there: its phases are added up again.
RESUMED_COUNTERS: dict[str, Shape] = {
    "phases": Needed(
        [
            {
                **_PHASE,
                "complete": Needed(FLAG),
                "usage": Needed(
                    {
                        **dict.fromkeys(("prompt_tokens", "cached_tokens"), COUNT),
                        "requests_with_hit_rate": _NUMBERED,
                    }
                ),
                "instances": Needed(
                    [{**_INSTANCE, "dp_id": COUNT, "evictions": Needed(_EVICTIONS)}]
                ),
            }
        ]
    ),
    "checks": Needed([_OF_A_PHASE]),
}
RESUMED_PERFORMANCE: dict[str, Shape] = {"phases": Needed([_OF_A_PHASE])}
RESUMED_RUN: dict[str, Shape] = {
    **_IDENTITY,
    "isolation": Needed({"phases": Needed([_OF_A_PHASE])}),
}
