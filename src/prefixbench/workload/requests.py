"""The requests of a configuration: lengths, groups and turns, before anything is planned."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.lengths import LengthDistributionConfig
from prefixbench.workload.columns import IntArray, Workload
from prefixbench.workload.groups import assign_groups, group_weights
from prefixbench.workload.lengths import draw_lengths, refuse_beyond_context
from prefixbench.workload.sessions import grow, session_count


class DrawLengths(Protocol):
    """Draws one length a request, as `lengths.draw_lengths` does."""

    def __call__(
        self,
        config: LengthDistributionConfig,
        request_count: int,
        seed: int,
        *,
        purpose: str = ...,
        shortest: int = ...,
    ) -> IntArray: ...


def draw_workload(
    config: PrefixCacheDatasetConfig, shortest: int, draw: DrawLengths = draw_lengths
) -> Workload:
    """Lengths and groups of all requests; no prompt is below `shortest` tokens."""
    count, seed = config.request_count, config.seed
    sessions = None if config.sessions is None else session_count(count, config.sessions.turns)
    input_len = draw(config.input_length, sessions or count, seed, shortest=shortest)
    output_len = draw(config.output_length, count, seed, purpose="output_length")
    group = assign_groups(config.prefix, sessions or count, seed)
    history_len = None
    if config.sessions is not None:
        new_len = draw(config.sessions.new_tokens, count, seed, purpose="sessions.new_tokens")
        turns = grow(input_len, new_len, output_len, config.sessions.answers)
        input_len, history_len = turns.input_len, turns.history_len
        group = np.resize(group, count)
    refuse_beyond_context(input_len, output_len, config.max_model_len)
    return Workload(
        input_len=input_len,
        output_len=output_len,
        group=group,
        group_ids=config.prefix.group_ids,
        group_weights=group_weights(config.prefix),
        session_count=sessions,
        history_len=history_len,
    )
