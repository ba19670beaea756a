"""The table of engine profiles: one row a version range, each value with its source.

Words of the notes: *executed* means the engine's own scheduler, cache or server was run and
observed; *read* means read in its source; *documented* and *unverified* mean what they say.
Boundaries between vLLM rows were checked on every release in between: free order 0.23/0.24,
counting 0.26/0.27, sparse retention 0.28/0.29, EAGLE 0.32/0.33.
"""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.rules import (
    CacheKind,
    Counting,
    Duplicates,
    EngineProfile,
    EvictionUnit,
    KeylessFreed,
    LastToken,
    Lookahead,
    PartialBlock,
    PublishPoint,
    Readmission,
    Role,
    TouchOrder,
)

__all__ = ["EngineProfile", "get_profile", "profiles"]


def _row(notes: dict[str, str], **values: Any) -> EngineProfile:
    return EngineProfile(**values, notes=MappingProxyType(notes))


def _next(base: EngineProfile, notes: dict[str, str], **changes: Any) -> EngineProfile:
    """A row that differs from another one in what is given; other notes are inherited."""
    return replace(base, **changes, notes=MappingProxyType({**base.notes, **notes}))


_VLLM_0_9 = _row(
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
        "reserve_whole_prompt": "scheduler_reserve_full_isl exists from about 0.20 on, read",
        "mixed_steps": "one token budget for prefill and decode, executed in 0.18 to 0.33",
        "sparse_retention": "VLLM_PREFIX_CACHE_RETENTION_INTERVAL was unset by default, read",
        "lookahead": "EAGLE drops the last matched block, executed in 0.32",
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
_VLLM_0_12 = _next(
    _VLLM_0_9,
    {"readmission": "preempted_queries and _hits are kept apart and not exported, executed 0.26"},
    name="vllm-0.12",
    versions="0.11.2-0.19",
    readmission=Readmission.HIDDEN,
)
_VLLM_0_20 = _next(
    _VLLM_0_12,
    {"reserve_whole_prompt": "scheduler_reserve_full_isl is on by default, read; executed 0.32"},
    name="vllm-0.20",
    versions="0.20-0.23",
    reserve_whole_prompt=True,
)
_VLLM_0_24 = _next(
    _VLLM_0_20,
    {"keyless_freed": "freed blocks without a key are put before all others, executed in 0.24"},
    name="vllm-0.24",
    versions="0.24-0.26",
    keyless_freed=KeylessFreed.FRONT,
)
_VLLM_0_27 = _next(
    _VLLM_0_24,
    {"counting": "record_prefix_cache_stats is called once admitted, executed in 0.32 and 0.33"},
    name="vllm-0.27",
    versions="0.27-0.28",
    counting=Counting.ADMISSION,
)
_VLLM_0_29 = _next(
    _VLLM_0_27,
    {
        "sparse_retention": "sliding-window and Mamba groups keep a prefix only when it was seen "
        "twice (prefix_cache_retention_interval 0), executed in 0.33"
    },
    name="vllm-0.29",
    versions="0.29-0.31",
    sparse_retention=True,
)
_VLLM_0_32 = _next(_VLLM_0_29, {}, name="vllm-0.32", versions="0.32")
_VLLM_0_33 = _next(
    _VLLM_0_32,
    {"lookahead": "without a KV connector a key includes the next token, executed in 0.33"},
    name="vllm-0.33",
    versions="0.33",
    lookahead=Lookahead.NEXT_TOKEN_KEY,
)
_ASCEND_0_23 = _next(
    _VLLM_0_20,
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
_SGLANG_0_5 = _row(
    {
        "block_size": "page size 1; 64 or 128 with some attention backends, read in 0.5.23",
        "last_token": "a prompt is matched without its last token, executed in 0.5.23",
        "partial_block": "with pages above 1 only whole pages match, executed in 0.5.23",
        "publish": "after prefill, in result processing; with the overlap loop visible two "
        "batches later, read in 0.5.23",
        "keyless_freed": "tokens of an unfilled page go back at once, read in 0.5.23",
        "eviction": "whole unlocked leaves, executed in 0.5.23",
        "touch_order": "a leaf goes whole, a trunk after its leaves, executed in 0.5.23",
        "duplicates": "the tree holds a content once, a second copy is freed, executed in 0.5.23",
        "counting": "cached tokens are logged at admission, read in 0.5.23",
        "readmission": "matches again, not counted again, read in 0.5.23",
        "reserve_whole_prompt": "extend + up to 4096 output tokens + a page must fit, read in "
        "0.5.23",
        "mixed_steps": "a step prefills or decodes, read in 0.5.23 (mixed chunks are an option)",
        "lookahead": "EAGLE keys are pairs of tokens, read in 0.5.23",
        "scope": "a tree for each DP rank, read in 0.5.23",
        "hit_definition": "matched tokens of at most n-1, executed in 0.5.23",
        "max_num_batched_tokens": "max_prefill_tokens 16384, in chunks of chunked_prefill_size "
        "8192 (2048 to 16384 by GPU memory), read in 0.5.23",
        "max_num_seqs": "by memory; a round number for want of a constant, unverified",
    },
    name="sglang-0.5",
    engine="SGLang",
    versions="0.5",
    cache=CacheKind.TREE,
    block_size=1,
    partial_block=PartialBlock.OCCUPIES,
    publish=PublishPoint.RESULT,
    keyless_freed=KeylessFreed.AT_ONCE,
    eviction=EvictionUnit.LEAF,
    touch_order=TouchOrder.WHOLE,
    duplicates=Duplicates.SHARED,
    readmission=Readmission.NOT_COUNTED,
    mixed_steps=False,
    lookahead=Lookahead.BIGRAM_KEY,
    max_num_batched_tokens=8192,
)
_MINDIE = _row(
    {
        "block_size": "cacheBlockSize 128 by default, documented",
        "last_token": "the metric walks floor(n/B) blocks without a cap, read",
        "partial_block": "only full blocks are hashed, read",
        "publish": "MarkBlocksAsComputed at the end of the round that allocated them: twins of "
        "one round do not hit, read",
        "keyless_freed": "blocks that never had a key are used first, read",
        "eviction": "priority queue on last access, then depth, read",
        "touch_order": "at equal access the deeper block goes first, read",
        "duplicates": "twins of one round share storage, read; here each keeps its own copy",
        "counting": "at schedule, read",
        "readmission": "counted like the first, read",
        "reserve_whole_prompt": "unverified",
        "mixed_steps": "unverified",
        "lookahead": "unverified",
        "scope": "a cache for each DP rank, read",
        "hit_definition": "tokens of full blocks, no last-token cap, read",
        "max_num_batched_tokens": "maxPrefillTokens 8192, documented",
        "max_num_seqs": "maxBatchSize 200, documented",
    },
    name="mindie",
    engine="MindIE-LLM",
    versions="commit 0695772",
    block_size=128,
    last_token=LastToken.MAY_HIT,
    publish=PublishPoint.ROUND_END,
    keyless_freed=KeylessFreed.FRONT,
    readmission=Readmission.COUNTED,
    max_num_seqs=200,
)
_NANO_VLLM = _row(
    {
        "block_size": "kvcache_block_size 256, multiples of 256 only, read in bb823b3",
        "last_token": "blocks 0 to num_blocks-2 are matched, read in bb823b3",
        "partial_block": "only full blocks are hashed, read in bb823b3",
        "publish": "in postprocess, after the step, read in bb823b3",
        "keyless_freed": "one FIFO of free blocks, freed in reverse, read in bb823b3",
        "eviction": "single blocks, read in bb823b3",
        "touch_order": "freed in reverse, read in bb823b3",
        "duplicates": "the last writer owns the map; overwriting counts as an eviction only while "
        "the map points at the block, read in bb823b3",
        "counting": "left to user code; here once a request, at its first allocation",
        "readmission": "left to user code; here not counted",
        "reserve_whole_prompt": "can_allocate asks for the whole prompt, read in bb823b3",
        "mixed_steps": "a prefill step contains no decode, read in bb823b3",
        "lookahead": "no speculation, read in bb823b3",
        "scope": "one pool, read in bb823b3",
        "hit_definition": "usually hit blocks / (num_blocks - 1); tokens stand beside it",
        "max_num_batched_tokens": "Config.max_num_batched_tokens 16384, read in bb823b3",
        "max_num_seqs": "Config.max_num_seqs 512, read in bb823b3",
    },
    name="nano-vllm",
    engine="nano-vLLM",
    versions="bb823b3",
    block_size=256,
    publish=PublishPoint.STEP_END,
    keyless_freed=KeylessFreed.BACK,
    duplicates=Duplicates.LAST_WRITER,
    counting=Counting.CALLER,
    readmission=Readmission.NOT_COUNTED,
    mixed_steps=False,
    hit_definition="full_blocks",
    max_num_batched_tokens=16384,
    max_num_seqs=512,
)
_LLAMACPP = _row(
    {
        "block_size": "token by token, executed",
        "last_token": "the same 100-token prompt hits 99, executed",
        "partial_block": "60 shared tokens of 100 hit 60, executed",
        "publish": "a slot keeps what its last request computed, executed",
        "keyless_freed": "there are no blocks",
        "eviction": "the least recently used slot is overwritten, executed",
        "touch_order": "a slot is cut where the new prompt leaves the old one, executed",
        "duplicates": "two slots may hold the same prompt, executed",
        "counting": "cache_n of each answer, executed",
        "readmission": "no preemption",
        "scope": "the slots of one server, executed",
        "hit_definition": "tokens, at most n-1, executed",
        "max_num_batched_tokens": "n_batch 2048, documented",
        "max_num_seqs": "n_parallel slots; 4, documented",
    },
    name="llamacpp",
    engine="llama.cpp",
    versions="xllamacpp 2026.10",
    cache=CacheKind.SLOTS,
    block_size=1,
    partial_block=PartialBlock.HITS,
    publish=PublishPoint.STEP_END,
    keyless_freed=KeylessFreed.AT_ONCE,
    eviction=EvictionUnit.SLOT,
    touch_order=TouchOrder.WHOLE,
    readmission=Readmission.NOT_COUNTED,
    reserve_whole_prompt=False,
    max_num_batched_tokens=2048,
    max_num_seqs=4,
)
_TRTLLM = _row(
    {
        "block_size": "tokens_per_block 32, documented",
        "last_token": "at least one token is computed, documented",
        "partial_block": "enable_partial_reuse copies the matching part of a block, documented",
        "publish": "a block is reusable once it is filled, documented",
        "keyless_freed": "unverified",
        "eviction": "by priority, then least recently used, documented",
        "touch_order": "leaves of the block tree first, documented",
        "duplicates": "unverified",
        "counting": "unverified",
        "readmission": "unverified",
        "reserve_whole_prompt": "GUARANTEED_NO_EVICT reserves to completion, documented",
        "scope": "a pool for each rank, documented",
        "hit_definition": "tokens, partial blocks included, documented",
        "max_num_batched_tokens": "max_num_tokens 8192, documented",
        "max_num_seqs": "max_batch_size 2048, documented",
    },
    name="trtllm",
    engine="TensorRT-LLM",
    versions="documentation of 1.x",
    block_size=32,
    partial_block=PartialBlock.HITS,
    publish=PublishPoint.STEP_END,
    keyless_freed=KeylessFreed.FRONT,
    max_num_seqs=2048,
)
_LMDEPLOY = _row(
    {
        "block_size": "cache_block_seq_len 64; prefix caching is off by default, read in 1263d5cd8",
        "last_token": "at least one token is computed, read in 1263d5cd8",
        "partial_block": "the PyTorch trie matches full blocks; TurboMind's also reuses a partial "
        "last block, read in 1263d5cd8",
        "publish": "after the step, unverified",
        "keyless_freed": "unverified",
        "eviction": "leaves of the trie, read in 1263d5cd8",
        "duplicates": "the trie holds a content once, read in 1263d5cd8",
        "counting": "unverified",
        "readmission": "unverified",
        "scope": "a trie for each rank, read in 1263d5cd8",
        "hit_definition": "tokens of full blocks, read in 1263d5cd8",
        "max_num_batched_tokens": "max_prefill_token_num 8192, read in 1263d5cd8",
        "max_num_seqs": "max_batch_size 256 on large GPUs, documented",
    },
    name="lmdeploy",
    engine="LMDeploy",
    versions="1263d5cd8",
    block_size=64,
    publish=PublishPoint.STEP_END,
    keyless_freed=KeylessFreed.FRONT,
)
_LMCACHE = _row(
    {
        "block_size": "chunk_size 256, read in 0.5.6",
        "partial_block": "whole chunks only, read in 0.5.6",
        "publish": "stored after the engine computed a chunk, read in 0.5.6",
        "counting": "queries are the tokens that missed in the engine's own cache, read in 0.5.6",
        "scope": "shared by the instances that are connected to it, documented",
    },
    name="lmcache",
    engine="LMCache",
    versions="0.5.6",
    cache=CacheKind.TIER,
    block_size=256,
    publish=PublishPoint.STEP_END,
    keyless_freed=KeylessFreed.AT_ONCE,
)
_IDEAL = _row(
    {
        "block_size": "vLLM's default; published figures name their own",
        "last_token": "no cap: an identical prompt hits whole, by definition",
        "partial_block": "by definition",
        "publish": "by definition",
        "touch_order": "by definition; what vLLM does",
    },
    name="ideal",
    engine="none",
    versions="-",
    block_size=16,
    last_token=LastToken.MAY_HIT,
    partial_block=PartialBlock.NO_ROOM,
    publish=PublishPoint.SCHEDULE,
    keyless_freed=KeylessFreed.AT_ONCE,
    hit_definition="full_blocks",
)

_VLLM_ROWS = (
    _VLLM_0_9, _VLLM_0_12, _VLLM_0_20, _VLLM_0_24, _VLLM_0_27, _VLLM_0_29, _VLLM_0_32, _VLLM_0_33,
)  # fmt: skip
_ROWS = (
    _IDEAL, *_VLLM_ROWS, _ASCEND_0_23, _SGLANG_0_5, _MINDIE, _NANO_VLLM, _LLAMACPP, _LMCACHE,
    _TRTLLM, _LMDEPLOY,
)  # fmt: skip
_ROLES = {"": Role.WHOLE, "prefill": Role.PREFILL, "decode": Role.DECODE}


def profiles() -> tuple[EngineProfile, ...]:
    """All rows of the table; a vLLM row stands for every version in its range."""
    return _ROWS


def get_profile(name: str) -> EngineProfile:
    """The profile of this name; `vllm-0.N` for every N from 9 to 33, `NAME:prefill`, `NAME:decode`.

    >>> get_profile("vllm-0.26").counting.value
    'at every look-up'
    >>> get_profile("vllm-0.33:decode").role.value
    "decode: the prompt's KV is handed over"
    """
    base_name, _, role = name.partition(":")
    row = _vllm_row(base_name) or next((row for row in _ROWS if row.name == base_name), None)
    if row is None or role not in _ROLES:
        raise _unknown(name)
    return replace(row, name=name, role=_ROLES[role])


def _vllm_row(name: str) -> EngineProfile | None:
    """The newest vLLM row that is not newer than the named version."""
    minor = name.removeprefix("vllm-0.")
    if minor == name or not minor.isdecimal() or not 9 <= int(minor) <= 33:
        return None
    older = [row for row in _VLLM_ROWS if int(row.name.removeprefix("vllm-0.")) <= int(minor)]
    return older[-1]


def _unknown(name: str) -> ConfigError:
    names = [row.name for row in _ROWS]
    nearest = get_close_matches(name, names, n=1)
    return ConfigError(
        f"no engine profile is named {name!r}",
        context=ErrorContext(stage=Stage.CONFIG, field="engine_profile"),
        hint=f"did you mean {nearest[0]}?" if nearest else f"one of {', '.join(names)}",
    )
