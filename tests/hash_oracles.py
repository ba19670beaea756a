"""Pickle (protocol 5) and canonical CBOR of the few things block names are made of, by the books.

Written from the opcode table of PEP 307/3154/574 and from RFC 8949, section 4.2; nothing is shared
with the product, nor with the libraries it calls.
"""

from __future__ import annotations

import struct
from typing import Any


def pickled(value: Any) -> bytes:
    body = _Pickle().save(value) + b"."
    return b"\x80\x05" + b"\x95" + struct.pack("<Q", len(body)) + body


class _Pickle:
    """Objects are remembered as they are written; the same one again is a reference."""

    def __init__(self) -> None:
        self.places: dict[int, int] = {}

    def save(self, value: Any) -> bytes:
        if id(value) in self.places and isinstance(value, str | bytes):
            return b"h" + bytes([self.places[id(value)]])
        if value is None:
            return b"N"
        if isinstance(value, int):
            return _pickled_int(value)
        if isinstance(value, str):
            text = value.encode()
            return self._kept(value, b"\x8c" + bytes([len(text)]) + text)
        if isinstance(value, bytes):
            return self._kept(value, b"C" + bytes([len(value)]) + value)
        items = b"".join(map(self.save, value))
        close = {1: b"\x85", 2: b"\x86", 3: b"\x87"}.get(len(value))
        return self._kept(value, items + close if close else b"(" + items + b"t")

    def _kept(self, value: Any, code: bytes) -> bytes:
        self.places[id(value)] = len(self.places)
        return code + b"\x94"


def _pickled_int(value: int) -> bytes:
    if 0 <= value < 1 << 8:
        return b"K" + bytes([value])
    if 0 <= value < 1 << 16:
        return b"M" + struct.pack("<H", value)
    if -(1 << 31) <= value < 1 << 31:
        return b"J" + struct.pack("<i", value)
    size = value.bit_length() // 8 + 1
    return b"\x8a" + bytes([size]) + value.to_bytes(size, "little", signed=True)


def cbor(value: Any) -> bytes:
    if value is None:
        return b"\xf6"
    if isinstance(value, int):
        return _head(0, value) if value >= 0 else _head(1, -1 - value)
    if isinstance(value, bytes):
        return _head(2, len(value)) + value
    if isinstance(value, str):
        return _head(3, len(value.encode())) + value.encode()
    return _head(4, len(value)) + b"".join(map(cbor, value))


def _head(kind: int, number: int) -> bytes:
    """The shortest form of a number."""
    if number < 24:
        return bytes([kind << 5 | number])
    for code, size in ((24, 1), (25, 2), (26, 4), (27, 8)):
        if number < 1 << 8 * size:
            return bytes([kind << 5 | code]) + number.to_bytes(size, "big")
    raise ValueError(number)
