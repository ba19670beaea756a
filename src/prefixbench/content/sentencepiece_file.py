"""SentencePiece models: a protocol-buffer message with pieces, scores and two specifications.

Field numbers are those of `sentencepiece_model.proto` (google/sentencepiece, 0.2). The message is
read by hand: a tag, then a number, eight or four bytes, or a counted run of bytes.
"""

from __future__ import annotations

import base64
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from prefixbench.content.bpe_merges import merges_by_rank
from prefixbench.content.tokenizer_json import begin_with, definition, in_sequence

_SPACE_LETTER = "▁"


class _Kind(IntEnum):
    """`SentencePiece.Type`."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


_BPE = 2  # `TrainerSpec.ModelType`; the default 1 is unigram
_UNIGRAM = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    """What of a model decides about ids."""

    pieces: list[_Piece]
    model_type: int
    has_bytes: bool
    begin_id: int
    charsmap: bytes
    adds_space: bool
    collapses_spaces: bool


def is_sentencepiece(raw: bytes) -> bool:
    """Whether a file begins with a piece: field 1, a run of bytes that begins with field 1."""
    return len(raw) > 4 and raw[0] == 0x0A and raw[2] == 0x0A


def sentencepiece_definition(raw: bytes) -> bytes:
    """The `tokenizer.json` of a model; ValueError if it is neither BPE nor unigram."""
    model = _read(raw)
    if model.model_type == _BPE:
        return _definition(model, _bpe_model(model), begins=True)
    if model.model_type == _UNIGRAM:
        return _definition(model, _unigram_model(model), begins=False)
    raise ValueError(f"model type {model.model_type} is neither BPE nor unigram")


def _definition(model: _Model, engine_model: dict[str, Any], *, begins: bool) -> bytes:
    """Models with byte-pair merges begin texts with BOS, as Llama 2, Mistral and Gemma do."""
    begin = model.begin_id if begins and 0 <= model.begin_id < len(model.pieces) else None
    return definition(
        engine_model,
        specials=_numbered(model, _Kind.CONTROL, _Kind.UNKNOWN),
        whole=_numbered(model, _Kind.USER_DEFINED),
        normalizer=in_sequence("normalizers", list(_normalizers(model))),
        post_processor=None if begin is None else begin_with(model.pieces[begin].text, begin),
        decoder=in_sequence("decoders", list(_decoders(model))),
    )


def _numbered(model: _Model, *kinds: _Kind) -> list[tuple[int, str]]:
    return [
        (number, piece.text) for number, piece in enumerate(model.pieces) if piece.kind in kinds
    ]


def _normalizers(model: _Model) -> Iterator[dict[str, Any]]:
    if model.charsmap:
        charsmap = base64.b64encode(model.charsmap).decode()
        yield {"type": "Precompiled", "precompiled_charsmap": charsmap}
    if model.collapses_spaces:
        yield {"type": "Strip", "strip_left": True, "strip_right": True}
        yield {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "}
    if model.adds_space:
        yield {"type": "Prepend", "prepend": _SPACE_LETTER}
    yield {"type": "Replace", "pattern": {"String": " "}, "content": _SPACE_LETTER}


def _decoders(model: _Model) -> Iterator[dict[str, Any]]:
    yield {"type": "Replace", "pattern": {"String": _SPACE_LETTER}, "content": " "}
    yield {"type": "ByteFallback"}
    yield {"type": "Fuse"}
    if model.adds_space:
        yield {"type": "Strip", "content": " ", "start": 1, "stop": 0}


def _bpe_model(model: _Model) -> dict[str, Any]:
    """Neighbours join while their union is a piece, the highest score first."""
    joined = (_Kind.NORMAL, _Kind.USER_DEFINED, _Kind.UNUSED)
    by_score = sorted(
        (piece for piece in model.pieces if piece.kind in joined),
        key=lambda piece: -piece.score,
    )
    ranks = {piece.text: rank for rank, piece in enumerate(by_score)}
    return {
        "type": "BPE",
        "vocab": {piece.text: number for number, piece in enumerate(model.pieces)},
        "merges": list(merges_by_rank(ranks)),
        "byte_fallback": model.has_bytes,
        "unk_token": model.pieces[_unknown(model)].text,
        "fuse_unk": True,
    }


def _unigram_model(model: _Model) -> dict[str, Any]:
    return {
        "type": "Unigram",
        "unk_id": _unknown(model),
        "vocab": [(piece.text, piece.score) for piece in model.pieces],
        "byte_fallback": model.has_bytes,
    }


def _unknown(model: _Model) -> int:
    return _numbered(model, _Kind.UNKNOWN)[0][0]


def _read(raw: bytes) -> _Model:
    pieces: list[_Piece] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for field, value in _fields(raw):
        if field == 1:
            pieces.append(_piece(dict(_fields(value))))
        elif field == 2:
            trainer = dict(_fields(value))
        elif field == 3:
            normalizer = dict(_fields(value))
    if not any(piece.kind == _Kind.UNKNOWN for piece in pieces):
        raise ValueError("it has no piece for what is unknown")
    return _Model(
        pieces=pieces,
        model_type=trainer.get(3, _UNIGRAM),
        has_bytes=bool(trainer.get(35, 0)),
        begin_id=_signed(trainer.get(41, 1)),
        charsmap=normalizer.get(2, b""),
        adds_space=bool(normalizer.get(3, 1)),
        collapses_spaces=bool(normalizer.get(4, 1)),
    )


def _piece(fields: dict[int, Any]) -> _Piece:
    score = struct.unpack("<f", fields[2])[0] if 2 in fields else 0.0
    return _Piece(text=fields[1].decode(), score=score, kind=fields.get(3, _Kind.NORMAL))


def _fields(raw: bytes) -> Iterator[tuple[int, Any]]:
    """Numbers and values of the fields of one message."""
    place = 0
    while place < len(raw):
        tag, place = _number(raw, place)
        match tag & 7:
            case 0:
                value, place = _number(raw, place)
                yield tag >> 3, value
                continue
            case 1:
                length = 8
            case 2:
                length, place = _number(raw, place)
            case 5:
                length = 4
            case wire:
                raise ValueError(f"wire type {wire} has no meaning here")
        if place + length > len(raw):
            raise ValueError("it ends inside a field")
        yield tag >> 3, raw[place : place + length]
        place += length


def _number(raw: bytes, place: int) -> tuple[int, int]:
    """A variable-length number and the place behind it."""
    number = shift = 0
    while place < len(raw):
        byte = raw[place]
        place += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, place
        shift += 7
    raise ValueError("it ends inside a number")


def _signed(number: int) -> int:
    return number - (1 << 64) if number >= 1 << 63 else number
