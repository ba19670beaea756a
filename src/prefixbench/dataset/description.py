"""What the manifest says of a data set: everything but its texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from prefixbench.config.lengths import HistogramLength
from prefixbench.core.records import PrefixGroupPlan
from prefixbench.core.version import FORMAT_VERSION, RULE_VERSION, __version__
from prefixbench.dataset.layout import canonical_sha256
from prefixbench.dataset.materials import Materials
from prefixbench.workload.certificate import certificate
from prefixbench.workload.lengths import length_statistics
from prefixbench.workload.planner import Plan
from prefixbench.workload.rows import group_plans

#: How hits are counted: full blocks, never the last token, as tokens of all input tokens.
HIT_DEFINITION = "tokens_engine"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockSize:
    """Tokens in a cache block, and who said so."""

    tokens: int
    source: str


def identity_sha256(
    plan: Plan, materials: Materials, block_size: BlockSize, *, with_ids: bool
) -> str:
    """One hash over everything that determines the bytes of a data set."""
    return canonical_sha256(
        {
            "config": plan.config.effective(),
            "block_size": block_size.tokens,
            "tokenizer": materials.tokenizer.fingerprint,
            "corpora": [corpus.sha256 for corpus in materials.corpora],
            "rules": RULE_VERSION,
            "version": __version__,
            "with_ids": with_ids,
        }
    )


def describe(
    plan: Plan,
    materials: Materials,
    block_size: BlockSize,
    report: Mapping[str, Any],
    collision: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest but for identity, status and the files' hashes, which the writer adds."""
    config = plan.config
    effective = config.with_block_size(block_size.tokens).effective()
    corpora = [
        {"name": corpus.name, "rows": corpus.rows, "sha256": corpus.sha256}
        for corpus in materials.corpora
    ]
    return {
        "dataset_id": config.dataset_id,
        "format_version": FORMAT_VERSION,
        "generator_version": __version__,
        "prefixbench_version": __version__,
        "seed": config.seed,
        "tokenizer": {
            "name": materials.tokenizer.name,
            "version": materials.tokenizer.version,
            "fingerprint": materials.tokenizer.fingerprint,
            "vocab_size": materials.tokenizer.vocab_size,
        },
        "corpus": corpora[0],
        "prefix_corpus": corpora[1] if len(corpora) > 1 else None,
        "block_size": block_size.tokens,
        "block_size_source": block_size.source,
        "hit_granularity": plan.geometry.granularity,
        "hit_definition": HIT_DEFINITION,
        "engine_profile": config.engine_profile,
        "request_count": plan.workload.request_count,
        "execution_mode": config.execution.mode.value,
        "warmed": plan.domains.warmed,
        "prompt_format": config.prompt_format.value,
        "target": effective["target"],
        "input_length": effective["input_length"],
        "output_length": effective["output_length"],
        "prefix": {
            "mode": config.prefix.mode.value,
            "group_count": len(plan.workload.group_ids),
            "minimum_non_shared_length": plan.geometry.minimum_non_shared_len,
            "nested_prefix": config.prefix.nested_prefix,
        },
        "suffix": effective["suffix"],
        "request_order": effective["request_order"],
        "routing": effective["routing"],
        "budget_policy": report["budget_policy"],
        "head_len": plan.geometry.head_len,
        "tail_len": plan.geometry.tail_len,
        "theoretical_result": {
            key: report[key]
            for key in (
                "target_hit_ratio",
                "designed_hit_ratio",
                "signed_deviation",
                "absolute_deviation",
                "max_reachable_hit_ratio",
                "validation_status",
            )
        },
        "groups": [_group_row(group) for group in group_plans(plan).values()],
        "input_length_statistics": _statistics(plan),
        "collision": dict(collision),
        "warmup_filler": _filler(materials),
        "opening_words": [word.text for word in materials.opening_words],
        "opening_word_ids": [word.id for word in materials.opening_words],
        "config": effective,
        "config_sha256": canonical_sha256(effective),
        "certificate": {
            "plan": certificate(plan),
            "tokenizer": materials.pool.certificate.to_json(),
        },
    }


def _group_row(group: PrefixGroupPlan) -> dict[str, Any]:
    return {
        "id": group.group_id,
        "request_weight": group.request_weight,
        "request_count": group.request_count,
        "input_tokens": group.input_tokens,
        "master_prefix_len": group.master_prefix_len,
        "target_hit_tokens": group.target_hit_tokens,
        "designed_hit_tokens": group.designed_hit_tokens,
        "max_reachable_hit_ratio": group.max_reachable_hit_ratio,
        "cold_start_loss": group.cold_start_loss,
        "head_cold_loss": group.head_cold_loss,
    }


def _statistics(plan: Plan) -> dict[str, Any]:
    lengths = plan.config.input_length
    edges = None
    if isinstance(lengths, HistogramLength):
        edges = [one.range for one in lengths.bins]
    return length_statistics(plan.workload.input_len, plan.config.seed, edges)


def _filler(materials: Materials) -> dict[str, Any]:
    filler = materials.warmup_filler
    return {
        "text": filler.text,
        "id": filler.id,
        "messages_behind": materials.frame.messages_behind,
    }
