"""Word atoms: one space and a lower-case word that is one token wherever it stands.

They carry everything in a prompt that is not corpus text. Three disjoint sets: *group markers*
and *request markers* occur nowhere in the corpus, so that they end every accidental match; the
*fillers* bring a text to its exact length.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from prefixbench.content.disk_memo import remembered
from prefixbench.content.tape import Ids, Tape
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.core.errors import ErrorContext, Stage, TokenizerError
from prefixbench.core.seeds import below, stream

#: The constant word that begins every content, where the tokenizer has it as one token.
OPENING_WORD = "The"
_OPENING_WORDS = 64

_FEWEST_WORDS = 64
_FEWEST_FILLERS = 256
_MOST_GROUP_MARKERS = 4_096
_FILLER_STREAM = 8_192

_WORD = re.compile(r" [a-z]{3,12}")
_CAPITALISED = re.compile(r" ?([A-Z][a-z]{1,11})")


@dataclass(frozen=True, slots=True)
class WordAtom:
    """A word atom and its one token."""

    text: str
    id: int


@dataclass(frozen=True, slots=True, eq=False)
class Words:
    """The three sets as tapes of one-token pieces, and the filler kept for warm-up requests.

    The fillers' tape is a fixed, drawn sequence; a run of fillers is a stretch of it.
    """

    group_markers: Tape
    request_markers: Tape
    fillers: Tape
    warmup_filler: WordAtom


@lru_cache(maxsize=8)
def word_atoms(tokenizer: TokenizerProtocol) -> tuple[WordAtom, ...]:
    """All word atoms in order of their ids, each tested in context, twice in a row."""
    candidates = sorted(
        (piece_id, piece)
        for piece_id, piece in tokenizer.pieces()
        if _WORD.fullmatch(piece) and piece_id not in tokenizer.special_ids
    )
    head = tokenizer.encode(OPENING_WORD)
    rows = tokenizer.encode_batch([f"{OPENING_WORD}{text}{text}" for _, text in candidates])
    atoms = tuple(
        WordAtom(text, word_id)
        for (word_id, text), ids in zip(candidates, rows, strict=True)
        if ids == [*head, word_id, word_id]
    )
    if len(atoms) < _FEWEST_WORDS:
        raise TokenizerError(
            f"tokenizer {tokenizer.name!r} has {len(atoms)} words of one token;"
            f" exact text needs {_FEWEST_WORDS}",
            context=ErrorContext(stage=Stage.CONTENT, field="tokenizer"),
            hint="use a tokenizer whose vocabulary holds whole words",
        )
    return atoms


@lru_cache(maxsize=8)
def opening_words(tokenizer: TokenizerProtocol) -> tuple[WordAtom, ...]:
    """Up to 64 capitalised words of one token, `The` first where it is one of them; often none.

    Each is one token at the start of a text and after a newline (where a chat template puts it),
    and a word atom behind it keeps its own token, so one may replace another. Ids are those at the
    start.
    """
    found = remembered("opening_words", tokenizer.fingerprint, lambda: _find_openings(tokenizer))
    return tuple(WordAtom(text, word_id) for text, word_id in found)


def opening_text(tokenizer: TokenizerProtocol) -> str:
    """The constant text that begins every content."""
    words = opening_words(tokenizer)
    return words[0].text if words else OPENING_WORD


def _find_openings(tokenizer: TokenizerProtocol) -> list[tuple[str, int]]:
    probe = word_atoms(tokenizer)[0]
    found = {
        match[1] for _, piece in tokenizer.pieces() if (match := _CAPITALISED.fullmatch(piece))
    }
    candidates = sorted(found, key=lambda word: (word != OPENING_WORD, len(word), word))
    newline = tokenizer.encode("\n")
    alone = tokenizer.encode_batch([word + probe.text for word in candidates])
    on_line = tokenizer.encode_batch([f"\n{word}{probe.text}" for word in candidates])
    words = [
        (word, ids[0])
        for word, ids, line_ids in zip(candidates, alone, on_line, strict=True)
        if len(ids) == 2
        and ids[-1] == probe.id
        and line_ids[:-2] == newline
        and line_ids[-1] == probe.id
    ]
    return words[:_OPENING_WORDS]


def part_words(atoms: tuple[WordAtom, ...], corpus_ids: Ids) -> Words:
    """Split the word atoms into the three sets; words of the corpus can only be fillers."""
    in_corpus = np.isin(np.array([atom.id for atom in atoms], dtype=np.uint32), corpus_ids)
    used = [atom for atom, is_used in zip(atoms, in_corpus, strict=True) if is_used]
    free = [atom for atom, is_used in zip(atoms, in_corpus, strict=True) if not is_used]
    wanted = max(0, min(_FEWEST_FILLERS, len(atoms) // 8) - len(used))
    warmup, fillers, free = free[0], used + free[1 : 1 + wanted], free[1 + wanted :]
    group_count = min(_MOST_GROUP_MARKERS, max(1, len(free) // 4))
    key = stream("filler_stream")
    return Words(
        group_markers=_tape(free[:group_count]),
        request_markers=_tape(free[group_count:]),
        fillers=_tape(
            [fillers[below(len(fillers), key, place)] for place in range(_FILLER_STREAM)]
        ),
        warmup_filler=warmup,
    )


def _tape(atoms: list[WordAtom]) -> Tape:
    return Tape.of(([atom.id] for atom in atoms), (atom.text.encode() for atom in atoms))
