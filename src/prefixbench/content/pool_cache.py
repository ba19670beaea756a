"""Pools on disk: what is built once for a tokenizer and its corpora is read the next time.

An entry is one file of plain arrays (no pickled objects), named by all it depends on (`disk_memo`):
tokenizer, corpora, separators and rules.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import numpy.typing as npt
import orjson

from prefixbench.content.certificate import Certificate
from prefixbench.content.disk_memo import memo_key, write_whole
from prefixbench.content.pool import Pool, TextSource, build_pool
from prefixbench.content.ring import TextRing
from prefixbench.content.tape import Tape
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import WordAtom, Words
from prefixbench.core.log import event

log = logging.getLogger(__name__)

Arrays = Mapping[str, npt.NDArray[Any]]


def load_pool(
    tokenizer: TokenizerProtocol,
    suffix: TextSource,
    prefix: TextSource | None = None,
    *,
    exact_text: bool = True,
    folder: Path | None = None,
) -> Pool:
    """As `build_pool`, out of the folder if it holds this pool, else built and put there."""
    if folder is None:
        return build_pool(tokenizer, suffix, prefix, exact_text=exact_text)
    path = folder / f"pool-{_key(tokenizer, suffix, prefix, exact_text)}.npz"
    with suppress(OSError, ValueError, KeyError, EOFError, BadZipFile):
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            pool = _unpack({name: arrays[name] for name in arrays.files})
        event(log, "pool.read", tokens=pool.suffix_ring.token_count)
        return pool
    pool = build_pool(tokenizer, suffix, prefix, exact_text=exact_text)
    event(log, "pool.built", tokens=pool.suffix_ring.token_count)
    arrays = dict(_pack(pool))
    write_whole(path, lambda file: np.savez(file, allow_pickle=False, **arrays))
    return pool


def _key(
    tokenizer: TokenizerProtocol, suffix: TextSource, prefix: TextSource | None, exact_text: bool
) -> str:
    # Names count too: they stand in the certificate.
    sources = [
        (source.corpus.name, source.corpus.sha256, source.separator)
        for source in (suffix, prefix)
        if source
    ]
    return memo_key(tokenizer.name, tokenizer.fingerprint, sources, exact_text)


def _pack(pool: Pool) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    facts = {
        "certificate": pool.certificate.to_json(),
        "warmup_filler": [pool.words.warmup_filler.text, pool.words.warmup_filler.id],
        "shares_source": pool.shares_source,
    }
    yield "facts", _bytes_array(orjson.dumps(facts))
    words = pool.words
    yield from _pack_tape("group_markers", words.group_markers)
    yield from _pack_tape("request_markers", words.request_markers)
    yield from _pack_tape("fillers", words.fillers)
    yield from _pack_ring("suffix", pool.suffix_ring)
    if not pool.shares_source:
        yield from _pack_ring("prefix", pool.prefix_ring)


def _unpack(arrays: Arrays) -> Pool:
    facts = orjson.loads(arrays["facts"].tobytes())
    suffix_ring = _unpack_ring("suffix", arrays)
    shares_source = facts["shares_source"]
    return Pool(
        words=Words(
            group_markers=_unpack_tape("group_markers", arrays),
            request_markers=_unpack_tape("request_markers", arrays),
            fillers=_unpack_tape("fillers", arrays),
            warmup_filler=WordAtom(*facts["warmup_filler"]),
        ),
        suffix_ring=suffix_ring,
        prefix_ring=suffix_ring if shares_source else _unpack_ring("prefix", arrays),
        certificate=Certificate.from_json(facts["certificate"]),
    )


def _pack_ring(name: str, ring: TextRing) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    yield from _pack_tape(f"{name}.tape", ring.tape)
    yield from _pack_tape(f"{name}.entry", ring.entry)
    yield from _pack_tape(f"{name}.exit", ring.exit)
    yield f"{name}.line_starts", ring.line_starts
    yield f"{name}.sample_starts", ring.sample_starts
    yield f"{name}.sample_ids", ring.sample_ids


def _unpack_ring(name: str, arrays: Arrays) -> TextRing:
    return TextRing(
        tape=_unpack_tape(f"{name}.tape", arrays),
        line_starts=arrays[f"{name}.line_starts"],
        sample_starts=arrays[f"{name}.sample_starts"],
        sample_ids=arrays[f"{name}.sample_ids"],
        entry=_unpack_tape(f"{name}.entry", arrays),
        exit=_unpack_tape(f"{name}.exit", arrays),
    )


def _pack_tape(name: str, tape: Tape) -> Iterator[tuple[str, npt.NDArray[Any]]]:
    yield f"{name}.ids", tape.ids
    yield f"{name}.text", _bytes_array(tape.text)
    yield f"{name}.token_at", tape.token_at
    yield f"{name}.byte_at", tape.byte_at


def _unpack_tape(name: str, arrays: Arrays) -> Tape:
    return Tape(
        ids=arrays[f"{name}.ids"],
        text=arrays[f"{name}.text"].tobytes(),
        token_at=arrays[f"{name}.token_at"],
        byte_at=arrays[f"{name}.byte_at"],
    )


def _bytes_array(text: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(text, dtype=np.uint8)
