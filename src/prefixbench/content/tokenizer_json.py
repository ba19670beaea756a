"""Parts of a `tokenizer.json`, as the `tokenizers` library reads them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from prefixbench.content.bpe_merges import merges_by_rank
from prefixbench.content.vocabulary import byte_letters

_LETTERS = byte_letters()


def definition(
    model: Mapping[str, Any],
    *,
    specials: Iterable[tuple[int, str]] = (),
    whole: Iterable[tuple[int, str]] = (),
    normalizer: Mapping[str, Any] | None = None,
    pre_tokenizer: Mapping[str, Any] | None = None,
    post_processor: Mapping[str, Any] | None = None,
    decoder: Mapping[str, Any] | None = None,
) -> bytes:
    """A whole `tokenizer.json`; `whole` are ids and texts that are found first but not special."""
    added = [_added(token_id, text, is_special=True) for token_id, text in specials]
    added += [_added(token_id, text, is_special=False) for token_id, text in whole]
    return orjson.dumps(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": sorted(added, key=lambda token: token["id"]),
            "normalizer": normalizer,
            "pre_tokenizer": pre_tokenizer,
            "post_processor": post_processor,
            "decoder": decoder,
            "model": model,
        }
    )


def byte_level(*, splits: bool) -> dict[str, Any]:
    """Bytes as letters; `splits` = cut into words by GPT-2's rule first."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": False,
        "use_regex": splits,
    }


def split_by(pattern: str) -> dict[str, Any]:
    """Cut into the matches of a regular expression, then bytes as letters."""
    split = {
        "type": "Split",
        "pattern": {"Regex": pattern},
        "behavior": "Isolated",
        "invert": False,
    }
    return {"type": "Sequence", "pretokenizers": [split, byte_level(splits=False)]}


def ranked_bytes_model(
    ids: Mapping[bytes, int], specials: Iterable[tuple[int, str]]
) -> dict[str, Any]:
    """A byte-pair model in which ids are ranks too, as in files of tiktoken.

    Special tokens are entries as well, else the library would number them anew.
    """
    vocabulary = {_letters(piece): piece_id for piece, piece_id in ids.items()}
    return {
        "type": "BPE",
        "vocab": vocabulary | {text: token_id for token_id, text in specials},
        "merges": [(_letters(left), _letters(right)) for left, right in merges_by_rank(ids)],
        "ignore_merges": True,  # a word that is an entry is that entry
    }


def begin_with(text: str, token_id: int) -> dict[str, Any]:
    """A post-processor that puts one special token before every text."""
    special: dict[str, Any] = {"SpecialToken": {"id": text, "type_id": 0}}
    first: dict[str, Any] = {"Sequence": {"id": "A", "type_id": 0}}
    second: dict[str, Any] = {"Sequence": {"id": "B", "type_id": 1}}
    return {
        "type": "TemplateProcessing",
        "single": [special, first],
        "pair": [special, first, second],
        "special_tokens": {text: {"id": text, "ids": [token_id], "tokens": [text]}},
    }


def in_sequence(kind: str, parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Parts one after the other; `kind` is the key under which the library expects them."""
    return {"type": "Sequence", kind: list(parts)}


def _letters(piece: bytes) -> str:
    return "".join([_LETTERS[byte] for byte in piece])


def _added(token_id: int, text: str, *, is_special: bool) -> dict[str, Any]:
    return {
        "id": token_id,
        "content": text,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": is_special,
    }
