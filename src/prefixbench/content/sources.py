"""Sources: from the words of a configuration to the corpus that a pool is built of."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from prefixbench.config.suffix import DataSourceConfig, SourceName
from prefixbench.content.corpus import Corpus, load_corpus
from prefixbench.content.pool import TextSource
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import word_atoms
from prefixbench.core.seeds import below, mixed, stream

#: Random text stands in rows of so many words.
_RANDOM_ROW = 64
_RANDOM_ROWS = 4_096


def open_source(
    config: DataSourceConfig,
    tokenizer: TokenizerProtocol,
    *,
    seed: int,
    corpus: str | Path | None = None,
) -> TextSource:
    """The corpus of one source and its separator.

    Random text is no corpus that could be named; `corpus` does not replace it.
    """
    if config.source is SourceName.RANDOM:
        return TextSource(random_corpus(tokenizer, seed), " ")
    named = corpus or config.path or config.source.value
    return TextSource(load_corpus(named, seed=seed), config.separator)


def random_corpus(tokenizer: TokenizerProtocol, seed: int) -> Corpus:
    """Rows of words of one token, drawn at random out of half of the vocabulary's words.

    The other half stays free for markers and fillers.
    """
    half = stream("random_half")
    words = [
        atom.text for place, atom in enumerate(word_atoms(tokenizer)) if mixed(half, place) & 1
    ]
    key = stream("random_text", seed=seed)
    texts = tuple(
        "".join(
            words[below(len(words), key, row * _RANDOM_ROW + place)] for place in range(_RANDOM_ROW)
        ).strip()
        for row in range(_RANDOM_ROWS)
    )
    return Corpus(SourceName.RANDOM.value, texts, sha256("\n".join(texts).encode()).hexdigest())
