"""Mistral's `tekken.json`: ranked bytes with their split rule; special tokens come first.

An ordinary entry's id is its rank plus the number of special tokens; entries beyond the vocabulary
size are not used (mistral-common 1.13, `tokens/tokenizers/tekken.py`).
"""

from __future__ import annotations

import binascii

import orjson

from prefixbench.content.tokenizer_json import (
    begin_with,
    byte_level,
    definition,
    ranked_bytes_model,
    split_by,
)

#: Names of the first special tokens in files that do not list them.
_UNLISTED_SPECIALS = (
    "<unk>",
    "<s>",
    "</s>",
    "[INST]",
    "[/INST]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[TOOL_CALLS]",
    "[IMG]",
    "<pad>",
    "[IMG_BREAK]",
    "[IMG_END]",
    "[PREFIX]",
    "[MIDDLE]",
    "[SUFFIX]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "[TOOL_CONTENT]",
)
_BEGIN = "<s>"


def is_tekken(raw: bytes) -> bool:
    """Whether a JSON file begins like one of Mistral's."""
    start = raw[:2048]
    return b'"config"' in start and b'"default_num_special_tokens"' in start


def tekken_definition(raw: bytes) -> bytes:
    """The `tokenizer.json` of a tekken file; KeyError or ValueError if it is none."""
    data = orjson.loads(raw)
    config = data["config"]
    offset = config["default_num_special_tokens"]
    count = config["default_vocab_size"] - offset
    ids = {
        binascii.a2b_base64(entry["token_bytes"]): entry["rank"] + offset
        for entry in data["vocab"][:count]
    }
    specials = [
        (special["rank"], special["token_str"]) for special in data.get("special_tokens") or ()
    ] or list(enumerate(_UNLISTED_SPECIALS))
    by_text = {text: token_id for token_id, text in specials}
    return definition(
        ranked_bytes_model(ids, specials),
        specials=specials,
        pre_tokenizer=split_by(config["pattern"]),
        post_processor=begin_with(_BEGIN, by_text[_BEGIN]),
        decoder=byte_level(splits=False),
    )
