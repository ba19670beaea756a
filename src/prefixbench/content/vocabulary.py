"""The built-in vocabulary: a byte-level BPE made by code, deterministic, with no data file.

Layout of the ids: 256 bytes, consonant-vowel syllables, synthetic " word" entries of two or three
syllables, then whole words of the built-in corpus. Merges of one word only ever chain from left to
right and come after all earlier ones, so a word that is one token stays one token.
"""

from __future__ import annotations

from functools import cache
from itertools import count, pairwise, product

from prefixbench.content.word_problems import problem_words
from prefixbench.core.seeds import mixed, stream

#: End of text; the only special token. It is never added to a prompt.
END_OF_TEXT = "<|endoftext|>"

#: Entries of the vocabulary without the special token.
VOCABULARY_SIZE = 20_416

_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_VOWELS = "aeiou"

Merge = tuple[str, str]


@cache
def byte_letters() -> tuple[str, ...]:
    """The printable letter that stands for each byte in a byte-level vocabulary.

    Rule of GPT-2's `bytes_to_unicode`: printable Latin-1 bytes stand for themselves, the others
    for the letters from U+0100 on, in order.
    """
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = (byte for byte in range(256) if byte not in plain)
    shifted = {byte: chr(0x100 + place) for place, byte in enumerate(others)}
    return tuple(shifted.get(byte, chr(byte)) for byte in range(256))


def to_letters(text: str) -> str:
    """A text as byte-level letters."""
    letters = byte_letters()
    return "".join(letters[byte] for byte in text.encode())


class _Merges:
    """Merges in rank order and the vocabulary they make."""

    def __init__(self) -> None:
        self.vocabulary: dict[str, int] = {
            letter: place for place, letter in enumerate(byte_letters())
        }
        self.ranks: dict[Merge, int] = {}

    def add(self, left: str, right: str) -> None:
        self.ranks.setdefault((left, right), len(self.ranks))
        self.vocabulary.setdefault(left + right, len(self.vocabulary))

    def add_word(self, text: str) -> None:
        """Make a whole text one entry, by further merges from its left end."""
        parts = self._encode(list(to_letters(text)))
        while len(parts) > 1:
            self.add(parts[0], parts[1])
            parts = self._encode(parts)

    def _encode(self, parts: list[str]) -> list[str]:
        while True:
            ranked = [
                (self.ranks[pair], place)
                for place, pair in enumerate(pairwise(parts))
                if pair in self.ranks
            ]
            if not ranked:
                return parts
            _, place = min(ranked)
            parts = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]]


def builtin_vocabulary() -> tuple[dict[str, int], list[Merge]]:
    """Entries with their ids, and merges in rank order."""
    merges = _Merges()
    syllables = [consonant + vowel for consonant, vowel in product(_CONSONANTS, _VOWELS)]
    space = to_letters(" ")
    for syllable in syllables:
        merges.add(*syllable)
    for syllable in syllables:
        merges.add(space, syllable)
    for first, second in product(syllables, syllables):
        merges.add(space + first, second)
    for text in _whole_words():
        merges.add_word(text)
    _fill_with_long_words(merges, syllables)
    return merges.vocabulary, list(merges.ranks)


def _whole_words() -> list[str]:
    """Words, numbers and signs of the corpus, as they stand behind a space and without one."""
    words = problem_words()
    numbers = [str(number) for number in range(100)]
    bare = [word for word in words if word[0].isupper()]
    bare += [*numbers, ">>", "####", "\n\n"]
    return ["The", *bare, *(f" {word}" for word in (*words, *numbers, "=", "<<"))]


def _fill_with_long_words(merges: _Merges, syllables: list[str]) -> None:
    """Words of three syllables, drawn by number, until the vocabulary has its size."""
    key = stream("long_word")
    size = len(syllables)
    for place in count():
        if len(merges.vocabulary) == VOCABULARY_SIZE:
            return
        first, second, third = (mixed(key, 3 * place + part) % size for part in range(3))
        merges.add(to_letters(" ") + syllables[first] + syllables[second], syllables[third])
