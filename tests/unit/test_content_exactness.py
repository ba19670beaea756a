"""Why texts stay exact: boundaries, the scan of a vocabulary, the guard of a pool."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson
import pytest

from content_samples import (
    builtin_tokenizer,
    columns_of,
    deepseek_tokenizer,
    gsm8k_file,
    prompt_text,
)
from prefixbench.content.atoms import Boundary, atoms_of, parse_separator
from prefixbench.content.certificate import require_exact_text, scan_vocabulary
from prefixbench.content.compose import Composer
from prefixbench.content.corpus import Corpus, load_corpus
from prefixbench.content.draws import ContentLabels
from prefixbench.content.pool import TextSource, build_pool, certify, warmup_filler
from prefixbench.content.template import make_frame
from prefixbench.content.tokenizer import Tokenizer
from prefixbench.core.errors import ConfigError, CorpusError, TokenizerError

WORDS = [f"{a}{b}{c}{d}" for a in "bdfg" for b in "ae" for c in "klmn" for d in "iou"]


def unigram(*extra_pieces: str) -> Tokenizer:
    """A tokenizer without a split at spaces, whose pieces may hold several words."""
    texts = [*"abcdefghijklmnopqrstuvwxyzTQ.,0123456789\n", "▁", "The", "▁The"]
    texts += [f"▁{word}" for word in WORDS]
    # Longer pieces score better, as a trained model has it.
    scored = [["<unk>", 0.0], *([text, -10.0 + len(text) / 10] for text in (*texts, *extra_pieces))]
    definition: dict[str, Any] = {
        "version": "1.0",
        "added_tokens": [],
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"},
            ],
        },
        "pre_tokenizer": None,
        "decoder": {"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
        "model": {"type": "Unigram", "unk_id": 0, "vocab": scored, "byte_fallback": False},
    }
    return Tokenizer.of(orjson.dumps(definition), name="toy")


def own_corpus(*texts: str) -> Corpus:
    return Corpus("own", texts, "0" * 64)


def long_text(start: int = 0) -> str:
    return "Then " + " ".join(WORDS[(start + place) % 60] for place in range(80)) + "."


def test_atoms_join_to_the_text_they_came_from() -> None:
    text = 'Ann has $5, 2/3 - 1  or "none".\nSo Bo\nwins'
    for separator in (" ", "\n\n", " | "):
        parsed = parse_separator(separator)
        atoms = atoms_of(text, parsed)
        assert "".join(atoms) == parsed.lead + text + parsed.tail
        for before, after in pairwise(atoms):
            word = (
                not before[-1].isspace()
                and after[0] == " "
                and after[1].isalnum() | (after[1] == "$")
            )
            line = before.endswith("\n") and not after[0].isspace()
            assert word or (line and parsed.boundary is Boundary.LINE)


def test_no_atom_begins_with_a_space_run_or_a_slash() -> None:
    text = "One\n/two\n  three\n\nfour  five 6"
    assert atoms_of(text, parse_separator("\n")) == [
        "One\n/two\n  three\n\n",
        "four  five",
        " 6\n",
    ]


@pytest.mark.parametrize("separator", ["", "---", "  ", "\n ", "\t", " |"])
def test_a_separator_without_a_safe_boundary_is_a_config_error(separator: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_separator(separator)
    assert caught.value.problems[0].path == "suffix.separator"


def test_a_separator_that_spells_a_special_token_is_a_config_error() -> None:
    source = TextSource(own_corpus(long_text()), "<|endoftext|>\n")
    with pytest.raises(ConfigError, match="spells an added token"):
        build_pool(builtin_tokenizer(), source)


def test_a_clean_vocabulary_passes_both_classes() -> None:
    for tokenizer in (builtin_tokenizer(), deepseek_tokenizer(), unigram()):
        certificate = scan_vocabulary(tokenizer)
        assert certificate.word.passed
        assert certificate.line.passed
        assert certificate.pieces_scanned > 100


@pytest.mark.parametrize("piece", ["the▁cat", "of▁", "a▁$", "x▁7"])
def test_a_vocabulary_that_joins_words_is_refused_by_name(piece: str) -> None:
    tokenizer = unigram(piece)
    certificate = scan_vocabulary(tokenizer)
    shown = piece.replace("▁", " ")
    assert certificate.word.offending_pieces == (shown,)
    assert certificate.to_json()["result"] == "fail"
    with pytest.raises(TokenizerError, match="joins text") as caught:
        require_exact_text(certificate)
    assert repr(shown) in caught.value.message
    assert "token_ids" in caught.value.hint
    with pytest.raises(TokenizerError):
        build_pool(tokenizer, TextSource(own_corpus(long_text())))


def test_a_vocabulary_that_joins_lines_only_fails_that_class() -> None:
    tokenizer = unigram("\nx")
    certificate = scan_vocabulary(tokenizer)
    assert certificate.word.passed
    assert not certificate.line.passed
    corpus = own_corpus(*(long_text(start) for start in range(3)))
    with pytest.raises(TokenizerError, match="line boundaries"):
        build_pool(tokenizer, TextSource(corpus, "\n\n"))
    assert build_pool(tokenizer, TextSource(corpus, " ")).suffix_ring.sample_count == 3


@pytest.mark.parametrize("separator", [" ", "\n\n"])
def test_a_tokenizer_without_word_splits_stays_exact(separator: str) -> None:
    """Sentence pieces: a dummy space before the text, and no split at spaces."""
    tokenizer = unigram("▁bake", "an")
    corpus = own_corpus(*(long_text(start) for start in range(9)))
    pool = build_pool(tokenizer, TextSource(corpus, separator))
    frame = make_frame(tokenizer)
    rows = [(number % 2, 30 + 11 * number, [0, 20, 25][number % 3]) for number in range(30)]
    composer = Composer(pool, frame, columns_of(rows, frame), ContentLabels())
    for number, (_, input_len, _) in enumerate(rows):
        ids = composer.prompt_ids(number).tolist()
        assert len(ids) == input_len
        assert tokenizer.encode(prompt_text(composer, number)) == ids


def test_white_space_that_splits_otherwise_at_the_end_stays_exact() -> None:
    """The built-in tokenizer reads two newlines as one token only where a text ends."""
    tokenizer = builtin_tokenizer()
    assert len(tokenizer.encode("\n\n")) == 1
    assert len(tokenizer.encode("\n\nThe")) == 3


def test_pieces_of_wide_spaces_are_no_offence() -> None:
    assert scan_vocabulary(unigram("\u3000▁", "\u00a0▁x")).word.passed


def test_a_refused_tokenizer_still_makes_prompts_of_ids() -> None:
    tokenizer = unigram("bake▁bako")
    corpus = own_corpus(*(long_text(start) for start in range(4)))
    pool = build_pool(tokenizer, TextSource(corpus), exact_text=False)
    frame = make_frame(tokenizer, "token_ids")
    columns = columns_of([(0, 90, 40), (0, 70, 40)], frame)
    composer = Composer(pool, frame, columns, ContentLabels())
    first, second = (composer.prompt_ids(request).tolist() for request in (0, 1))
    assert (len(first), len(second)) == (90, 70)
    assert first[:40] == second[:40]
    assert first[40] != second[40]


def test_texts_that_spell_an_added_token_are_dropped_and_counted() -> None:
    texts = [long_text(start) for start in range(5)]
    texts[2] += " <|endoftext|> more"
    pool = build_pool(builtin_tokenizer(), TextSource(own_corpus(*texts, "!!"), " "))
    (guard,) = pool.certificate.guards
    assert (guard.texts, guard.kept, guard.with_added_token, guard.without_boundary) == (6, 4, 1, 1)
    assert pool.suffix_ring.sample_ids.tolist() == [0, 1, 3, 4]


def test_texts_whose_ids_differ_from_their_atoms_are_dropped_and_counted() -> None:
    class Joining(Tokenizer):
        """Reads "over there" as one token, unseen by any scan of its vocabulary."""

        def encode_batch(self, texts: Any, add_special_tokens: bool = False) -> list[list[int]]:
            rows = super().encode_batch(texts, add_special_tokens)
            return [
                [*ids, 7] if " over there" in text else ids
                for ids, text in zip(rows, texts, strict=True)
            ]

    base = builtin_tokenizer()
    tokenizer = Joining(base.define, name="joining", fingerprint="joining")
    texts = [long_text(), long_text(5) + " It is over there now.", long_text(9)]
    (guard,) = build_pool(tokenizer, TextSource(own_corpus(*texts))).certificate.guards
    assert (guard.kept, guard.with_other_ids) == (2, 1)


def test_a_corpus_that_is_too_small_says_so() -> None:
    with pytest.raises(CorpusError, match="too small") as caught:
        build_pool(builtin_tokenizer(), TextSource(own_corpus("One line.")))
    assert caught.value.exit_code == 4


def test_the_certificate_counts_a_real_corpus() -> None:
    corpus = load_corpus(gsm8k_file(), seed=0)
    some = Corpus(corpus.name, corpus.texts[:800], corpus.sha256)
    certificate = certify(deepseek_tokenizer(), some)
    (guard,) = certificate.guards
    assert guard.texts == guard.kept == 800
    assert certificate.passed


def test_markers_occur_nowhere_else() -> None:
    pool = build_pool(builtin_tokenizer(), TextSource(load_corpus("builtin", seed=0)))
    words = pool.words
    sets = [
        set(words.group_markers.ids.tolist()),
        set(words.request_markers.ids.tolist()),
        set(words.fillers.ids.tolist()),
        {warmup_filler(pool).id},
    ]
    corpus = set(pool.suffix_ring.all_ids.tolist())
    for place, own in enumerate(sets):
        assert own
        assert not any(own & other for other in sets[place + 1 :])
    assert not (sets[0] | sets[1] | sets[3]) & corpus
