"""What is given before prefixes are chosen: requests, places, wanted hits, and their range."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.order import Leaders, resolve_order
from prefixbench.config.target import TargetSemantics
from prefixbench.workload.columns import Geometry, IntArray, Workload, sums_by
from prefixbench.workload.domains import Domains, build_domains
from prefixbench.workload.groups import assign_groups, group_weights
from prefixbench.workload.lengths import draw_lengths, refuse_beyond_context
from prefixbench.workload.order import Arrangement, arrange
from prefixbench.workload.routing import Routes, route
from prefixbench.workload.targets import Targets, resolve_targets


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the tokenizer and the template add to every prompt, in tokens."""

    head_len: int = 0
    tail_len: int = 0
    shortest: int = 1


@dataclass(frozen=True, kw_only=True)
class Range:
    """Least and most hits that plans have, in blocks: of the run and of each group."""

    least: int
    most: int
    group_least: IntArray
    group_most: IntArray


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything a plan depends on, rows in generation order."""

    config: PrefixCacheDatasetConfig
    workload: Workload
    geometry: Geometry
    targets: Targets
    order: IntArray
    routes: Routes
    domains: Domains

    @cached_property
    def least_prefixes(self) -> IntArray:
        """The head's blocks, in every request."""
        return np.full(self.workload.request_count, self.geometry.head_blocks, np.int64)

    @cached_property
    def most_prefixes(self) -> IntArray:
        """The largest prefix of every request; one for a whole group unless nested."""
        most = self.geometry.longest_prefixes(self.workload.input_len)
        return most if self.config.prefix.nested_prefix else self.least_of_group(most)

    @cached_property
    def range(self) -> Range:
        least, most = self.least_prefixes, self.most_prefixes
        return Range(
            least=self.counted_hits(least),
            most=self.counted_hits(most),
            group_least=self.counted_hits_by_group(least),
            group_most=self.counted_hits_by_group(most),
        )

    @property
    def reachable(self) -> bool:
        """Whether the target, and each group's, rounds to hits that some plan has."""
        if self.targets.by_group is None:
            return self.range.least <= self.targets.total <= self.range.most
        wanted = np.array(self.targets.by_group)
        inside = (self.range.group_least <= wanted) & (wanted <= self.range.group_most)
        return bool(inside.all())

    @property
    def counts_prefixes(self) -> bool:
        """Whether the target counts shared prefixes (static) instead of hits in the run."""
        return self.config.target.semantics is TargetSemantics.STATIC_PREFIX_RATIO

    def counted_hits(self, prefix_blocks: IntArray) -> int:
        """What the target counts, in blocks."""
        if self.counts_prefixes:
            return int(prefix_blocks.sum())
        return self.domains.hits(prefix_blocks)

    def counted_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        """As `counted_hits`, for each group."""
        groups = len(self.workload.group_ids)
        if self.counts_prefixes:
            return sums_by(self.workload.group, prefix_blocks, groups)
        return self.domains.hits_by_group(prefix_blocks, self.domains.openers(self.order), groups)

    def least_of_group(self, values: IntArray) -> IntArray:
        """For each request the least value in its group."""
        least = np.full(len(self.workload.group_ids), np.iinfo(np.int64).max)
        np.minimum.at(least, self.workload.group, values)
        return least[self.workload.group]

    def ratio(self, blocks: int) -> Fraction:
        """Blocks as an exact share of all input tokens."""
        return Fraction(blocks * self.geometry.granularity, self.workload.input_tokens)

    def group_ratio(self, group: int, blocks: int) -> Fraction | None:
        """Blocks as an exact share of a group's input tokens; None for a group without requests."""
        tokens = int(self.workload.group_input_tokens[group])
        return Fraction(blocks * self.geometry.granularity, tokens) if tokens else None

    def reordered(self, prefix_blocks: IntArray) -> Setting:
        """The same requests in the order that these prefixes give, routed anew."""
        order = arrange(self.workload, arrangement_of(self.config), self.config.seed, prefix_blocks)
        routes, domains = _place(self.config, self.workload, self.geometry, order)
        return replace(self, order=order, routes=routes, domains=domains)


def set_up(
    config: PrefixCacheDatasetConfig, block_size: int, frame: Frame | None = None
) -> Setting:
    """Draw the requests and give them places; raises LengthError for one that cannot exist.

    An order that depends on prefixes assumes the largest ones.
    """
    frame = frame or Frame()
    workload = draw_workload(config, frame)
    geometry = geometry_of(config, block_size, frame)
    order = arrange(
        workload,
        arrangement_of(config),
        config.seed,
        geometry.longest_prefixes(workload.input_len),
    )
    routes, domains = _place(config, workload, geometry, order)
    return Setting(
        config=config,
        workload=workload,
        geometry=geometry,
        targets=resolve_targets(config.target, workload, geometry.granularity),
        order=order,
        routes=routes,
        domains=domains,
    )


def draw_workload(config: PrefixCacheDatasetConfig, frame: Frame) -> Workload:
    """Lengths and groups of all requests."""
    input_len = draw_lengths(
        config.input_length, config.request_count, config.seed, shortest=frame.shortest
    )
    output_len = draw_lengths(
        config.output_length, config.request_count, config.seed, purpose="output_length"
    )
    refuse_beyond_context(input_len, output_len, config.max_model_len)
    return Workload(
        input_len=input_len,
        output_len=output_len,
        group=assign_groups(config.prefix, config.request_count, config.seed),
        group_ids=config.prefix.group_ids,
        group_weights=group_weights(config.prefix),
    )


def geometry_of(config: PrefixCacheDatasetConfig, block_size: int, frame: Frame) -> Geometry:
    unshared = config.prefix.minimum_non_shared_length
    return Geometry(
        block_size=block_size,
        granularity=config.hit_granularity or block_size,
        minimum_non_shared_len=block_size if unshared is None else unshared,
        head_len=frame.head_len,
        tail_len=frame.tail_len,
    )


def arrangement_of(config: PrefixCacheDatasetConfig) -> Arrangement:
    """The order words that hold for a configuration, defaults resolved."""
    words = resolve_order(config)
    return Arrangement(
        within=words.within,
        across=words.across,
        leaders_first=words.leaders in (Leaders.FIRST, Leaders.BARRIER),
    )


def _place(
    config: PrefixCacheDatasetConfig, workload: Workload, geometry: Geometry, order: IntArray
) -> tuple[Routes, Domains]:
    routes = route(workload, config.routing, order)
    domains = build_domains(
        workload,
        routes,
        head_blocks=geometry.head_blocks,
        warmed=config.execution.mode.is_warmed,
    )
    return routes, domains
