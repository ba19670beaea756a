"""What a simulated model says: plain words, the same ones for the same request.

Every token is one word with its leading space, so the text of an answer is the concatenation of
its tokens' texts, and a conversation that is encoded again keeps its tokens.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from hashlib import blake2b
from typing import overload

from prefixbench.content.words import WordAtom
from prefixbench.core.seeds import below, stream


class Speaker:
    """Generates answers out of the word atoms of a tokenizer."""

    def __init__(self, atoms: Sequence[WordAtom]) -> None:
        self.text_of = {atom.id: atom.text for atom in atoms}
        self._ids = tuple(self.text_of)

    @property
    def any_token(self) -> int:
        """A token that is a plain word."""
        return self._ids[0]

    def generate(self, prompt: Sequence[int], choice: int, length: int) -> GeneratedTokens:
        """The answer of one choice to one prompt; always the same one."""
        digest = blake2b(array("Q", prompt).tobytes(), digest_size=16).hexdigest()
        return GeneratedTokens(self._ids, stream("output", prompt=digest, choice=choice), length)


class GeneratedTokens(Sequence[int]):
    """A sequence of words drawn by position; nothing is stored."""

    __slots__ = ("_key", "_len", "_words")

    def __init__(self, words: Sequence[int], key: int, length: int) -> None:
        self._words = words
        self._key = key
        self._len = length

    def __len__(self) -> int:
        return self._len

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> list[int]: ...
    def __getitem__(self, index: int | slice) -> int | list[int]:
        positions = range(self._len)[index]
        if isinstance(positions, int):
            return self._word(positions)
        return [self._word(position) for position in positions]

    def _word(self, position: int) -> int:
        return self._words[below(len(self._words), self._key, position)]
