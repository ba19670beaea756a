"""Options of the verbs that begin with a configuration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefixbench.cli.output import Output

if TYPE_CHECKING:
    from prefixbench.config.dataset import PrefixCacheDatasetConfig
    from prefixbench.dataset.server_profile import ServerStatement

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
    click.option(
        "--tokenizer", help="builtin, a file that defines a tokenizer, or a folder with one."
    ),
    click.option("--profile", help="Engine whose rules hold (`simulate --profile list`)."),
    click.option(
        "--server-profile",
        type=click.Path(path_type=Path),
        help="JSON file with the server's block_size and hit_granularity.",
    ),
    click.option("--server-args", metavar="'…'", help="The server's start parameters."),
)


def configuration_options(function: _Function) -> _Function:
    """Add the options of `_OPTIONS`, in their order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetRequest:
    """What the command line asks a data set to be, and what it says of the server."""

    config: PrefixCacheDatasetConfig
    server: tuple[ServerStatement, ...]


def read_request(
    output: Output,
    *,
    config: Path,
    changes: tuple[str, ...],
    server_profile: Path | None,
    server_args: str | None,
    **given: Any,
) -> DatasetRequest:
    """The configuration with the command line laid over it; its warnings go to stderr."""
    from prefixbench.config.load import load_config
    from prefixbench.dataset.server_profile import statement_of_arguments, statement_of_profile

    extra = {_SETTINGS[name]: value for name, value in given.items() if value is not None}
    loaded = load_config(config, changes, extra=extra)
    output.warn(loaded.warnings())
    server = []
    if server_profile is not None:
        server.append(statement_of_profile(server_profile))
    if server_args is not None:
        server.append(statement_of_arguments(server_args))
    return DatasetRequest(config=loaded, server=tuple(server))
