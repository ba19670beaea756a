"""Which block size a data set is made for, and who said so (RFC 3.2.3).

In this order: the probe or a server profile, the server's start parameters, the configuration,
the default of the engine profile with a warning.
"""

from __future__ import annotations

import logging

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.core.log import event
from prefixbench.dataset.description import BlockSize
from prefixbench.simulator.profile import get_profile

log = logging.getLogger(__name__)


def resolve_block_size(config: PrefixCacheDatasetConfig) -> BlockSize:
    """The configured block size, else the engine's default, said on the log."""
    if config.block_size is not None:
        return BlockSize(tokens=config.block_size, source="configuration")
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
