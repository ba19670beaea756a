"""Which block size a data set is made for, and who said so (RFC 3.2.3).

In this order: a server profile, the server's start parameters, the configuration, the default of
the engine profile with a warning. Sources that disagree are an error that names both: a data set
for another block size than the server's misses its target.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from itertools import pairwise

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.log import event
from prefixbench.dataset.description import BlockSize
from prefixbench.dataset.server_profile import ServerStatement
from prefixbench.simulator.profile import get_profile

log = logging.getLogger(__name__)


def resolve_block_size(
    config: PrefixCacheDatasetConfig, statements: Sequence[ServerStatement] = ()
) -> tuple[PrefixCacheDatasetConfig, BlockSize]:
    """The block size and its source, and the configuration with the known hit granularity.

    `statements` come in the order of their precedence.
    """
    said = [*statements, _statement_of(config)]
    granularity = _agreed(said, "hit_granularity")
    if granularity is not None:
        config = config.model_copy(update={"hit_granularity": granularity[0]})
    block_size = _agreed(said, "block_size")
    if block_size is not None:
        tokens, source = block_size
        return config, BlockSize(tokens=tokens, source=source)
    return config, _engine_default(config)


def _statement_of(config: PrefixCacheDatasetConfig) -> ServerStatement:
    return ServerStatement(
        source="configuration",
        block_size=config.block_size,
        hit_granularity=config.hit_granularity,
    )


def _agreed(said: Sequence[ServerStatement], name: str) -> tuple[int, str] | None:
    """The size that all who say one agree on, and the first of them."""
    sizes = [(getattr(one, name), one.source) for one in said if getattr(one, name) is not None]
    for (size, source), (other, other_source) in pairwise(sizes):
        if size != other:
            raise ConfigError(
                f"{name} is {size} by the {source} and {other} by the {other_source}",
                context=ErrorContext(stage=Stage.CONFIG, field=name),
                hint="give the size that the server really uses, once",
            )
    return sizes[0] if sizes else None


def _engine_default(config: PrefixCacheDatasetConfig) -> BlockSize:
    tokens = get_profile(config.engine_profile).block_size
    event(
        log,
        "config.block_size_assumed",
        level=logging.WARNING,
        block_size=tokens,
        engine_profile=config.engine_profile,
        hint="set block_size to what the server uses",
    )
    return BlockSize(tokens=tokens, source="engine_default")
