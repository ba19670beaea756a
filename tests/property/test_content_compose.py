"""Prompts keep their planned length and prefix, token for token, whatever the plan."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from content_samples import (
    LABELS,
    builtin_pool,
    builtin_tokenizer,
    columns_of,
    deepseek_tokenizer,
    gsm8k_file,
    plan_rows,
    prompt_text,
    text_frame,
)
from oracles import BlockCache
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import Corpus, load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.passages import SampleChoice, choose_passages
from prefixbench.content.pool import Pool, TextSource, build_pool
from prefixbench.content.template import Frame, make_frame
from prefixbench.content.tokenizer import Tokenizer

SEPARATORS = ("\n\n", " ", " | ", "\n---\n")

plan_and_separator = given(rows=plan_rows(), separator=st.sampled_from(SEPARATORS))


def composer_of(rows, separator="\n\n", *, natural=False, labels=LABELS, **more) -> Composer:
    frame = text_frame()
    return Composer(
        builtin_pool(separator), frame, columns_of(rows, frame, natural=natural), labels, **more
    )


@plan_and_separator
@settings(deadline=None, max_examples=60)
def test_every_prompt_encodes_to_its_planned_ids(rows, separator) -> None:
    composer = composer_of(rows, separator)
    for request, (_, input_len, _) in enumerate(rows):
        ids = composer.prompt_ids(request)
        assert len(ids) == input_len
        assert builtin_tokenizer().encode(prompt_text(composer, request), True) == ids.tolist()


@plan_and_separator
@settings(deadline=None, max_examples=40)
def test_the_planned_prefix_is_a_safe_cut_of_the_text(rows, separator) -> None:
    composer = composer_of(rows, separator)
    for request in range(len(rows)):
        prefix_len = int(composer.columns.planned_prefix_len[request])
        text = prompt_text(composer, request)[: composer.prefix_chars(request)]
        ids = composer.prompt_ids(request)[:prefix_len]
        assert builtin_tokenizer().encode(text, True) == ids.tolist()


@given(rows=plan_rows(longest=120, most=20), block=st.sampled_from([1, 3, 4, 16]))
@settings(deadline=None, max_examples=60)
def test_a_cache_finds_what_the_plan_says_and_nothing_else(rows, block) -> None:
    composer = composer_of(rows)
    cache = BlockCache(block)
    deepest: dict[int, int] = {}
    for request, (group, input_len, _) in enumerate(rows):
        planned = int(composer.columns.planned_prefix_len[request])
        known = max(deepest.get(group, 0), composer.frame.head_len if request else 0)
        expected = min(planned, known, input_len - 1) // block * block
        assert cache.serve(composer.prompt_ids(request).tolist()) == expected
        deepest[group] = max(deepest.get(group, 0), planned)


@given(rows=plan_rows(), order=st.randoms(use_true_random=False))
@settings(deadline=None, max_examples=20)
def test_content_depends_on_labels_alone(rows, order) -> None:
    whole = composer_of(rows)
    texts = [whole.prompt_json(request) for request in range(len(rows))]
    requests = list(range(len(rows)))
    order.shuffle(requests)
    other = pickle.loads(pickle.dumps(composer_of(rows)))
    assert {request: other.prompt_json(request) for request in requests} == dict(enumerate(texts))


@given(rows=plan_rows(), request=st.integers(0, 11), retry=st.integers(1, 8))
@settings(deadline=None, max_examples=30)
def test_a_retry_draws_one_request_anew_and_no_other(rows, request, retry) -> None:
    request %= len(rows)
    before = composer_of(rows)
    after = before.with_retries({request: retry})
    for number in range(len(rows)):
        same = before.prompt_json(number) == after.prompt_json(number)
        assert same == (number != request)
    prefix_len = int(before.columns.planned_prefix_len[request])
    assert (
        before.prompt_ids(request)[:prefix_len].tolist()
        == after.prompt_ids(request)[:prefix_len].tolist()
    )


@pytest.mark.parametrize("block", [4, 16])
@pytest.mark.parametrize(
    "other",
    [
        ContentLabels(seed=8, dataset_id="sample", plan="0.5"),
        ContentLabels(seed=7, dataset_id="example", plan="0.5"),
        ContentLabels(seed=7, dataset_id="sample", plan="0.6"),
    ],
    ids=["seed", "dataset_id", "plan"],
)
def test_two_data_sets_share_no_block(block: int, other: ContentLabels) -> None:
    rows = [
        (request % 4, 24 + request % 60, [0, 8, 17, 20][request // 4 % 4]) for request in range(400)
    ]
    first, second = composer_of(rows), composer_of(rows, labels=other)
    cache = BlockCache(block)
    for request in range(len(rows)):
        cache.serve(first.prompt_ids(request).tolist())
    known = set(cache.seen)
    assert known
    for request in range(len(rows)):
        ids = tuple(second.prompt_ids(request).tolist())
        assert not any(ids[:end] in known for end in range(block, len(ids) + 1, block))


@given(rows=plan_rows(longest=120, most=20))
@settings(deadline=None, max_examples=30)
def test_the_first_token_behind_the_prefix_is_unique_in_its_group(rows) -> None:
    composer = composer_of(rows)
    head_len = composer.frame.head_len
    seen: set[tuple[int, int]] = set()
    for request, (group, _, _) in enumerate(rows):
        prefix_len = int(composer.columns.planned_prefix_len[request])
        numbering = group if prefix_len > head_len else -1
        token = int(composer.prompt_ids(request)[prefix_len])
        assert (numbering, token) not in seen
        seen.add((numbering, token))


def test_requests_without_a_prefix_differ_across_groups() -> None:
    rows = [(number % 3, 12, 0) for number in range(3_000)]
    composer = composer_of(rows)
    head_len = composer.frame.head_len
    firsts = {int(composer.prompt_ids(number)[head_len]) for number in range(3_000)}
    assert len(firsts) == 3_000


def test_group_prefixes_differ_in_the_first_token_after_the_head() -> None:
    rows = [(group, 60, 40) for group in range(50)]
    composer = composer_of(rows)
    head_len = composer.frame.head_len
    firsts = {int(composer.master_ids(group)[head_len]) for group in range(50)}
    assert len(firsts) == 50


def test_no_sample_comes_twice_in_a_prompt_while_the_corpus_has_others() -> None:
    rows = [(request % 2, 3_000, [0, 700, 1_900][request % 3]) for request in range(60)]
    composer = composer_of(rows)
    assert composer.repeating_count == 0
    for request in range(len(rows)):
        samples = composer.sample_ids(request)
        assert len(samples) > 5
        assert len(set(samples)) == len(samples)


def test_a_suffix_stays_clear_of_its_prefix_in_a_small_corpus() -> None:
    """Forty samples hold two such prompts; one drawn blindly would meet its own prefix."""
    corpus = load_corpus("builtin", seed=0)
    small = TextSource(Corpus("small", corpus.texts[:40], "0" * 64))
    pool = build_pool(builtin_tokenizer(), small)
    frame = text_frame()
    columns = columns_of([(number % 3, 2_400, 1_200) for number in range(60)], frame)
    composer = Composer(pool, frame, columns, LABELS)
    assert pool.suffix_ring.token_count > 3_000
    assert composer.repeating_count == 0
    for number in range(60):
        samples = composer.sample_ids(number)
        assert len(set(samples)) == len(samples)


def test_groups_read_the_corpus_from_different_samples() -> None:
    composer = composer_of([(group, 400, 300) for group in range(8)])
    begins = {tuple(composer.prefix_sample_ids(group)[:2]) for group in range(8)}
    assert len(begins) == 8


def test_natural_text_may_begin_inside_a_sample() -> None:
    composer = composer_of([(0, 400, 300)] * 40, natural=True)
    starts = composer.recipes.column("ring_start") % len(composer.passages.suffix.ring)
    whole = set(composer.passages.suffix.ring.sample_starts.tolist())
    assert sum(start not in whole for start in starts.tolist()) > 20


def test_an_exhausted_corpus_is_said_and_the_text_stays_exact() -> None:
    whole = builtin_pool().suffix_ring.token_count
    composer = composer_of([(0, whole + 5_000, 2_000), (0, 500, 100)])
    assert composer.repeating_count == 1
    ids = composer.prompt_ids(0)
    assert len(ids) == whole + 5_000
    assert builtin_tokenizer().encode(prompt_text(composer, 0)) == ids.tolist()


@given(
    rows=plan_rows(longest=900),
    texts=st.integers(8, 40),
    prefix_texts=st.none() | st.integers(8, 40),
    named=st.sampled_from([(), (1,), (3, 2)]),
    mode=st.sampled_from(["concat", "sample"]),
)
@settings(deadline=None, max_examples=60)
def test_requests_that_repeat_a_sample_are_counted_exactly(
    rows, texts, prefix_texts, named, mode
) -> None:
    corpus = load_corpus("builtin", seed=0)
    sources = [
        None if count is None else TextSource(Corpus("few", corpus.texts[:count], str(count) * 32))
        for count in (texts, prefix_texts)
    ]
    pool = build_pool(builtin_tokenizer(), *sources)
    passages = choose_passages(pool, LABELS, SampleChoice(named, mode))
    frame = text_frame()
    composer = Composer(pool, frame, columns_of(rows, frame), LABELS, passages=passages)
    repeating = 0
    for request in range(len(rows)):
        prefix, suffix = composer.prefix_sample_ids(request), composer.suffix_sample_ids(request)
        parts = [prefix + suffix] if pool.shares_source else [prefix, suffix]
        repeating += any(len(set(part)) < len(part) for part in parts)
    assert composer.repeating_count == repeating


@given(rows=plan_rows(), mode=st.sampled_from(["concat", "sample"]), named=st.booleans())
@settings(deadline=None, max_examples=40)
def test_named_and_random_samples_stay_exact(rows, mode, named) -> None:
    pool = builtin_pool()
    choice = SampleChoice((5, 3, 11) if named else (), mode)
    prefix_choice = SampleChoice((8,) if named else ())
    passages = choose_passages(pool, LABELS, choice, prefix_choice)
    composer = composer_of(rows, passages=passages)
    for request in range(len(rows)):
        ids = composer.prompt_ids(request)
        assert builtin_tokenizer().encode(prompt_text(composer, request)) == ids.tolist()


@given(rows=plan_rows())
@settings(deadline=None, max_examples=30)
def test_natural_text_right_behind_the_prefix_stays_exact(rows) -> None:
    composer = composer_of(rows, natural=True).with_retries(
        np.arange(len(rows), dtype=np.int64) % 5
    )
    for request in range(len(rows)):
        ids = composer.prompt_ids(request)
        assert len(ids) == rows[request][1]
        assert builtin_tokenizer().encode(prompt_text(composer, request)) == ids.tolist()


@given(rows=plan_rows(longest=900), separator=st.sampled_from(["\n\n", " "]))
@settings(deadline=None, max_examples=15)
def test_prompts_of_a_real_tokenizer_and_corpus_stay_exact(rows, separator) -> None:
    tokenizer, pool, frame = deepseek_on_gsm8k(separator)
    composer = Composer(pool, frame, columns_of(rows, frame), LABELS)
    texts = [prompt_text(composer, request) for request in range(len(rows))]
    encoded = tokenizer.encode_batch(texts, add_special_tokens=True)
    assert encoded == [composer.prompt_ids(request).tolist() for request in range(len(rows))]
    assert [len(ids) for ids in encoded] == [input_len for _, input_len, _ in rows]


@cache
def deepseek_on_gsm8k(separator: str) -> tuple[Tokenizer, Pool, Frame]:
    corpus = load_corpus(gsm8k_file(), seed=0)
    some = Corpus(corpus.name, corpus.texts[:600], corpus.sha256)
    tokenizer = deepseek_tokenizer()
    pool = build_pool(tokenizer, TextSource(some, separator))
    return tokenizer, pool, make_frame(tokenizer)
