"""The pool: everything that prompts are cut from, made once for a tokenizer and its corpora.

Building it encodes the corpus twice, atom by atom and text by text, and keeps only texts where
both agree. After that no prompt needs the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain

import numpy as np

from prefixbench.content.atoms import Boundary, Separator, atoms_of, parse_separator, starts_line
from prefixbench.content.certificate import (
    Certificate,
    GuardCounts,
    require_exact_text,
    scan_vocabulary,
)
from prefixbench.content.corpus import Corpus
from prefixbench.content.encoder import AtomEncoder
from prefixbench.content.ring import TextRing
from prefixbench.content.tape import Tape, escape, offsets_of
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import (
    WordAtom,
    Words,
    part_words,
    word_atoms,
)
from prefixbench.core.errors import (
    ConfigError,
    CorpusError,
    ErrorContext,
    Stage,
)

#: A corpus with fewer tokens cannot vary one request from the next.
FEWEST_TOKENS = 100

_BRIDGE_WORD = " then"


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """Words, the rings of the two sources, and why they may be cut where they are.

    `prefix_ring` is the same object as `suffix_ring` where prefixes have no source of their own.
    """

    words: Words
    suffix_ring: TextRing
    prefix_ring: TextRing
    certificate: Certificate

    @property
    def shares_source(self) -> bool:
        return self.prefix_ring is self.suffix_ring


@dataclass(frozen=True, slots=True)
class TextSource:
    """A corpus and what stands between two of its samples."""

    corpus: Corpus
    separator: str = "\n\n"


def build_pool(
    tokenizer: TokenizerProtocol,
    suffix: TextSource,
    prefix: TextSource | None = None,
    *,
    exact_text: bool = True,
) -> Pool:
    """Encode the sources and part the vocabulary into markers and fillers.

    Without `exact_text` (prompts sent as ids) any tokenizer will do; its text is then no use.
    TokenizerError if text cannot be exact with this tokenizer, CorpusError if a corpus has too
    little usable text, ConfigError for a separator that cannot be cut.
    """
    certificate = scan_vocabulary(tokenizer)
    build = partial(_build_ring, tokenizer, certificate, exact_text)
    suffix_ring, suffix_guard = build(suffix)
    prefix_ring, guards = suffix_ring, [suffix_guard]
    if prefix is not None and prefix != suffix:
        prefix_ring, prefix_guard = build(prefix)
        guards.append(prefix_guard)
    corpus_ids = np.union1d(suffix_ring.all_ids, prefix_ring.all_ids)
    return Pool(
        words=part_words(word_atoms(tokenizer), corpus_ids),
        suffix_ring=suffix_ring,
        prefix_ring=prefix_ring,
        certificate=replace(certificate, guards=tuple(guards)),
    )


def warmup_filler(pool: Pool) -> WordAtom:
    """The word behind the prefix of a warm-up request; it occurs in no measured prompt."""
    return pool.words.warmup_filler


def certify(tokenizer: TokenizerProtocol, corpus: Corpus) -> Certificate:
    """Scan the vocabulary, and let the guard judge every text of a corpus.

    A tokenizer that fails the scan is described, not refused; its corpus is not looked at.
    """
    certificate = scan_vocabulary(tokenizer)
    boundary = Boundary.LINE if certificate.allows(Boundary.LINE) else Boundary.WORD
    if not certificate.allows(boundary):
        return certificate
    source = TextSource(corpus, "\n\n" if boundary is Boundary.LINE else " ")
    _, guard = _build_ring(tokenizer, certificate, True, source)
    return replace(certificate, guards=(guard,))


def _build_ring(
    tokenizer: TokenizerProtocol, certificate: Certificate, exact_text: bool, source: TextSource
) -> tuple[TextRing, GuardCounts]:
    separator = parse_separator(source.separator)
    if exact_text:
        require_exact_text(certificate, separator.boundary)
    _reject_added_tokens(source.separator, tokenizer)
    encoder = AtomEncoder(tokenizer, exact_text=exact_text)
    samples = _Samples(tokenizer, source.corpus, separator, encoder, exact_text)
    guard = samples.guard_counts()
    bridges = _bridges(tokenizer, separator, encoder) if exact_text else _no_bridges()
    ring = _ring_of(samples, encoder, bridges)
    if ring.token_count < FEWEST_TOKENS:
        raise CorpusError(
            f"corpus {source.corpus.name!r} is too small: {ring.token_count} usable tokens in"
            f" {guard.kept} of {guard.texts} texts, at least {FEWEST_TOKENS} are needed",
            context=ErrorContext(stage=Stage.CONTENT, field="corpus"),
            hint="give more text; texts that spell a special token do not count",
        )
    return ring, guard


def _reject_added_tokens(separator: str, tokenizer: TokenizerProtocol) -> None:
    if _speller(tokenizer.added_token_texts)(separator):
        raise ConfigError(
            "the separator spells an added token of the tokenizer",
            context=ErrorContext(stage=Stage.CONTENT, field="suffix.separator"),
            hint="use plain text between samples",
        )


def _speller(tokens: tuple[str, ...]) -> Callable[[str], bool]:
    """Whether a text spells one of the tokens; their many beginnings are few."""
    beginnings = {token[:3] for token in tokens}

    def spells(text: str) -> bool:
        return any(start in text for start in beginnings) and any(t in text for t in tokens)

    return spells


class _Samples:
    """The usable texts of a corpus as numbers of atoms, and why the others are not."""

    def __init__(
        self,
        tokenizer: TokenizerProtocol,
        corpus: Corpus,
        separator: Separator,
        encoder: AtomEncoder,
        exact_text: bool,
    ) -> None:
        self._corpus = corpus
        self._exact_text = exact_text
        self._with_added_token = self._without_boundary = self._with_other_ids = 0
        self.rows: list[int] = []
        self.atoms: list[list[int]] = []
        self._collect(tokenizer.added_token_texts, separator, encoder)

    def _collect(
        self, forbidden: tuple[str, ...], separator: Separator, encoder: AtomEncoder
    ) -> None:
        split: list[tuple[int, list[str]]] = []
        spells_one_of = _speller(forbidden)
        for row, text in enumerate(self._corpus.texts):
            if spells_one_of(text):
                self._with_added_token += 1
            elif atoms := atoms_of(text, separator):
                split.append((row, atoms))
            else:
                self._without_boundary += 1
        encoder.learn(list(chain.from_iterable(atoms for _, atoms in split)))
        whole = encoder.encode_batch(["".join(atoms) for _, atoms in split])
        for (row, atoms), ids in zip(split, whole, strict=True):
            numbers = [encoder.numbers[atom] for atom in atoms]
            rows = [encoder.rows[number] for number in numbers]
            agrees = list(chain.from_iterable(rows)) == ids
            if all(rows) and (agrees or not self._exact_text):
                self.rows.append(row)
                self.atoms.append(numbers)
            else:
                self._with_other_ids += 1

    def guard_counts(self) -> GuardCounts:
        return GuardCounts(
            corpus=self._corpus.name,
            corpus_sha256=self._corpus.sha256,
            texts=self._corpus.rows,
            kept=len(self.rows),
            with_added_token=self._with_added_token,
            without_boundary=self._without_boundary,
            with_other_ids=self._with_other_ids,
        )


def _ring_of(samples: _Samples, encoder: AtomEncoder, bridges: tuple[Tape, Tape]) -> TextRing:
    texts = list(encoder.numbers)
    escaped = [escape(text) for text in texts]
    numbers = list(chain.from_iterable(samples.atoms))
    lines = np.array([starts_line(text) for text in texts], dtype=np.bool_)
    return TextRing(
        tape=Tape.of(
            [encoder.rows[number] for number in numbers], [escaped[number] for number in numbers]
        ),
        line_starts=lines[numbers],
        sample_starts=offsets_of([len(atoms) for atoms in samples.atoms]),
        sample_ids=np.array(samples.rows, dtype=np.int64),
        entry=bridges[0],
        exit=bridges[1],
    )


def _no_bridges() -> tuple[Tape, Tape]:
    return Tape.of([[]], [b""]), Tape.of([[]], [b""])


def _bridges(
    tokenizer: TokenizerProtocol, separator: Separator, encoder: AtomEncoder
) -> tuple[Tape, Tape]:
    """Entry and exit of stretches that begin or end behind a newline."""
    if separator.boundary is Boundary.WORD:
        return _no_bridges()
    words = [atom.text for atom in word_atoms(tokenizer)]
    enter = (_BRIDGE_WORD if _BRIDGE_WORD in words else words[-1]) + separator.tail
    (entry_ids,) = encoder.encode_batch([enter])
    if not entry_ids:
        raise ConfigError(
            f"tokenizer {tokenizer.name!r} cannot keep this separator apart from the text",
            context=ErrorContext(stage=Stage.CONTENT, field="suffix.separator"),
            hint='use one space: " "',
        )
    return (
        Tape.of([entry_ids], [escape(enter)]),
        Tape.of([encoder.exit_ids], [escape(encoder.exit_word)]),
    )
