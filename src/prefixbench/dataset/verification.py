"""Encodes composed prompts again and compares every id with what was planned."""

from __future__ import annotations

import numpy as np

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.compose import Composer
from prefixbench.content.tape import Positions
from prefixbench.dataset.materials import Materials
from prefixbench.dataset.members import whole_rows
from prefixbench.dataset.proof import Verification, VerifyDepth, chosen_places
from prefixbench.dataset.server_view import ServerView
from prefixbench.workload.planner import Plan

_BATCH = 64


def verify_texts(
    plan: Plan, composer: Composer, materials: Materials, depth: VerifyDepth
) -> Verification:
    """Compare ids of a sample, or of all prompts, with a fresh encoding of their texts.

    All of them are encoded by a fast engine, where one is installed that agrees on the sample.
    """
    if depth is VerifyDepth.CERTIFICATE:
        return Verification(
            method="certificate", prompts_checked=0, mismatches=0, prompts_by_engine={}
        )
    prompt_format = plan.config.prompt_format
    view = ServerView(materials.tokenizer, prompt_format)
    requests = plan.order[chosen_places(plan.workload.request_count, depth)]
    if depth is VerifyDepth.FULL:
        sample = plan.order[chosen_places(plan.workload.request_count, VerifyDepth.SAMPLE)]
        view.try_fast_engine(whole_rows(composer.batch(sample), prompt_format))
    mismatches = sum(
        _mismatches(composer, view, requests[start : start + _BATCH], prompt_format)
        for start in range(0, len(requests), _BATCH)
    )
    return Verification(
        method=f"{depth}: encoded again",
        prompts_checked=len(requests),
        mismatches=mismatches,
        prompts_by_engine=view.prompts_by_engine,
    )


def _mismatches(
    composer: Composer, view: ServerView, requests: Positions, prompt_format: PromptFormat
) -> int:
    batch = composer.batch(requests)
    pairs = zip(view(whole_rows(batch, prompt_format)), batch.ids(), strict=True)
    return sum(not np.array_equal(encoded, planned) for encoded, planned in pairs)
