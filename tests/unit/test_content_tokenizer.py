"""Tokenizers: the built-in one, files and folders, special tokens, refusals."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from content_samples import builtin_tokenizer, deepseek_tokenizer
from prefixbench.content.tokenizer import BuiltinTokenizer, TokenizerProtocol, load_tokenizer
from prefixbench.content.vocabulary import builtin_vocabulary
from prefixbench.content.words import opening_words, word_atoms
from prefixbench.core.errors import TokenizerError

BOS, EOS = "<s>", "</s>"


def small_definition(**changes: Any) -> dict[str, Any]:
    """A word-level tokenizer with BOS and EOS tokens that its post-processor does not add."""
    vocab = {word: number for number, word in enumerate(["[UNK]", "The", "cat", BOS, EOS])}
    added = [
        {
            "id": vocab[text],
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
        for text in (BOS, EOS)
    ]
    return {
        "version": "1.0",
        "added_tokens": added,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "WordLevel", "vocab": vocab, "unk_token": "[UNK]"},
    } | changes


def bos_template() -> dict[str, Any]:
    return {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": BOS, "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {BOS: {"id": BOS, "ids": [3], "tokens": [BOS]}},
    }


def write_tokenizer(
    folder: Path, definition: dict[str, Any], settings: dict[str, Any] | None = None
) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def test_the_builtin_tokenizer_round_trips_any_text() -> None:
    tokenizer = builtin_tokenizer()
    for text in ("The market opens.\n\n12 eggs", "naïve – 小明 🙂", " \t x", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


def test_the_builtin_tokenizer_has_the_protocol_and_its_words() -> None:
    tokenizer = builtin_tokenizer()
    assert isinstance(tokenizer, TokenizerProtocol)
    assert tokenizer.vocab_size == 20_417
    assert len(word_atoms(tokenizer)) > 15_000
    assert tokenizer.fingerprint == BuiltinTokenizer().fingerprint


def test_every_word_of_the_vocabulary_stays_one_token() -> None:
    vocabulary, merges = builtin_vocabulary()
    assert len(merges) == len(vocabulary) - 256
    words = [piece for piece in vocabulary if piece.startswith("Ġ") and len(piece) > 3]
    texts = [piece.replace("Ġ", " ") for piece in words]
    rows = builtin_tokenizer().encode_batch(texts)
    assert len(words) > 19_000
    assert [ids for ids, word in zip(rows, words, strict=True) if ids != [vocabulary[word]]] == []


def test_opening_words_are_one_token_alone_and_on_a_line() -> None:
    tokenizer = builtin_tokenizer()
    openings = opening_words(tokenizer)
    words = [word.text for word in openings]
    assert words[0] == "The"
    assert 1 < len(set(words)) == len(words) <= 64
    atom = word_atoms(tokenizer)[3]
    for word, opening in zip(words, openings, strict=True):
        assert tokenizer.encode(word) == [opening.id]
        assert tokenizer.encode(f"{word}{atom.text}") == [*tokenizer.encode(word), atom.id]


def test_special_tokens_come_from_the_post_processor(tmp_path: Path) -> None:
    definition = small_definition(post_processor=bos_template())
    tokenizer = load_tokenizer(write_tokenizer(tmp_path / "toy", definition))
    assert tokenizer.name == "toy"
    assert tokenizer.encode("The cat", add_special_tokens=True) == [3, 1, 2]
    assert tokenizer.encode_batch(["The", "cat"], add_special_tokens=True) == [[3, 1], [3, 2]]
    assert tokenizer.encode("The cat") == [1, 2]
    assert tokenizer.special_ids == {3, 4}


def test_settings_win_over_the_post_processor(tmp_path: Path) -> None:
    settings = {"add_bos_token": False, "add_eos_token": True, "eos_token": {"content": EOS}}
    definition = small_definition(post_processor=bos_template())
    tokenizer = load_tokenizer(write_tokenizer(tmp_path / "toy", definition, settings))
    assert tokenizer.encode("The", add_special_tokens=True) == [1, 4]


def test_a_switch_without_its_token_is_refused(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "toy", small_definition(), {"add_bos_token": True})
    with pytest.raises(TokenizerError, match="bos_token names no token"):
        load_tokenizer(folder).encode("The", add_special_tokens=True)


def test_truncation_and_padding_of_the_file_are_switched_off(tmp_path: Path) -> None:
    truncation = {
        "direction": "Right",
        "max_length": 1,
        "strategy": "LongestFirst",
        "stride": 0,
    }
    folder = write_tokenizer(tmp_path / "toy", small_definition(truncation=truncation))
    assert load_tokenizer(folder).encode("The cat The") == [1, 2, 1]


@pytest.mark.parametrize("content", ["{", "[]", '{"model": 1}', ""])
def test_a_malformed_file_is_a_clear_refusal(tmp_path: Path, content: str) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(content)
    with pytest.raises(TokenizerError, match="not a usable") as caught:
        load_tokenizer(path)
    assert caught.value.exit_code == 4
    assert str(tmp_path) not in caught.value.render()


@pytest.mark.parametrize("name", ["nowhere", "nowhere/tokenizer.json", "org/model"])
def test_a_missing_file_is_a_clear_refusal(tmp_path: Path, name: str) -> None:
    with pytest.raises(TokenizerError, match="no such file"):
        load_tokenizer(tmp_path / name)


def test_a_folder_without_a_tokenizer_is_a_clear_refusal(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="no such file"):
        load_tokenizer(tmp_path)


def test_settings_that_cannot_be_read_are_a_clear_refusal(tmp_path: Path) -> None:
    folder = write_tokenizer(tmp_path / "toy", small_definition())
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(TokenizerError, match="not a usable"):
        load_tokenizer(folder)


def test_a_real_tokenizer_adds_nothing_and_names_its_marks() -> None:
    tokenizer = deepseek_tokenizer()
    assert tokenizer.encode("The cat", add_special_tokens=True) == tokenizer.encode("The cat")
    assert "<｜begin▁of▁sentence｜>" in tokenizer.added_token_texts
    assert len(word_atoms(tokenizer)) > 20_000
