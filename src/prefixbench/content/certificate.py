"""The certificate: why prompts made of atoms keep their tokens with a given tokenizer.

The proof needs one fact of the vocabulary: no piece crosses a safe boundary. The scan looks at
every piece, added tokens that are not special included (special ones cannot occur in a text: the
pool rejects texts that spell one). A second, independent guard encodes every text of the corpus
whole and compares it with its atoms.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from prefixbench.content.atoms import ATOM_RULE_VERSION, Boundary
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.core.errors import ErrorContext, Stage, TokenizerError

#: Offending pieces that a certificate lists, the shortest ones.
NAMED_PIECES = 10

_CROSSING = {
    # non-space, space, and then an atom's first character or the end of the piece
    Boundary.WORD: re.compile(r"\S (?:[A-Za-z0-9$]|\Z)"),
    Boundary.LINE: re.compile(r"\n[^\s/]"),
}


@dataclass(frozen=True, slots=True)
class ClassScan:
    """Pieces that cross one class of boundaries: how many, and the first of them."""

    offending_count: int
    offending_pieces: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return self.offending_count == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardCounts:
    """What the guard made of a corpus: texts kept, and texts dropped by reason."""

    corpus: str
    corpus_sha256: str
    texts: int
    kept: int
    with_added_token: int
    without_boundary: int
    with_other_ids: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificate:
    """Proof data of one tokenizer, with the guard's counts for each corpus in use."""

    tokenizer: str
    fingerprint: str
    rule_version: int
    pieces_scanned: int
    word: ClassScan
    line: ClassScan
    guards: tuple[GuardCounts, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether text prompts are exact; the line class only matters for texts cut at lines."""
        return self.word.passed

    def allows(self, boundary: Boundary) -> bool:
        return self.word.passed and (boundary is Boundary.WORD or self.line.passed)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"result": "pass" if self.passed else "fail"}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Certificate:
        """The certificate that `to_json` wrote."""
        scans = {
            name: ClassScan(data[name]["offending_count"], tuple(data[name]["offending_pieces"]))
            for name in ("word", "line")
        }
        guards = tuple(GuardCounts(**guard) for guard in data["guards"])
        plain = {key: value for key, value in data.items() if key != "result"}
        return cls(**plain | scans | {"guards": guards})


def scan_vocabulary(tokenizer: TokenizerProtocol) -> Certificate:
    """Scan every piece for text that crosses a boundary; no corpus is looked at."""
    special = tokenizer.special_ids
    pieces = [piece for piece_id, piece in tokenizer.pieces() if piece_id not in special]
    return Certificate(
        tokenizer=tokenizer.name,
        fingerprint=tokenizer.fingerprint,
        rule_version=ATOM_RULE_VERSION,
        pieces_scanned=len(pieces),
        word=_scan(pieces, Boundary.WORD),
        line=_scan(pieces, Boundary.LINE),
    )


def _scan(pieces: Iterable[str], boundary: Boundary) -> ClassScan:
    crossing = _CROSSING[boundary].search
    found = (piece for piece in pieces if crossing(piece))
    offending = sorted(found, key=lambda piece: (len(piece), piece))
    return ClassScan(len(offending), tuple(offending[:NAMED_PIECES]))


def require_exact_text(certificate: Certificate, boundary: Boundary = Boundary.WORD) -> None:
    """TokenizerError with the offending pieces unless texts with such boundaries stay exact."""
    if certificate.allows(boundary):
        return
    scan = certificate.line if certificate.word.passed else certificate.word
    named = ", ".join(repr(piece) for piece in scan.offending_pieces[:5])
    raise TokenizerError(
        f"tokenizer {certificate.tokenizer!r} joins text across {boundary} boundaries:"
        f" {scan.offending_count} of {certificate.pieces_scanned} pieces do, such as {named}",
        context=ErrorContext(stage=Stage.CONTENT, field="tokenizer"),
        hint="use prompt_format: token_ids, or a tokenizer whose pieces hold one word each",
    )
