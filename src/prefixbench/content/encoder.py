"""Ids of atoms, each found in the surroundings that it will have in a prompt.

An atom is encoded behind the opening word (and a newline, if it begins a line) and, if it ends in
a newline, before a word: some tokenizers split white space differently at the very end of a text.
"""

from __future__ import annotations

from collections.abc import Sequence

from prefixbench.content.atoms import starts_line
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import OPENING_WORD, opening_text

_BATCH = 1_024


class AtomEncoder:
    """Numbers for atoms, and their ids; every atom is encoded once.

    `exit_word` may stand behind a newline, as `exit_ids`, before a word atom. Where only ids are
    sent (`exact_text` false) an atom's surroundings do not matter and it is encoded alone.
    """

    def __init__(self, tokenizer: TokenizerProtocol, *, exact_text: bool = True) -> None:
        self._tokenizer = tokenizer
        self._exact_text = exact_text
        self._leads = {False: OPENING_WORD, True: f"{OPENING_WORD}\n"}
        self._lead_ids = {line: tokenizer.encode(lead) for line, lead in self._leads.items()}
        self.exit_word = opening_text(tokenizer)
        on_line = tokenizer.encode(self._leads[True] + self.exit_word)
        self.exit_ids = on_line[len(self._lead_ids[True]) :]
        self.numbers: dict[str, int] = {}
        self.rows: list[list[int]] = []

    def learn(self, atoms: Sequence[str]) -> None:
        """Give a number to each atom that is new, and encode it."""
        new = [atom for atom in dict.fromkeys(atoms) if atom not in self.numbers]
        self.rows.extend(self.encode_batch(new))
        for atom in new:
            self.numbers[atom] = len(self.numbers)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Ids of texts that begin and end at safe boundaries.

        A row is empty if the surroundings do not keep their own ids.
        """
        if not self._exact_text:
            return self._tokenizer.encode_batch(texts)
        rows: list[list[int]] = []
        for start in range(0, len(texts), _BATCH):
            batch = texts[start : start + _BATCH]
            encoded = self._tokenizer.encode_batch([self._surrounded(text) for text in batch])
            rows.extend(map(self._inner_ids, batch, encoded))
        return rows

    def _surrounded(self, text: str) -> str:
        behind = self.exit_word if text.endswith("\n") else ""
        return f"{self._leads[starts_line(text)]}{text}{behind}"

    def _inner_ids(self, text: str, ids: list[int]) -> list[int]:
        lead = self._lead_ids[starts_line(text)]
        trail = self.exit_ids if text.endswith("\n") else []
        stop = len(ids) - len(trail)
        if ids[: len(lead)] != lead or ids[stop:] != trail:
            return []
        return ids[len(lead) : stop]
