"""The names a vLLM server gives its cache blocks, so that its KV events can be joined with a plan.

Block i of a request is named `h_i = H((h_{i-1}, its tokens, extra))`, block 0 has a constant for a
parent (vLLM 0.33 `v1/core/kv_cache_utils.py`, `hash_block_tokens`). `extra` is None or a tuple of
tagged parts in this order: adapter, multimodal items, cache salt (block 0 alone), prompt
embeddings; it is so since vLLM 0.31. Only full blocks have a name.

H pickles (highest protocol) or encodes as canonical CBOR, then takes SHA-256 or XXH3-128
(`prefix_caching_hash_algo`). A pickle depends on which of the parts are one and the same object:
an adapter whose name equals its path, or one item twice in a block, may differ from the server's.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from types import ModuleType
from typing import Any

from prefixbench.core.errors import ConfigError, ErrorContext, Stage

#: What the constant is made of where PYTHONHASHSEED is not set (vLLM 0.29 on, SHA-256 alone).
DEFAULT_HASH_SEED = "vllm-none-hash"

_EVENT_ID_BYTES = 8


class HashAlgorithm(StrEnum):
    """The values of vLLM's `prefix_caching_hash_algo`."""

    SHA256 = "sha256"
    SHA256_CBOR = "sha256_cbor"
    XXHASH = "xxhash"
    XXHASH_CBOR = "xxhash_cbor"

    @property
    def is_cryptographic(self) -> bool:
        return self in (HashAlgorithm.SHA256, HashAlgorithm.SHA256_CBOR)


@dataclass(frozen=True, slots=True)
class MultimodalItem:
    """An image or the like: what vLLM calls it, and the tokens that stand for it."""

    identifier: str
    offset: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExtraKeys:
    """What, beside its tokens, makes a request's blocks its own.

    `adapter` is name and path; `items` ascend by offset; `prompt_embeds` is the SHA-256 of each
    full block's embeddings.
    """

    adapter: tuple[str, str] | None = None
    items: tuple[MultimodalItem, ...] = ()
    cache_salt: str | None = None
    prompt_embeds: tuple[bytes, ...] = ()

    def of_block(self, index: int, block_size: int) -> tuple[tuple[Any, ...], ...] | None:
        """The tagged parts of one block; None where there are none."""
        return tuple(self._parts(index, block_size)) or None

    def _parts(self, index: int, block_size: int) -> Iterator[tuple[Any, ...]]:
        start, end = index * block_size, (index + 1) * block_size
        if self.adapter is not None:
            yield ("lora", *self.adapter)
        for item in self.items:
            if item.offset < end and start < item.offset + item.length:
                yield ("mm", item.identifier, item.offset - start)
        if self.cache_salt and index == 0:
            yield ("cache_salt", self.cache_salt)
        if self.prompt_embeds:
            yield ("prompt_embeds", self.prompt_embeds[index])


PLAIN = ExtraKeys()


def none_hash(algorithm: HashAlgorithm, hash_seed: str | None = None) -> bytes:
    """The parent of every first block; `hash_seed` is the server's PYTHONHASHSEED.

    Without one a constant holds for SHA-256; for XXH3 the server draws its own.
    """
    if hash_seed is None and not algorithm.is_cryptographic:
        raise ConfigError(
            f"without PYTHONHASHSEED a server that hashes with {algorithm} draws a seed of its own",
            context=ErrorContext(stage=Stage.METRICS, field="hash_seed"),
            hint="start the server with PYTHONHASHSEED=0 and name that seed,"
            " or use prefix_caching_hash_algo sha256",
        )
    digest: bytes = _hash(algorithm)(DEFAULT_HASH_SEED if hash_seed is None else hash_seed)
    return digest


def block_hashes(
    tokens: Sequence[int],
    block_size: int,
    algorithm: HashAlgorithm = HashAlgorithm.SHA256,
    *,
    hash_seed: str | None = None,
    extra: ExtraKeys = PLAIN,
) -> list[bytes]:
    """The name of every full block of a token sequence."""
    digest_of = _hash(algorithm)
    parent = none_hash(algorithm, hash_seed)
    names = []
    for index in range(len(tokens) // block_size):
        block = tuple(map(int, tokens[index * block_size : (index + 1) * block_size]))
        parent = digest_of((parent, block, extra.of_block(index, block_size)))
        names.append(parent)
    return names


def event_id(name: bytes) -> int:
    """A block's name as KV events publish it: its last 64 bits, as a number.

    vLLM does so unless VLLM_KV_EVENTS_USE_INT_BLOCK_HASHES=0, which publishes the whole name.
    """
    return int.from_bytes(name[-_EVENT_ID_BYTES:], "big")


def _hash(algorithm: HashAlgorithm) -> Callable[[Any], bytes]:
    encode, digest = _encoder(algorithm), _digest(algorithm)
    return lambda value: digest(encode(value))


def _encoder(algorithm: HashAlgorithm) -> Callable[[Any], bytes]:
    if algorithm in (HashAlgorithm.SHA256, HashAlgorithm.XXHASH):
        return lambda value: pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    cbor = _package("cbor2", algorithm)
    return lambda value: cbor.dumps(value, canonical=True)


def _digest(algorithm: HashAlgorithm) -> Callable[[bytes], bytes]:
    if algorithm.is_cryptographic:
        return lambda content: hashlib.sha256(content).digest()
    xxhash = _package("xxhash", algorithm)
    return lambda content: xxhash.xxh3_128_digest(content)


def _package(name: str, algorithm: HashAlgorithm) -> ModuleType:
    try:
        return import_module(name)
    except ImportError as error:
        raise ConfigError(
            f"block hashes of {algorithm} need the package {name}",
            context=ErrorContext(stage=Stage.METRICS, field="hash_algo"),
            hint="python -m pip install 'prefixbench[hashes]'",
        ) from error
