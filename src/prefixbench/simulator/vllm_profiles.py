"""Profiles of vLLM by version, and of vLLM-Ascend, which plugs into it; each value with its source.

Words of the notes: *executed* means the engine's own scheduler, cache or server was run and
observed; *read* means read in its source; *documented* and *unverified* mean what they say.
Boundaries between rows were checked on every release in between: whole-prompt reserve 0.18/0.19,
free order 0.23/0.24, counting 0.26/0.27, sparse retention 0.28/0.29, lone long prefills 0.30/0.31,
EAGLE and self-preemption 0.32/0.33.
"""

from __future__ import annotations

from prefixbench.simulator.rules import (
    Counting,
    KeylessFreed,
    Lookahead,
    PublishPoint,
    Readmission,
    SelfPreemption,
    StateNaming,
    TierRules,
    next_row,
    profile_row,
)

_VLLM_0_9 = profile_row(
    {
        "block_size": "CacheConfig.DEFAULT_BLOCK_SIZE on GPUs, read in 0.33; the attention backend "
        "or a hybrid model may override it",
        "last_token": "KVCacheManager.get_computed_blocks, executed in 0.18 to 0.33",
        "partial_block": "only full blocks get a key, executed in 0.18 to 0.33",
        "publish": "allocate_slots publishes what the step will fill, executed in 0.18 to 0.33",
        "keyless_freed": "free_blocks appends all freed blocks, executed in 0.18 and 0.23",
        "eviction": "BlockPool hands out single blocks, executed in 0.18 to 0.33",
        "touch_order": "a request's blocks are freed last to first, executed in 0.18 to 0.33",
        "duplicates": "the map keeps all copies in order of publishing, executed in 0.32",
        "counting": "added at every admission attempt, executed in 0.26",
        "readmission": "kept apart from 0.11.2 on only, read",
        "reserve_whole_prompt": "scheduler_reserve_full_isl exists from 0.19 on, executed in 0.18 "
        "and 0.19",
        "mixed_steps": "one token budget for prefill and decode, executed in 0.18 to 0.33",
        "lone_ignores_threshold": "long_prefill_token_threshold cuts every prompt, executed in "
        "0.18 to 0.30",
        "self_preemption": "a running request that is its own victim ends the pass, executed in "
        "0.18 to 0.32",
        "sparse_retention": "VLLM_PREFIX_CACHE_RETENTION_INTERVAL was unset by default, read",
        "state_naming": "recurrent layers before 0.32 follow rules of their own, executed in 0.30",
        "lookahead": "EAGLE drops the last matched block, executed in 0.28, 0.30 and 0.32",
        "scope": "a pool for each DP rank, read",
        "hit_definition": "tokens of full blocks, at most floor((n-1)/B), executed in 0.32",
        "max_num_batched_tokens": "8192 for a server on GPUs of at least 70 GiB (2048 otherwise), "
        "read in 0.33",
        "max_num_seqs": "256 (1024 on large GPUs), read in 0.33",
    },
    name="vllm-0.9",
    engine="vLLM",
    versions="0.9-0.11.1",
    block_size=16,
    publish=PublishPoint.SCHEDULE,
    keyless_freed=KeylessFreed.BACK,
    counting=Counting.LOOK_UP,
    readmission=Readmission.COUNTED,
    reserve_whole_prompt=False,
    lookahead=Lookahead.DROP_BLOCK,
)
_VLLM_0_12 = next_row(
    _VLLM_0_9,
    {"readmission": "preempted_queries and _hits are kept apart and not exported, executed 0.26"},
    name="vllm-0.12",
    versions="0.11.2-0.18",
    readmission=Readmission.HIDDEN,
)
_VLLM_0_19 = next_row(
    _VLLM_0_12,
    {"reserve_whole_prompt": "scheduler_reserve_full_isl is on by default, executed 0.19 to 0.33"},
    name="vllm-0.19",
    versions="0.19-0.23",
    reserve_whole_prompt=True,
)
_VLLM_0_24 = next_row(
    _VLLM_0_19,
    {"keyless_freed": "freed blocks without a key are put before all others, executed in 0.24"},
    name="vllm-0.24",
    versions="0.24-0.26",
    keyless_freed=KeylessFreed.FRONT,
)
_VLLM_0_27 = next_row(
    _VLLM_0_24,
    {"counting": "record_prefix_cache_stats is called once admitted, executed in 0.32 and 0.33"},
    name="vllm-0.27",
    versions="0.27-0.28",
    counting=Counting.ADMISSION,
)
_VLLM_0_29 = next_row(
    _VLLM_0_27,
    {
        "sparse_retention": "sliding-window and Mamba groups keep a prefix only when it was seen "
        "twice (prefix_cache_retention_interval 0), executed in 0.30, 0.32 and 0.33"
    },
    name="vllm-0.29",
    versions="0.29-0.30",
    sparse_retention=True,
)
_VLLM_0_31 = next_row(
    _VLLM_0_29,
    {
        "lone_ignores_threshold": "long_prefill_token_threshold cuts no prompt that is alone, "
        "executed in 0.31 to 0.33"
    },
    name="vllm-0.31",
    versions="0.31",
    lone_ignores_threshold=True,
)
_VLLM_0_32 = next_row(
    _VLLM_0_31,
    {"state_naming": "mamba_cache_mode align: _cache_partial_tail_block, executed in 0.32"},
    name="vllm-0.32",
    versions="0.32",
    state_naming=StateNaming.WHILE_HELD,
)
_VLLM_0_33 = next_row(
    _VLLM_0_32,
    {
        "lookahead": "without a KV connector a key includes the next token, executed in 0.33",
        "self_preemption": "the running requests after it are scheduled, executed in 0.33",
        "state_naming": "a state that has its name is not new, executed in 0.33",
    },
    name="vllm-0.33",
    versions="0.33",
    state_naming=StateNaming.ONCE,
    self_preemption=SelfPreemption.PASSED_OVER,
    lookahead=Lookahead.NEXT_TOKEN_KEY,
)
_ASCEND_0_23 = next_row(
    _VLLM_0_19,
    {
        "block_size": "128, forced with prefix caching or chunked prefill "
        "(utils.refresh_block_size), read in 0.23",
        **dict.fromkeys(
            ("keyless_freed", "counting", "readmission", "reserve_whole_prompt"),
            "the vLLM release it plugs into (0.23), read",
        ),
    },
    name="vllm-ascend-0.23",
    engine="vLLM-Ascend",
    versions="0.23",
    block_size=128,
)

LMCACHE = TierRules(name="external", unit_len=256, stores_output=False)
LMCACHE_NOTES = {
    "tiers": "chunk_size 256, whole chunks, save_decode_cache off; asked for what the device has "
    "not, the last token of a prompt found whole is computed again, read in 0.5.6; without limit "
    "here, local_cpu holds 5 GB by default",
}
_LMCACHE = next_row(
    _VLLM_0_33,
    LMCACHE_NOTES,
    name="lmcache",
    engine="vLLM + LMCache",
    versions="0.33 + 0.5.6",
    tiers=(LMCACHE,),
)

#: In order of versions.
VLLM_ROWS = (
    _VLLM_0_9, _VLLM_0_12, _VLLM_0_19, _VLLM_0_24, _VLLM_0_27, _VLLM_0_29, _VLLM_0_31, _VLLM_0_32,
    _VLLM_0_33,
)  # fmt: skip
ASCEND_ROWS = (_ASCEND_0_23,)
TIERED_ROWS = (_LMCACHE,)
