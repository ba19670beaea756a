"""Encodes composed prompts again and compares every id with what was planned."""

from __future__ import annotations

from typing import Any

import orjson

from prefixbench.config.dataset import PromptFormat
from prefixbench.content.compose import Composer
from prefixbench.dataset.materials import Materials, ServerView
from prefixbench.dataset.proof import Verification, VerifyDepth, chosen_places
from prefixbench.workload.planner import Plan

_BATCH = 64


def verify_texts(
    plan: Plan, composer: Composer, materials: Materials, depth: VerifyDepth
) -> Verification:
    """Compare ids of a sample, or of all prompts, with a fresh encoding of their texts."""
    prompt_format = plan.config.prompt_format
    view = ServerView(materials.tokenizer, prompt_format)
    chosen = chosen_places(plan.workload.request_count, depth)
    mismatches = 0
    for start in range(0, len(chosen), _BATCH):
        requests = plan.order[chosen[start : start + _BATCH]].tolist()
        encoded = view([_row(composer, request, prompt_format) for request in requests])
        mismatches += sum(
            ids != composer.prompt_ids(request).tolist()
            for request, ids in zip(requests, encoded, strict=True)
        )
    method = "certificate" if depth is VerifyDepth.CERTIFICATE else f"{depth}: encoded again"
    return Verification(method=method, prompts_checked=len(chosen), mismatches=mismatches)


def _row(composer: Composer, request: int, prompt_format: PromptFormat) -> dict[str, Any]:
    if prompt_format is PromptFormat.TOKEN_IDS:
        return {"prompt_token_ids": composer.prompt_ids(request).tolist()}
    text = orjson.loads(b'"' + composer.prompt_json(request) + b'"')
    if prompt_format is PromptFormat.CHAT:
        return {"messages": [{"role": "user", "content": text}]}
    return {"prompt": text}
