"""Record what vLLM's own scheduler does with draft tokens and with several KV groups.

Run by the Python of an environment that has vLLM; the recordings are `prefixbench-replay/1` with
two more settings, `draft_tokens` and `groups`:

    PREFIXBENCH_SHARED=../shared PYTHON tests/live/record_vllm_groups.py OUT --seed 1 --count 4

`--fill FILE ...` renews recordings in place instead. The scheduler is driven by the shared scripts;
no model runs, and no draft is ever proposed: what drafting changes here is where matches end and
how many slots a request holds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
from functools import reduce
from math import gcd, lcm
from pathlib import Path
from typing import Any

SHARED = Path(os.environ["PREFIXBENCH_SHARED"])
sys.path.insert(0, str(SHARED / "oracle"))

import make_goldens  # noqa: E402
import vllm_sched_oracle as oracle  # noqa: E402

Config = dict[str, Any]


class Drafting:
    """What the scheduler asks of a speculative configuration: EAGLE with so many draft tokens."""

    num_speculative_tokens_per_batch_size = None
    method = "eagle"
    disable_lookahead_block_hashes = False
    disable_eagle_block_drop = False
    max_num_new_slots_for_drafting = 0
    parallel_drafting = False

    def __init__(self, draft_tokens: int) -> None:
        self.num_speculative_tokens = draft_tokens

    def __getattr__(self, name: str) -> Any:
        if name.startswith(("use_", "uses_", "needs_")):
            return lambda: name in ("use_eagle", "use_eagle_block_drop", "needs_eagle_block_drop")
        raise AttributeError(name)


class PaddedError(Exception):
    """A step was padded with slots for drafts."""


class GroupEngine(oracle.Engine):
    """The shared driver around a scheduler that was built for these settings."""

    def __init__(self, config: Config) -> None:
        from vllm.utils.hashing import get_hash_fn_by_name
        from vllm.v1.core.kv_cache_utils import get_request_block_hasher, init_none_hash
        from vllm.v1.core.sched.scheduler import Scheduler
        from vllm.v1.structured_output import StructuredOutputManager

        settings = oracle.DEFAULTS | {"draft_tokens": 0, "groups": [{}]} | config
        sizes = [row.get("block_size", settings["block_size"]) for row in settings["groups"]]
        hash_block, block = reduce(gcd, sizes), lcm(*sizes)
        vllm_config = _vllm_config(settings, block)
        hash_function = get_hash_fn_by_name("sha256")
        init_none_hash(hash_function)
        ahead = getattr(vllm_config, "num_hash_lookahead_tokens", 0)
        hasher = get_request_block_hasher(hash_block, hash_function, *([ahead] if ahead else []))
        self._hasher = hasher if settings["enable_prefix_caching"] else None
        self.scheduler = Scheduler(
            vllm_config,
            _kv_config(settings, sizes),
            StructuredOutputManager(vllm_config),
            block_size=block,
            hash_block_size=hash_block,
            log_stats=True,
        )
        self.pool = self.scheduler.kv_cache_manager.block_pool
        self.number_of, self.lengths, self.seen = {}, {}, {}
        counters = ("queries", "hits", "preempted_queries", "preempted_hits", "preemptions")
        self.totals = dict.fromkeys((*counters, "evicted_blocks", "evicted_keys"), 0)
        self._preempted, self._step, self._evicted = [], 0, 0
        self._watch()
        self._refuse_padding()

    def _refuse_padding(self) -> None:
        """vLLM may pad a step with drafts where one token is left; here none is proposed."""
        schedule = self.scheduler.schedule

        def unpadded() -> Any:
            output = schedule()
            if output.scheduled_spec_decode_tokens:
                raise PaddedError
            return output

        self.scheduler.schedule = unpadded


def _vllm_config(settings: Config, block: int) -> Any:
    from vllm.config import CacheConfig, DeviceConfig, ModelConfig, SchedulerConfig, VllmConfig

    longest = settings["max_model_len"]
    model = ModelConfig(model=oracle._model_dir(), max_model_len=longest, skip_tokenizer_init=True)
    given = (
        "max_num_seqs", "max_num_batched_tokens", "max_model_len", "enable_chunked_prefill",
        "long_prefill_token_threshold", "policy",
    )  # fmt: skip
    scheduler = SchedulerConfig(
        **{name: settings[name] for name in given}, async_scheduling=False, is_encoder_decoder=False
    )
    cache = CacheConfig(block_size=block, enable_prefix_caching=settings["enable_prefix_caching"])
    cache.num_gpu_blocks = settings["usable_blocks"] + 1
    config = VllmConfig(
        model_config=model,
        scheduler_config=scheduler,
        cache_config=cache,
        device_config=DeviceConfig("cpu"),
    )
    config.cache_config.block_size = block
    if any(row.get("recurrent") for row in settings["groups"]):
        config.cache_config.mamba_cache_mode = "align"
    if settings["draft_tokens"]:
        object.__setattr__(config, "speculative_config", Drafting(settings["draft_tokens"]))
    return config


def _kv_config(settings: Config, sizes: list[int]) -> Any:
    import torch
    from vllm.v1.kv_cache_interface import (
        FullAttentionSpec,
        KVCacheConfig,
        KVCacheGroupSpec,
        MambaSpec,
        SlidingWindowSpec,
    )

    groups = []
    for number, (row, size) in enumerate(zip(settings["groups"], sizes, strict=True)):
        shape = {"block_size": size, "num_kv_heads": 1, "head_size": 32, "dtype": torch.bfloat16}
        spec = FullAttentionSpec(**shape)
        if row.get("window"):
            spec = SlidingWindowSpec(**shape, sliding_window=row["window"])
        if row.get("recurrent"):
            state = {"shapes": ((1,),), "dtypes": (torch.float32,), "mamba_cache_mode": "align"}
            spec = MambaSpec(block_size=size, **state)
        groups.append(KVCacheGroupSpec([f"layer{number}"], spec))
    config = KVCacheConfig(settings["usable_blocks"] + 1, [], groups)
    if hasattr(config, "prefix_cache_retention_interval"):
        # What the engine passes on by default from 0.29; without it the scheduler keeps all.
        config.prefix_cache_retention_interval = 0
    return config


# What is recorded: the workloads of the shared script, under other settings.


def drafting(draw: Any) -> tuple[Config, Any]:
    config, source = _some_workload(draw)
    room = config["usable_blocks"] + draw.choice([1, 2, 6])
    return config | {"draft_tokens": draw.choice([1, 1, 2, 5]), "usable_blocks": room}, source


def windows(draw: Any) -> tuple[Config, Any]:
    config, source = _some_workload(draw)
    block = config["block_size"]
    window = draw.choice([1, block, block + 1, 2 * block, 3 * block + 5, 10 * block])
    groups = draw.choice([
        [{}, {"window": window}],
        [{}, {"window": window}, {"window": window}],
        [{}, {"window": window}, {"window": 2 * window + 3}],
        [{}, {"window": window, "block_size": 2 * block}],
        [{"block_size": 4 * block}, {"window": window}],
        [{"window": window}],
        [{}, {}],
    ])  # fmt: skip
    sizes = [row.get("block_size", block) for row in groups]
    room = sum(-(-config["usable_blocks"] * block // size) + 1 for size in sizes)
    room = room if len(groups) > 1 else config["usable_blocks"]
    return config | {"groups": groups, "usable_blocks": room}, source


def _some_workload(draw: Any) -> tuple[Config, Any]:
    kinds = ("a-sequential", "b-concurrent", "c-multi-turn", "d-salt", "e-long-prefill",
             "g-priority", "h-groups")  # fmt: skip
    config, source = make_goldens.FAMILIES[draw.choice(kinds)](draw)
    return dict(config), source


def states(draw: Any) -> tuple[Config, Any]:
    config, source = _some_workload(draw)
    block = config["block_size"]
    groups = draw.choice([
        [{}, {"recurrent": True}],
        [{}, {"recurrent": True}, {"recurrent": True}],
        [{}, {"recurrent": True}, {"window": 2 * block}],
    ])  # fmt: skip
    room = config["usable_blocks"] * (2 if len(groups) > 2 else 1) + draw.choice([4, 10, 40])
    return config | {"groups": groups, "usable_blocks": room}, source


FAMILIES = {"k-drafting": drafting, "l-windows": windows, "m-states": states}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="+")
    parser.add_argument("--seed", default="1")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--fill", action="store_true")
    parser.add_argument("--families", default=",".join(FAMILIES))
    chosen = parser.parse_args()
    oracle.Engine = make_goldens.Engine = GroupEngine
    for path in chosen.out if chosen.fill else ():
        trace = json.loads(path.read_text())
        path.write_text(oracle.dumps(trace | {"expected": oracle.replay(trace)}))
    for name in () if chosen.fill else chosen.families.split(","):
        for number in range(chosen.count):
            _record(name, number, chosen.seed, chosen.out[0])
    return 0


def _record(name: str, number: int, seed: str, out: Path) -> None:
    import vllm

    out.mkdir(parents=True, exist_ok=True)
    for attempt in range(20):
        draw = make_goldens.Draw(seed, name, number, attempt)
        try:
            trace = make_goldens.record(*FAMILIES[name](draw))
        except PaddedError:
            continue
        trace["engine_version"] = os.environ.get("VLLM_VERSION") or vllm.__version__.split("+")[0]
        text = oracle.dumps(trace)
        if len(text) < make_goldens.MAX_FILE:
            (out / f"{name}-{number:03d}.json").write_text(text)
            return


if __name__ == "__main__":
    random.seed(0)
    sys.exit(main())
