"""The content stages of RFC 3.5.2, one group and one request at a time; and the sources."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from content_samples import LABELS, builtin_pool, builtin_tokenizer, columns_of, text_frame
from prefixbench.config.suffix import DataSourceConfig, SuffixGenerationConfig
from prefixbench.content.compose import Composer
from prefixbench.content.draws import ContentLabels
from prefixbench.content.passages import SampleChoice, choose_passages
from prefixbench.content.pool import build_pool
from prefixbench.content.sources import open_source, random_corpus
from prefixbench.content.stages import generate_master_prefixes, generate_request_suffix
from prefixbench.content.words import word_atoms
from prefixbench.core.errors import CorpusError
from prefixbench.core.records import PrefixGroupPlan, RequestPlan

BLOCK = 16


def request(number: int, group: str, input_len: int, prefix_len: int) -> RequestPlan:
    divergence = min(BLOCK, input_len - prefix_len)
    return RequestPlan(
        request_id=f"r{number}",
        prefix_group_id=group,
        input_len=input_len,
        planned_prefix_len=prefix_len,
        divergence_len=divergence,
        suffix_len=input_len - prefix_len - divergence,
        order_index=number,
    )


def group_plans() -> dict[str, PrefixGroupPlan]:
    requests = {
        "a": (request(0, "a", 90, 32), request(1, "a", 200, 150)),
        "b": (request(2, "b", 64, 48),),
        "c": (request(3, "c", 40, 1),),
    }
    return {
        name: PrefixGroupPlan(
            group_id=name,
            request_count=len(own),
            requests=own,
            master_prefix_len=max(row.planned_prefix_len for row in own),
        )
        for name, own in requests.items()
    }


def test_master_prefix_and_suffix_make_an_exact_prompt() -> None:
    tokenizer = builtin_tokenizer()
    masters = generate_master_prefixes(group_plans(), DataSourceConfig(), tokenizer, labels=LABELS)
    assert {name: len(ids) for name, ids in masters.items()} == {"a": 150, "b": 48, "c": 1}
    checked = 0
    for name, plan in group_plans().items():
        for row in plan.requests:
            suffix = generate_request_suffix(
                row, SuffixGenerationConfig(), tokenizer, labels=LABELS
            )
            ids = masters[name][: row.planned_prefix_len] + suffix.token_ids
            assert len(ids) == row.input_len
            assert tokenizer.encode(tokenizer.decode(ids)) == ids
            assert tokenizer.decode(suffix.token_ids) == suffix.text
            assert suffix.divergence_len + suffix.suffix_len == len(suffix.token_ids)
            checked += 1
    assert checked == 4


def test_the_public_stages_need_no_labels() -> None:
    tokenizer = builtin_tokenizer()
    masters = generate_master_prefixes(group_plans(), DataSourceConfig(), tokenizer)
    again = generate_master_prefixes(group_plans(), DataSourceConfig(), tokenizer)
    assert masters == again
    row = request(0, "a", 90, 32)
    first, other = (
        generate_request_suffix(row, SuffixGenerationConfig(), tokenizer, retry=retry)
        for retry in (0, 1)
    )
    assert first.token_ids[0] != other.token_ids[0]


def test_suffixes_of_many_requests_begin_differently() -> None:
    tokenizer = builtin_tokenizer()
    firsts = {
        generate_request_suffix(
            request(number, "a", 60, 20), SuffixGenerationConfig(), tokenizer
        ).token_ids[0]
        for number in range(200)
    }
    assert len(firsts) == 200


def samples_of(choice: SampleChoice, prefix: SampleChoice | None = None) -> Iterator[list[int]]:
    """Rows in the suffixes of six requests with room for about ten samples."""
    frame = text_frame()
    pool = builtin_pool()
    columns = columns_of([(0, 1_500, 400)] * 6, frame)
    passages = choose_passages(pool, LABELS, choice, prefix)
    composer = Composer(pool, frame, columns, LABELS, passages=passages)
    for number in range(6):
        yield composer.suffix_sample_ids(number)


def test_joined_samples_are_neighbours_from_a_drawn_one_on() -> None:
    drawn = list(samples_of(SampleChoice()))
    assert all(rows == list(range(rows[0], rows[0] + len(rows))) for rows in drawn)
    assert len({rows[0] for rows in drawn}) > 1


def test_random_samples_are_no_neighbours() -> None:
    for rows in samples_of(SampleChoice(mode="sample")):
        assert len(set(rows)) == len(rows)
        assert sum(second == first + 1 for first, second in pairwise(rows)) < 3


def test_named_samples_come_first_and_others_follow() -> None:
    drawn = list(samples_of(SampleChoice((40, 7))))
    assert all(rows[:2] == [40, 7] for rows in drawn)
    assert not any({40, 7} & set(rows[2:]) for rows in drawn)
    assert len({rows[2] for rows in drawn}) > 1


def test_named_samples_alone_are_read_in_a_cycle() -> None:
    for rows in samples_of(SampleChoice((40, 7), "sample")):
        assert len(rows) > 4
        assert rows == [(40, 7)[place % 2] for place in range(len(rows))]


def test_samples_named_for_the_prefix_are_not_in_the_suffix() -> None:
    passages = choose_passages(builtin_pool(), LABELS, SampleChoice((9,)), SampleChoice((3, 4)))
    assert passages.share_ring
    assert set(passages.suffix.ring.sample_ids.tolist()) == set(range(2_000)) - {3, 4, 9}
    for rows in samples_of(SampleChoice(), SampleChoice((3, 4))):
        assert not {3, 4} & set(rows)


def test_a_sample_that_does_not_exist_is_a_clear_refusal() -> None:
    with pytest.raises(CorpusError, match="sample 9999") as caught:
        choose_passages(builtin_pool(), LABELS, SampleChoice((9_999,)))
    assert caught.value.context.field == "suffix.sample_ids"


def test_random_text_is_made_of_single_tokens() -> None:
    tokenizer = builtin_tokenizer()
    source = open_source(DataSourceConfig(source="random"), tokenizer, seed=1)
    words = {atom.text for atom in word_atoms(tokenizer)}
    used = {f" {word}" for text in source.corpus.texts for word in text.split(" ")}
    assert used < words
    assert len(used) > len(words) // 3
    pool = build_pool(tokenizer, source)
    assert len(pool.words.request_markers) > len(words) // 4
    assert random_corpus(tokenizer, 2).sha256 != source.corpus.sha256


def test_own_text_is_read_from_its_path(tmp_path: Path) -> None:
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(f"Line {number} of my own text." for number in range(40)))
    config = DataSourceConfig(source="text", path=str(path), separator=" | ")
    source = open_source(config, builtin_tokenizer(), seed=0)
    assert (source.corpus.name, source.corpus.rows, source.separator) == ("own.txt", 40, " | ")
    assert open_source(config, builtin_tokenizer(), seed=0, corpus="builtin").corpus.rows == 2_000


def test_prefixes_and_suffixes_may_have_sources_of_their_own() -> None:
    tokenizer = builtin_tokenizer()
    own = open_source(DataSourceConfig(source="random"), tokenizer, seed=1)
    builtin = open_source(DataSourceConfig(source="builtin"), tokenizer, seed=1)
    pool = build_pool(tokenizer, builtin, own)
    assert not pool.shares_source
    frame = text_frame()
    columns = columns_of([(0, 600, 300), (1, 700, 300)], frame)
    composer = Composer(pool, frame, columns, ContentLabels())
    for number in range(2):
        text = tokenizer.decode(composer.prompt_ids(number))
        assert tokenizer.encode(text) == composer.prompt_ids(number).tolist()
        assert any(mark in text[composer.prefix_chars(number) :] for mark in "?.")
        assert not any(mark in text[: composer.prefix_chars(number)] for mark in "?.")


def test_a_long_atom_does_not_hold_up_the_text() -> None:
    """With a cut at every block, atoms longer than a block are passed over, not waited for."""
    frame = text_frame()
    rows = [(0, prefix_len + 20, prefix_len) for prefix_len in range(16, 2_016, 16)]
    pool = builtin_pool()
    composer = Composer(pool, frame, columns_of(rows, frame), LABELS)
    ids = composer.master_ids(0).tolist()
    fillers = set(pool.words.fillers.ids.tolist()) - set(pool.suffix_ring.all_ids.tolist())
    assert len(ids) == 2_000
    assert len(composer.prefix_sample_ids(len(rows) - 1)) > 10
    assert sum(token in fillers for token in ids) < 400


def test_chinese_text_is_cut_at_its_lines(tmp_path: Path) -> None:
    lines = [
        f"小明有{number}个苹果,小红又给了他{number + 2}个。\n他现在有多少个苹果?"
        for number in range(60)
    ]
    path = tmp_path / "own.txt"
    path.write_text("\n\n".join(lines))
    tokenizer = builtin_tokenizer()
    source = open_source(DataSourceConfig(source="text", path=str(path)), tokenizer, seed=0)
    pool = build_pool(tokenizer, source)
    frame = text_frame()
    rows = [(number % 2, 900 + number, [0, 300, 401, 550][number % 4]) for number in range(12)]
    composer = Composer(pool, frame, columns_of(rows, frame), LABELS)
    for number in range(12):
        ids = composer.prompt_ids(number).tolist()
        text = tokenizer.decode(ids)
        assert len(ids) == 900 + number
        assert tokenizer.encode(text) == ids
        assert "小明" in text
