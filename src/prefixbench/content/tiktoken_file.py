"""Files of tiktoken: one line an entry, its bytes in base 64 and its rank.

The file holds neither the rule that cuts words nor the special tokens; both belong to a published
encoding. Which one a file is, the number of its entries tells.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterable
from dataclasses import dataclass

from prefixbench.content.tokenizer_json import (
    begin_with,
    byte_level,
    definition,
    ranked_bytes_model,
    split_by,
)

_LINE = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"\p{Ll}\p{Lm}\p{Lo}\p{M}"

_GPT2 = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CL100K = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|\p{{N}}|{_REST}"
_QWEN35 = (
    rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_O200K = (
    rf"[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]*[{_LOWER}]+{_CONTRACTIONS}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?[{_UPPER}]+[{_LOWER}]*{_CONTRACTIONS}?"
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Encoding:
    """What a published encoding adds to its ranks; special tokens follow the last rank.

    `specials` names those that stand in texts; `begins_with` is put before every text.
    """

    name: str
    pattern: str
    specials: tuple[tuple[int, str], ...] = ()
    composes: bool = False
    begins_with: str | None = None


def _numbered(first: int, texts: Iterable[str]) -> tuple[tuple[int, str], ...]:
    return tuple(enumerate(texts, start=first))


_CHAT_MARKS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_QWEN35_MARKS = (
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
)
_LLAMA3_MARKS = {
    0: "<|begin_of_text|>",
    1: "<|end_of_text|>",
    6: "<|start_header_id|>",
    7: "<|end_header_id|>",
    9: "<|eot_id|>",
}

#: Published encodings by the number of their ranks.
ENCODINGS = {
    50_256: Encoding(name="gpt2", pattern=_GPT2, specials=((50_256, "<|endoftext|>"),)),
    100_256: Encoding(
        name="cl100k_base",
        pattern=_CL100K,
        specials=(
            *_numbered(
                100_257, ("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
            ),
            (100_276, "<|endofprompt|>"),
        ),
    ),
    128_000: Encoding(
        name="llama3",
        pattern=_CL100K,
        specials=tuple((128_000 + place, text) for place, text in _LLAMA3_MARKS.items()),
        begins_with=_LLAMA3_MARKS[0],
    ),
    151_643: Encoding(
        name="qwen", pattern=_QWEN, specials=_numbered(151_643, _CHAT_MARKS), composes=True
    ),
    199_998: Encoding(
        name="o200k_base",
        pattern=_O200K,
        specials=((199_999, "<|endoftext|>"), (200_018, "<|endofprompt|>")),
    ),
    248_044: Encoding(
        name="qwen3.5",
        pattern=_QWEN35,
        specials=_numbered(248_044, _CHAT_MARKS + _QWEN35_MARKS),
        composes=True,
    ),
}


def is_tiktoken(raw: bytes) -> bool:
    """Whether a file begins like one of tiktoken."""
    return _LINE.match(raw) is not None


def tiktoken_definition(raw: bytes) -> bytes:
    """The `tokenizer.json` of a file of ranks; ValueError if it is no known encoding."""
    ids = _read_ranks(raw)
    encoding = ENCODINGS.get(len(ids))
    if encoding is None:
        known = ", ".join(known.name for known in ENCODINGS.values())
        raise ValueError(
            f"{len(ids)} ranks belong to no encoding whose split rule is known ({known})"
        )
    by_text = {text: token_id for token_id, text in encoding.specials}
    first = encoding.begins_with
    return definition(
        ranked_bytes_model(ids, encoding.specials),
        specials=encoding.specials,
        normalizer={"type": "NFC"} if encoding.composes else None,
        pre_tokenizer=split_by(encoding.pattern),
        post_processor=begin_with(first, by_text[first]) if first else None,
        decoder=byte_level(splits=False),
    )


def _read_ranks(raw: bytes) -> dict[bytes, int]:
    try:
        rows = (line.split() for line in raw.splitlines() if line.strip())
        return {binascii.a2b_base64(piece): int(rank) for piece, rank in rows}
    except ValueError as error:
        raise ValueError("a line is not base 64 and a rank") from error
