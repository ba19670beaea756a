"""The content stages one by one, with the signatures of RFC 3.5.2.

The pipeline composes whole data sets (`compose`); these functions serve whoever plans requests
in another way and wants the ids of one group or one request. They speak of text prompts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from prefixbench.config.suffix import DataSourceConfig, SuffixGenerationConfig, SuffixMode
from prefixbench.content.compose import Composer
from prefixbench.content.draws import ContentLabels
from prefixbench.content.passages import SampleChoice, choose_passages
from prefixbench.content.pool import Pool, build_pool
from prefixbench.content.recipes import ContentColumns
from prefixbench.content.sources import open_source
from prefixbench.content.tape import unescape
from prefixbench.content.template import Frame, make_frame
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.core.records import PrefixGroupPlan, RequestPlan

_NO_LABELS = ContentLabels()


@dataclass(frozen=True, slots=True, kw_only=True)
class SuffixGenerationResult:
    """What follows the planned prefix of one request: divergence block, natural text, tail."""

    request_id: str
    token_ids: list[int]
    text: str
    divergence_len: int
    suffix_len: int
    sample_ids: tuple[int, ...]
    retry: int


def generate_master_prefixes(
    groups: Mapping[str, PrefixGroupPlan],
    data_source: DataSourceConfig,
    tokenizer: TokenizerProtocol,
    *,
    labels: ContentLabels = _NO_LABELS,
) -> dict[str, list[int]]:
    """Ids of each group's master prefix from token 0 (head included), `master_prefix_len` long.

    The planned prefix lengths of the group's requests are safe places to cut it.
    """
    pool = _pool_of(tokenizer, data_source, labels.seed)
    frame = make_frame(tokenizer)
    rows = [
        (number, prefix_len)
        for number, plan in enumerate(groups.values())
        for prefix_len in {plan.master_prefix_len, *(r.planned_prefix_len for r in plan.requests)}
        if prefix_len <= plan.master_prefix_len
    ]
    prefix_lens = np.array([max(length, frame.head_len) for _, length in rows], dtype=np.int64)
    columns = ContentColumns(
        group=np.array([number for number, _ in rows], dtype=np.int64),
        input_len=prefix_lens + frame.tail_len + 1,
        planned_prefix_len=prefix_lens,
        divergence_len=np.ones(len(rows), dtype=np.int64),
        group_ids=list(groups),
    )
    composer = _composer(pool, frame, columns, labels, data_source)
    return {
        group_id: composer.master_ids(number)[: plan.master_prefix_len].tolist()
        for number, (group_id, plan) in enumerate(groups.items())
    }


def generate_request_suffix(
    request: RequestPlan,
    config: SuffixGenerationConfig,
    tokenizer: TokenizerProtocol,
    *,
    labels: ContentLabels = _NO_LABELS,
    retry: int = 0,
) -> SuffixGenerationResult:
    """Ids and text of one request from its planned prefix to its end.

    `order_index` numbers the request in its data set: with it the divergence block is unique.
    """
    pool = _pool_of(tokenizer, config, labels.seed)
    frame = make_frame(tokenizer)
    prefix_len = max(request.planned_prefix_len, frame.head_len)
    columns = ContentColumns(
        group=np.zeros(1, dtype=np.int64),
        input_len=np.array([request.input_len], dtype=np.int64),
        planned_prefix_len=np.array([prefix_len], dtype=np.int64),
        divergence_len=np.array([request.divergence_len], dtype=np.int64),
        group_ids=[request.prefix_group_id],
        request=np.array([request.order_index], dtype=np.int64),
    )
    composer = _composer(pool, frame, columns, labels, config, retry=retry)
    return SuffixGenerationResult(
        request_id=request.request_id,
        token_ids=composer.prompt_ids(0)[prefix_len:].tolist(),
        text=unescape(composer.prompt_json(0))[composer.prefix_chars(0) :],
        divergence_len=request.divergence_len,
        suffix_len=request.input_len - prefix_len - request.divergence_len,
        sample_ids=tuple(composer.suffix_sample_ids(0)),
        retry=retry,
    )


def _composer(
    pool: Pool,
    frame: Frame,
    columns: ContentColumns,
    labels: ContentLabels,
    config: DataSourceConfig,
    retry: int = 0,
) -> Composer:
    if isinstance(config, SuffixGenerationConfig):
        choices = {"suffix": SampleChoice(config.sample_ids, config.mode)}
    else:
        choices = {"prefix": SampleChoice(config.sample_ids, SuffixMode.CONCAT)}
    return Composer(
        pool,
        frame,
        columns,
        labels,
        passages=choose_passages(pool, labels, **choices),
        retries=np.full(len(columns), retry, dtype=np.int64),
    )


def _pool_of(tokenizer: TokenizerProtocol, config: DataSourceConfig, seed: int) -> Pool:
    # Only these fields decide about the pool; which samples are read does not.
    source = DataSourceConfig(source=config.source, path=config.path, separator=config.separator)
    return _build_pool(tokenizer, source, seed)


@lru_cache(maxsize=4)
def _build_pool(tokenizer: TokenizerProtocol, config: DataSourceConfig, seed: int) -> Pool:
    return build_pool(tokenizer, open_source(config, tokenizer, seed=seed))
