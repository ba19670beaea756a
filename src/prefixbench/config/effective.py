"""The configuration as it takes effect: what a manifest records."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from prefixbench.config.order import resolve_order

if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig


def effective_settings(config: PrefixCacheDatasetConfig) -> dict[str, Any]:
    """Every setting with its default, JSON-able, without paths and addresses."""
    settings = config.model_dump(mode="json")
    order = resolve_order(config)
    settings["request_order"] = {
        "within_group": order.within.value,
        "across_group": None if order.reuse_distance else order.across.value,
        "reuse_distance": order.reuse_distance,
        "leaders": order.leaders.value,
        "preserve_group_dependency": config.request_order.preserve_group_dependency,
    }
    settings["prefix"]["source"] = config.prefix_source.source.value
    for section in ("input_length", "output_length", "prefix", "suffix"):
        _reduce_to_name(settings[section], "path")
    _reduce_to_name(settings, "tokenizer")
    for addresses in ("urls", "metrics_urls"):  # where it runs is the run's own record
        del settings["execution"][addresses]
    return settings


def _reduce_to_name(settings: dict[str, Any], key: str) -> None:
    if settings.get(key):
        settings[key] = PurePath(settings[key]).name
