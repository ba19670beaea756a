"""Files that define a tokenizer: which one a folder holds, and how each is read.

Every kind becomes a `tokenizer.json` in memory, so that one library encodes for all of them. A
kind is known by its content, not by its name.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson

from prefixbench.content.sentencepiece_file import is_sentencepiece, sentencepiece_definition
from prefixbench.content.tekken_file import is_tekken, tekken_definition
from prefixbench.content.tiktoken_file import is_tiktoken, tiktoken_definition
from prefixbench.content.tokenizer_json import byte_level, definition

#: What `--tokenizer` takes, in words.
KINDS = (
    "a tokenizer.json, a SentencePiece model, a file of tiktoken, a tekken.json, or a folder with"
    " one of them"
)

#: Names that a folder is searched for, the first that is there wins.
_NAMES = (
    "tokenizer.json",
    "tekken.json",
    "tokenizer.model",
    "*.tiktoken",
    "tiktoken.model",
    "tekken*.json",
    "*.model",
    "vocab.json",
    "encoder.json",
)
#: Vocabulary and merges of GPT-2's kind, which come in two files.
_MERGES_OF = {"vocab.json": "merges.txt", "encoder.json": "vocab.bpe"}

_GPT2_ENTRIES = 50_257

#: File names that say less than the folder's name.
_GENERAL_NAMES = frozenset(name for name in _NAMES if "*" not in name)


@dataclass(frozen=True, slots=True)
class TokenizerFile:
    """A file that defines a tokenizer, read but not yet understood."""

    path: Path
    raw: bytes
    merges: bytes = b""

    @property
    def name(self) -> str:
        """A word for manifests: the folder's name where the file's name is a general one."""
        is_general = self.path.name in _GENERAL_NAMES
        return self.path.parent.resolve().name if is_general else self.path.stem

    @property
    def fingerprint(self) -> str:
        """SHA-256 of the file; of both where the merges have their own."""
        return sha256(self.raw + self.merges).hexdigest()

    def definition(self) -> bytes:
        """The file as a `tokenizer.json`.

        Raises ValueError, KeyError, TypeError or IndexError for a file that is none of the kinds.
        """
        if self.merges:
            return _paired_definition(self.raw, self.merges)
        if is_tiktoken(self.raw):
            return tiktoken_definition(self.raw)
        if is_sentencepiece(self.raw):
            return sentencepiece_definition(self.raw)
        if is_tekken(self.raw):
            return tekken_definition(self.raw)
        return self.raw


def read_tokenizer_file(path: Path) -> TokenizerFile:
    """The file itself, or the one that a folder holds; FileNotFoundError or ValueError."""
    if path.is_dir():
        path = _found_in(path)
    raw = path.read_bytes()
    merges_name = _MERGES_OF.get(path.name)
    return TokenizerFile(
        path, raw, path.with_name(merges_name).read_bytes() if merges_name else b""
    )


def _found_in(folder: Path) -> Path:
    for name in _NAMES:
        found = sorted(folder.glob(name))
        if len(found) > 1:
            names = ", ".join(path.name for path in found)
            raise ValueError(f"the folder holds several tokenizers ({names}): name one of them")
        if found:
            return found[0]
    raise FileNotFoundError(folder)


def _paired_definition(vocabulary: bytes, merges: bytes) -> bytes:
    """GPT-2's two files: entries in byte letters, and a line for each merge.

    Other tokenizers come in two such files too, but with split rules that these do not state.
    """
    ids = orjson.loads(vocabulary)
    if len(ids) != _GPT2_ENTRIES:
        raise ValueError(f"{len(ids)} entries and merges do not say how words are split")
    marks = [(ids[text], text) for text in ids if text.startswith("<|") and text.endswith("|>")]
    return definition(
        {"type": "BPE", "vocab": ids, "merges": list(_merge_lines(merges))},
        specials=marks,
        pre_tokenizer=byte_level(splits=True),
        decoder=byte_level(splits=False),
    )


def _merge_lines(merges: bytes) -> Iterator[tuple[str, str]]:
    for line in merges.decode().splitlines():
        if line and not line.startswith("#version"):
            left, right = line.split(" ")
            yield left, right
