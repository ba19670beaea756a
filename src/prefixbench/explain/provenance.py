"""Where the numbers come from: versions, hashes, server, cache states; no path, key or address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from prefixbench.core.version import RULE_VERSION, __version__
from prefixbench.explain.run_files import RunRecord
from prefixbench.explain.wording import pick

_MANIFEST_KEYS = (
    "prefixbench_version",
    "format_version",
    "seed",
    "request_count",
    "block_size",
    "block_size_source",
    "hit_granularity",
    "hit_definition",
    "engine_profile",
    "budget_policy",
    "head_len",
    "tail_len",
    "config_sha256",
)
_RUN_KEYS = (
    "mode",
    "versions",
    "command",
    "concurrency",
    "request_rate",
    "rounds",
    "warmup_rounds",
    "timeouts",
    "isolation",
    "routing",
    "server",
    "started",
    "ended",
)
_HIDDEN = "(set)"


def provenance(record: RunRecord) -> dict[str, Any]:
    """What a reader needs to repeat the run, or to see why another one differs."""
    manifest = record.manifest.data
    return {
        "report_version": __version__,
        "rule_version": RULE_VERSION,
        "dataset": {
            **{key: manifest.get(key) for key in _MANIFEST_KEYS},
            "tokenizer": manifest.get("tokenizer"),
            "corpus": manifest.get("corpus"),
            "verification": record.validation.get("verification"),
            "robust_to_concurrency": record.validation.get("robust_to_concurrency"),
        },
        "run": {key: record.run.get(key) for key in _RUN_KEYS},
        "adapter": record.counters.get("adapter"),
        "unit": record.counters.get("unit"),
        "config": without_salts(record.manifest.config),
    }


def without_salts(config: Mapping[str, Any]) -> dict[str, Any]:
    """The effective configuration; a cache salt keeps tenants apart, so it is not repeated."""
    groups = pick(config, "prefix", "groups")
    if not groups:
        return dict(config)
    hidden = [
        {**group, "cache_salt": _HIDDEN} if group.get("cache_salt") else group for group in groups
    ]
    return {**config, "prefix": {**config["prefix"], "groups": hidden}}
