"""What replay files look like: checked before anything is replayed, so that errors name the place.

Keys beyond these are nobody's business, except in `config`, where an unknown setting would change
what comes out.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from typing import Any

from prefixbench.core.shapes import (
    COUNT,
    FLAG,
    INTEGER,
    OBJECT,
    POSITIVE,
    TEXT,
    Kind,
    Needed,
    Shape,
    misfit,
)


def _is_segment(value: Any) -> bool:
    match value:
        case ["s", int(), int(length)] | ["s", int(), int(length), int()]:
            return length >= 0
        case ["out", str(), int(length)]:
            return length >= 0
    return False


def _is_objects_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(row, Mapping) for row in value.values())


def _is_lists_by_name(value: Any) -> bool:
    return isinstance(value, Mapping) and all(isinstance(row, list) for row in value.values())


_SEGMENTS: Shape = [Kind('["s", seed, length, start] or ["out", request, length]', _is_segment)]

_CONFIG: Mapping[str, Shape] = {
    "block_size": Needed(POSITIVE),
    "usable_blocks": Needed(POSITIVE),
    "max_num_batched_tokens": POSITIVE,
    "max_num_seqs": POSITIVE,
    "enable_chunked_prefill": FLAG,
    "long_prefill_token_threshold": COUNT,
    "policy": TEXT,
    "enable_prefix_caching": FLAG,
    "max_model_len": POSITIVE,
    "draft_tokens": COUNT,
    "groups": [OBJECT],
}

_STEPS_FILE: Shape = {
    "engine": Needed(TEXT),
    "engine_version": Needed(TEXT),
    "config": Needed(_CONFIG),
    "requests": Needed(
        [
            {
                "id": Needed(TEXT),
                "arrive_step": Needed(COUNT),
                "prompt": Needed(_SEGMENTS),
                "max_tokens": Needed(POSITIVE),
                "salt": TEXT,
                "priority": INTEGER,
            }
        ]
    ),
    "expected": {
        "steps": [{"scheduled": OBJECT, "times": POSITIVE}],
        "requests": Kind("objects by the names of requests", _is_objects_by_name),
        "columns": Kind("lists by name", _is_lists_by_name),
    },
}

_RADIX_CONFIG: Mapping[str, Shape] = {"page_size": Needed(POSITIVE), "eviction": TEXT}

_RADIX_FILE: Shape = {
    "config": Needed(_RADIX_CONFIG),
    "ops": Needed(
        [
            {
                "op": Needed(TEXT),
                "key": _SEGMENTS,
                "salt": TEXT,
                "extra_key": TEXT,
                "tokens": COUNT,
                "match": COUNT,
                "expect": OBJECT,
            }
        ]
    ),
}


def check_steps_file(trace: Mapping[str, Any]) -> None:
    """Raises ValueError with the first thing that is not as it must be."""
    _check(trace, _STEPS_FILE, known_settings=_CONFIG)
    seen: set[str] = set()
    for row in trace["requests"]:
        if row["id"] in seen:
            raise ValueError(f"two requests are named {row['id']!r}")
        seen.add(row["id"])
    references = (
        segment[1]
        for segment in chain.from_iterable(row["prompt"] for row in trace["requests"])
        if segment[0] == "out"
    )
    unknown = next((name for name in references if name not in seen), None)
    if unknown is not None:
        raise ValueError(f"a prompt repeats the answer of {unknown!r}, which is no request")


def check_radix_file(trace: Mapping[str, Any]) -> None:
    """Raises ValueError with the first thing that is not as it must be."""
    _check(trace, _RADIX_FILE, known_settings=_RADIX_CONFIG)


def _check(trace: Mapping[str, Any], shape: Shape, *, known_settings: Mapping[str, Shape]) -> None:
    found = misfit(trace, shape)
    if found is not None:
        raise ValueError(found)
    unknown = next((name for name in trace["config"] if name not in known_settings), None)
    if unknown is not None:
        raise ValueError(f"config.{unknown} is not simulated")
