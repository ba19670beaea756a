"""Options of the verbs that begin with a configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefixbench.cli.output import Output

if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig

_Function = TypeVar("_Function", bound=Callable[..., Any])

#: Option -> the setting it stands for.
_SETTINGS = {"seed": "seed", "tokenizer": "tokenizer", "profile": "engine_profile"}

_OPTIONS = (
    click.option(
        "--config",
        type=click.Path(path_type=Path),
        required=True,
        help="YAML file (docs/reference/configuration.md).",
    ),
    click.option(
        "--set",
        "changes",
        multiple=True,
        metavar="KEY=VALUE",
        help="Change a setting, e.g. target.hit_ratio=0.6; may repeat.",
    ),
    click.option("--seed", type=int, help="Seed of every draw."),
    click.option("--tokenizer", help="builtin, a tokenizer.json, or a folder with one."),
    click.option("--profile", help="Engine whose rules hold (`simulate --profile list`)."),
)


def configuration_options(function: _Function) -> _Function:
    """Add --config, --set, --seed, --tokenizer and --profile, in this order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def load_configuration(
    output: Output, config: Path, changes: tuple[str, ...], **given: Any
) -> PrefixCacheDatasetConfig:
    """The configuration with the command line laid over it; its warnings go to stderr."""
    from prefixbench.config.load import load_config

    extra = {_SETTINGS[name]: value for name, value in given.items() if value is not None}
    loaded = load_config(config, changes, extra=extra)
    output.warn(loaded.warnings())
    return loaded
