"""Block names equal those of a real vLLM, and those that the encodings' own books give.

`golden/data/block_hashes_vllm.json` was written by vLLM 0.32.0 (CPU), its own request hasher and
its own KV events: `tests/live/vllm_block_hashes.py` renews it.
"""

from __future__ import annotations

import json
import sys
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hash_oracles import cbor, pickled
from prefixbench.core.errors import ConfigError
from prefixbench.exchange.block_hash import (
    ExtraKeys,
    HashAlgorithm,
    MultimodalItem,
    block_hashes,
    event_id,
    none_hash,
)

GOLDEN = json.loads(
    (Path(__file__).parents[1] / "golden" / "data" / "block_hashes_vllm.json").read_text()
)
TOKENS, BLOCK = GOLDEN["tokens"], GOLDEN["block_size"]


def extra_of(row: dict[str, Any]) -> ExtraKeys:
    return ExtraKeys(
        adapter=tuple(row["lora"]) if "lora" in row else None,
        items=tuple(MultimodalItem(*item) for item in row.get("items", ())),
        cache_salt=row.get("cache_salt"),
        prompt_embeds=tuple(bytes.fromhex(one) for one in row["prompt_embeds"])
        if row.get("prompt_embeds")
        else (),
    )


@pytest.mark.parametrize("row", GOLDEN["rows"], ids=lambda row: f"{row['algorithm']}-{row['case']}")
def test_names_are_those_of_a_real_vllm(row: dict[str, Any]) -> None:
    algorithm = HashAlgorithm(row["algorithm"])
    assert none_hash(algorithm, row["hash_seed"]).hex() == row["none_hash"]
    names = block_hashes(TOKENS, BLOCK, algorithm, hash_seed=row["hash_seed"], extra=extra_of(row))
    assert len(names) == 3
    assert [name.hex() for name in names] == row["hashes"]
    if "event_ids" in row:
        assert [event_id(name) for name in names] == row["event_ids"]


def test_the_recorded_cases_cover_every_algorithm_and_event() -> None:
    assert {row["algorithm"] for row in GOLDEN["rows"]} == set(HashAlgorithm)
    assert sum("event_ids" in row for row in GOLDEN["rows"]) == len(HashAlgorithm)


EXTRAS = st.builds(
    ExtraKeys,
    adapter=st.none() | st.just(("support", "/adapters/support")),
    items=st.sampled_from([(), (MultimodalItem("a", 1, 3), MultimodalItem("b", 6, 4))]),
    cache_salt=st.none() | st.text(min_size=1, max_size=9),
)


@given(st.lists(st.integers(0, 2**40), max_size=14), EXTRAS, st.booleans())
def test_sha256_names_by_the_books(tokens: list[int], extra: ExtraKeys, as_cbor: bool) -> None:
    encode = cbor if as_cbor else pickled
    algorithm = HashAlgorithm.SHA256_CBOR if as_cbor else HashAlgorithm.SHA256
    parent = sha256(encode("vllm-none-hash")).digest()
    expected = []
    for index in range(len(tokens) // 4):
        parts = parts_of(extra, index)
        block = tuple(tokens[4 * index : 4 * index + 4])
        parent = sha256(encode((parent, block, parts or None))).digest()
        expected.append(parent)
    assert block_hashes(tokens, 4, algorithm, extra=extra) == expected


def parts_of(extra: ExtraKeys, index: int) -> tuple[tuple[object, ...], ...]:
    """Adapter, items, salt: written out for blocks of four tokens."""
    parts: list[tuple[object, ...]] = []
    if extra.adapter:
        parts.append(("lora", "support", "/adapters/support"))
    if extra.items:
        parts += {
            0: [("mm", "a", 1)],
            1: [("mm", "b", 2)],
            2: [("mm", "b", -2)],
        }.get(index, [])
    if extra.cache_salt and index == 0:
        parts.append(("cache_salt", extra.cache_salt))
    return tuple(parts)


def test_a_name_covers_everything_before_it() -> None:
    one = block_hashes(range(12), 4)
    other = block_hashes([0, 1, 2, 99, *range(4, 12)], 4)
    assert not set(one) & set(other)
    assert block_hashes([*range(8), 50, 51, 52, 53], 4)[:2] == one[:2]


def test_a_salt_alone_separates_every_block() -> None:
    salted = block_hashes(range(12), 4, extra=ExtraKeys(cache_salt="x"))
    assert not set(salted) & set(block_hashes(range(12), 4))


def test_a_seed_of_the_environment_wins() -> None:
    assert none_hash(HashAlgorithm.SHA256, "0") == sha256(pickled("0")).digest()


def test_an_unknown_seed_is_said() -> None:
    with pytest.raises(ConfigError, match="draws a seed of its own") as raised:
        none_hash(HashAlgorithm.XXHASH)
    assert "PYTHONHASHSEED" in raised.value.hint


@pytest.mark.parametrize(
    ("package", "algorithm"),
    [("xxhash", HashAlgorithm.XXHASH), ("cbor2", HashAlgorithm.SHA256_CBOR)],
)
def test_a_missing_package_is_named(
    package: str, algorithm: HashAlgorithm, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=f"need the package {package}") as raised:
        block_hashes([1], 1, algorithm, hash_seed="0")
    assert "prefixbench[hashes]" in raised.value.hint
    assert block_hashes([1], 1)
