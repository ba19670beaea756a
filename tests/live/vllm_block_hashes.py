"""What a real vLLM calls its blocks: run by the Python of an environment that has vLLM.

    PYTHON tests/live/vllm_block_hashes.py > tests/golden/data/block_hashes_vllm.json

Every case is hashed by vLLM's own request hasher; the plain one is also stored by its block
manager, and the ids that its KV events publish are taken down. Checked with vLLM 0.32.0 (CPU).
"""

from __future__ import annotations

import json
import os
import sys
from importlib.metadata import version
from typing import Any

os.environ.update(VLLM_LOGGING_LEVEL="ERROR", VLLM_NO_USAGE_STATS="1", HF_HUB_OFFLINE="1")

BLOCK_SIZE = 4
SEEDS = {"sha256": None, "sha256_cbor": None, "xxhash": "7", "xxhash_cbor": "7"}
TOKENS = [1, 2, 3, 300, 70_000, 5, 6, 2_147_483_648, 9, 10, 11, 12, 13]
CASES: dict[str, dict[str, Any]] = {
    "plain": {},
    "salt": {"cache_salt": "tenant-a"},
    "adapter": {"lora": ["support", "/adapters/support"]},
    "images": {"items": [["image-one", 2, 3], ["image-two", 6, 5]]},
    "embeddings": {"prompt_embeds": True},
    "everything": {
        "cache_salt": "tenant-a",
        "lora": ["support", "/adapters/support"],
        "items": [["image-one", 2, 3], ["image-two", 6, 5]],
        "prompt_embeds": True,
    },
}


def main() -> None:
    import hashlib

    import torch
    from vllm.lora.request import LoRARequest
    from vllm.multimodal.inputs import MultiModalFeatureSpec, PlaceholderRange
    from vllm.sampling_params import SamplingParams
    from vllm.utils.hashing import get_hash_fn_by_name
    from vllm.v1.core import kv_cache_utils
    from vllm.v1.core.kv_cache_manager import KVCacheManager
    from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
    from vllm.v1.request import Request

    embeds = torch.arange(len(TOKENS) * 2, dtype=torch.float32).reshape(len(TOKENS), 2)

    def request(case: dict[str, Any], hasher: Any) -> Any:
        sampling = SamplingParams(max_tokens=1)
        sampling.update_from_generation_config({}, 0)
        lora = case.get("lora")
        return Request(
            request_id="r",
            prompt_token_ids=list(TOKENS),
            sampling_params=sampling,
            pooling_params=None,
            prompt_embeds=embeds if case.get("prompt_embeds") else None,
            cache_salt=case.get("cache_salt"),
            lora_request=LoRARequest(lora[0], 1, lora[1]) if lora else None,
            mm_features=[
                MultiModalFeatureSpec(None, "image", name, PlaceholderRange(offset, length))
                for name, offset, length in case.get("items", [])
            ],
            block_hasher=hasher,
        )

    def published(one: Any) -> list[int]:
        spec = FullAttentionSpec(
            block_size=BLOCK_SIZE, num_kv_heads=1, head_size=32, dtype=torch.bfloat16
        )
        config = KVCacheConfig(8, [], [KVCacheGroupSpec(["layer"], spec)])
        manager = KVCacheManager(config, 64, BLOCK_SIZE, BLOCK_SIZE, enable_kv_cache_events=True)
        manager.get_computed_blocks(one)
        manager.allocate_slots(one, len(TOKENS))
        return [key for event in manager.take_events() for key in event.block_hashes]

    rows = []
    for algorithm, seed in SEEDS.items():
        os.environ.pop("PYTHONHASHSEED", None)
        if seed is not None:
            os.environ["PYTHONHASHSEED"] = seed
        hash_function = get_hash_fn_by_name(algorithm)
        kv_cache_utils.init_none_hash(hash_function)
        hasher = kv_cache_utils.get_request_block_hasher(BLOCK_SIZE, hash_function)
        for name, case in CASES.items():
            one = request(case, hasher)
            row = {"algorithm": algorithm, "hash_seed": seed, "case": name, **case}
            row["none_hash"] = kv_cache_utils.NONE_HASH.hex()
            row["hashes"] = [digest.hex() for digest in one.block_hashes]
            if case.get("prompt_embeds"):
                starts = range(0, len(TOKENS) - BLOCK_SIZE + 1, BLOCK_SIZE)
                parts = [embeds[start : start + BLOCK_SIZE].numpy().tobytes() for start in starts]
                row["prompt_embeds"] = [hashlib.sha256(part).hexdigest() for part in parts]
            if name == "plain":
                row["event_ids"] = published(one)
            rows.append(row)
    document = {"vllm": version("vllm"), "block_size": BLOCK_SIZE, "tokens": TOKENS, "rows": rows}
    json.dump(document, sys.stdout, indent=1)


if __name__ == "__main__":
    main()
