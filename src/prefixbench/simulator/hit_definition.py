"""Six things that are called "hit rate", so that a number can be compared with a published one.

They differ by several points on one and the same trace. A number is comparable only with one of
the same definition, window, block size and choice of requests; a `DefinedHitRatio` carries all
four. Tallies are pooled; the two means of per-request ratios are offered because others print
them, not because they say what a cache saves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction
from itertools import islice
from math import fsum

from prefixbench.core.blocks import longest_hit
from prefixbench.core.tally import HitTally, Unit, as_rate
from prefixbench.simulator.trace import TraceRequest


class HitDefinition(StrEnum):
    """What counts as a hit, and out of what."""

    BLOCKS = "blocks"
    TOKENS_CAPPED = "tokens_capped"
    TOKENS_ENGINE = "tokens_engine"
    FULL_BLOCKS = "full_blocks"
    MEAN_BLOCK_RATIO = "mean_block_ratio"
    MEAN_TOKEN_RATIO = "mean_token_ratio"


#: Each definition in words, and who uses it (simulation.md, section 5).
MEANINGS = {
    HitDefinition.BLOCKS: "hit blocks out of all blocks, a partial last one included"
    " (prefixlens, kvlint)",
    HitDefinition.TOKENS_CAPPED: "tokens of hit blocks, at most the input, out of input tokens"
    " (llmtrafficlens, kvcache-simulator)",
    HitDefinition.TOKENS_ENGINE: "tokens of full hit blocks, at least one token computed, out of"
    " input tokens (counters of vLLM, Dynamo)",
    HitDefinition.FULL_BLOCKS: "full blocks that hit out of full blocks (close to nano-vLLM)",
    HitDefinition.MEAN_BLOCK_RATIO: "mean of the requests' own block ratios (AIPerf)",
    HitDefinition.MEAN_TOKEN_RATIO: "mean of the requests' own capped token ratios",
}

ALL_REQUESTS = "all requests"


@dataclass(frozen=True, slots=True, kw_only=True)
class DefinedHitRatio:
    """A hit ratio with everything a comparison needs.

    `window` is the share of requests, from the end, that was measured. `tally` is None where the
    definition is a mean; `ratio` is None where nothing was queried.
    """

    definition: HitDefinition
    window: float
    block_size: int
    requests: str
    tally: HitTally | None
    ratio: float | None


def hit_ratio(
    definition: HitDefinition,
    requests: Sequence[TraceRequest],
    hit_blocks: Sequence[int],
    block_size: int,
    *,
    window: float = 1.0,
    chosen: str = ALL_REQUESTS,
) -> DefinedHitRatio:
    """The ratio of the last `window` of the requests, each with the blocks it found.

    `chosen` says in words which requests of the source these are.
    """
    if not 0 < window <= 1:
        raise ValueError(f"a window is a share of the requests in (0, 1], not {window}")
    start = int(len(requests) * (1 - Fraction(str(window))))  # 0.9 is nine tenths, not a bit more
    count, unit = _COUNTS[definition]
    pairs = zip(islice(requests, start, None), islice(hit_blocks, start, None), strict=True)
    counts = [count(request, hits, block_size) for request, hits in pairs]
    tally = None
    if definition in _MEANS:
        ratios = [hits / queries for hits, queries in counts if queries]
        ratio = fsum(ratios) / len(ratios) if ratios else None
    else:
        tally = HitTally(sum(hits for hits, _ in counts), sum(all_ for _, all_ in counts), unit)
        ratio = as_rate(tally)
    return DefinedHitRatio(
        definition=definition,
        window=window,
        block_size=block_size,
        requests=chosen,
        tally=tally,
        ratio=ratio,
    )


def _blocks(request: TraceRequest, hits: int, _block_size: int) -> tuple[int, int]:
    return hits, request.block_count


def _tokens_capped(request: TraceRequest, hits: int, block_size: int) -> tuple[int, int]:
    return min(hits * block_size, request.input_len), request.input_len


def _tokens_engine(request: TraceRequest, hits: int, block_size: int) -> tuple[int, int]:
    most = longest_hit(request.input_len, block_size)
    return min(hits * block_size, most), request.input_len


def _full_blocks(request: TraceRequest, hits: int, block_size: int) -> tuple[int, int]:
    full = request.input_len // block_size
    return min(hits, full), full


#: How one request counts, (hits, queries), and in which unit.
_COUNTS: dict[HitDefinition, tuple[Callable[[TraceRequest, int, int], tuple[int, int]], Unit]] = {
    HitDefinition.BLOCKS: (_blocks, Unit.BLOCK),
    HitDefinition.TOKENS_CAPPED: (_tokens_capped, Unit.TOKEN),
    HitDefinition.TOKENS_ENGINE: (_tokens_engine, Unit.TOKEN),
    HitDefinition.FULL_BLOCKS: (_full_blocks, Unit.BLOCK),
    HitDefinition.MEAN_BLOCK_RATIO: (_blocks, Unit.BLOCK),
    HitDefinition.MEAN_TOKEN_RATIO: (_tokens_capped, Unit.TOKEN),
}

_MEANS = frozenset({HitDefinition.MEAN_BLOCK_RATIO, HitDefinition.MEAN_TOKEN_RATIO})
