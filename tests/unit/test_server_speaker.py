"""Generated tokens are a function of the request."""

from __future__ import annotations

from prefixbench.content.tokenizer import BuiltinTokenizer
from prefixbench.content.words import word_atoms
from prefixbench.server.speaker import Speaker

TOKENIZER = BuiltinTokenizer()
SPEAKER = Speaker(word_atoms(TOKENIZER))


def test_the_answer_depends_on_prompt_and_choice_alone() -> None:
    answer = list(SPEAKER.generate([1, 2, 3], 0, 20))
    assert answer == list(SPEAKER.generate((1, 2, 3), 0, 20))
    assert answer != list(SPEAKER.generate([1, 2, 4], 0, 20))
    assert answer != list(SPEAKER.generate([1, 2, 3], 1, 20))


def test_a_longer_answer_starts_with_the_shorter_one() -> None:
    short, long = (SPEAKER.generate([7], 0, length) for length in (5, 50))
    assert list(long)[:5] == list(long[:5]) == list(short)
    assert (len(short), long[-1]) == (5, list(long)[-1])


def test_an_answer_that_is_encoded_again_keeps_its_tokens() -> None:
    tokens = list(SPEAKER.generate([7], 0, 200))
    text = "".join(SPEAKER.text_of[token] for token in tokens)
    assert TOKENIZER.decode(tokens) == text
    assert TOKENIZER.encode("The" + text)[1:] == tokens
