"""The shapes of a data set's files, as far as they are read again (contract, section 3)."""

from __future__ import annotations

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.config.suffix import CacheMatchSemantics
from prefixbench.core.records import CacheScope, ValidationStatus
from prefixbench.core.shapes import (
    COUNT,
    FLAG,
    INTEGER,
    NUMBER,
    OBJECT,
    POSITIVE,
    TEXT,
    Needed,
    Shape,
    one_of,
)

_NAME, _COUNT, _OBJECT = Needed(TEXT), Needed(COUNT), Needed(OBJECT)

_CORPUS: dict[str, Shape] = {"name": _NAME, "rows": _COUNT, "sha256": _NAME}

#: `config` has a hash of its own, so its sections are as they were written.
MANIFEST: dict[str, Shape] = {
    "seed": Needed(INTEGER),
    "request_count": _COUNT,
    "block_size": Needed(POSITIVE),
    "hit_granularity": Needed(POSITIVE),
    "head_len": _COUNT,
    "tail_len": _COUNT,
    "warmed": Needed(FLAG),
    "execution_mode": _NAME,
    "engine_profile": _NAME,
    "prompt_format": Needed(one_of(PromptFormat)),
    "config": _OBJECT,
    "config_sha256": _NAME,
    "tokenizer": Needed({"name": _NAME, "fingerprint": _NAME}),
    "corpus": Needed(_CORPUS),
    "prefix_corpus": _CORPUS,
    "suffix": Needed(
        {
            "collision_detection": Needed(
                {"cache_match_semantics": Needed(one_of(CacheMatchSemantics))}
            )
        }
    ),
    "routing": Needed({"cache_scope": Needed(one_of(CacheScope))}),
    "theoretical_result": _OBJECT,
    "groups": Needed([{"id": _NAME}]),
    "input_length_statistics": Needed({"max": _COUNT}),
    "warmup_filler": {"text": TEXT, "id": COUNT},
    "opening_words": [TEXT],
    "opening_word_ids": [COUNT],
}

DATA_ROW: dict[str, Shape] = {
    "request_id": _NAME,
    "prompt": TEXT,
    "prompt_token_ids": [COUNT],
    "messages": [{"content": _NAME}],
    "max_tokens": _COUNT,
    "model": TEXT,
    "cache_salt": TEXT,
}

RECIPE_ROW: dict[str, Shape] = {
    **DATA_ROW,
    "recipe": Needed({"request": _COUNT, "retry": _COUNT}),
    "prompt_sha256": _NAME,
}

METADATA_ROW: dict[str, Shape] = {
    **dict.fromkeys(("request_id", "prefix_group_id"), _NAME),
    **dict.fromkeys(
        (
            "order_index", "input_len", "output_len", "planned_prefix_len", "expected_hit_len",
            "divergence_len", "planned_dp_id", "planned_instance_id",
        ),
        _COUNT,
    ),
    "suffix_len": Needed(INTEGER),
    "expected_hit_ratio": Needed(NUMBER),
    "history_request_id": TEXT,
}  # fmt: skip

VALIDATION_REPORT: dict[str, Shape] = {
    **dict.fromkeys(
        ("designed_hit_ratio", "deviation_pp", "pass_tolerance", "warning_tolerance"),
        Needed(NUMBER),
    ),
    "target_hit_ratio": NUMBER,
    "max_reachable_hit_ratio": NUMBER,
    "validation_status": Needed(one_of(ValidationStatus)),
    "input_tokens": _COUNT,
    "expected_hit_tokens": _COUNT,
    "per_group": Needed([{"id": _NAME}]),
    "reachable": FLAG,
}
