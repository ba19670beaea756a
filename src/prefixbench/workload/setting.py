"""What is given before prefixes are chosen: requests, places, wanted hits, and their range."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.order import Leaders, resolve_order
from prefixbench.config.planning import BudgetPolicy
from prefixbench.config.target import TargetSemantics
from prefixbench.workload.capacity import LruCaches, Stored, stored_blocks
from prefixbench.workload.columns import Geometry, IntArray, Workload, sums_by
from prefixbench.workload.counting import Counting, InOrder, Unlimited
from prefixbench.workload.domains import Domains, build_domains
from prefixbench.workload.lag import Sending, Visibility
from prefixbench.workload.order import Arrangement, arrange, positions
from prefixbench.workload.requests import draw_workload
from prefixbench.workload.routing import Routes, caches_depend_on_order, depends_on_order, route
from prefixbench.workload.targets import Targets, resolve_targets
from prefixbench.workload.tree import Level, Tree, tree_of

_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True, kw_only=True)
class Frame:
    """What the tokenizer and the template add to every prompt, in tokens."""

    head_len: int = 0
    tail_len: int = 0
    shortest: int = 1


@dataclass(frozen=True, kw_only=True)
class Range:
    """Least and most hits that plans of the run have, in blocks."""

    least: int
    most: int


@dataclass(frozen=True, kw_only=True)
class GroupRange:
    """As `Range`, for each group."""

    least: IntArray
    most: IntArray


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Everything a plan depends on, rows in generation order.

    What follows from it (order, places, domains, range) is computed when it is asked for.
    `assumed` are the prefixes that an order by prefixes is taken from before there is a plan: the
    largest ones unless given.
    """

    config: PrefixCacheDatasetConfig
    workload: Workload
    geometry: Geometry
    targets: Targets
    assumed: IntArray | None = None

    @property
    def order_prefixes(self) -> IntArray:
        """The prefixes that an order by prefixes follows."""
        return self.most_prefixes if self.assumed is None else self.assumed

    @cached_property
    def arrangement(self) -> Arrangement:
        return arrangement_of(self.config)

    @cached_property
    def order(self) -> IntArray:
        """Row numbers in sending order."""
        return arrange(self.workload, self.arrangement, self.config.seed, self.order_prefixes)

    @cached_property
    def routes(self) -> Routes:
        routing = self.config.routing
        order = self.order if depends_on_order(routing) else _NO_ROWS
        return route(self.workload, routing, order)

    @cached_property
    def domains(self) -> Domains:
        return self.domains_under(self.routes, warmed=self.config.execution.mode.is_warmed)

    def domains_under(self, routes: Routes, *, warmed: bool) -> Domains:
        """The domains that first turns make under some routing."""
        first_turns = self.workload.first_turns
        return build_domains(
            first_turns,
            routes.cache[: first_turns.request_count],
            head_blocks=self.geometry.head_blocks,
            warmed=warmed,
            levels_of=self._levels_of if self.tree else None,
        )

    def _levels_of(self, leaf: IntArray, cache: IntArray) -> tuple[Level, ...]:
        assert self.tree is not None
        return self.tree.levels(
            leaf,
            cache,
            head_len=self.geometry.head_len,
            granularity=self.geometry.granularity,
        )

    @cached_property
    def tree(self) -> Tree | None:
        """The tree whose leaves are the groups; None where groups share nothing but the head."""
        return tree_of(self.config.prefix.tree)

    @cached_property
    def history_blocks(self) -> IntArray:
        """What each later turn finds of its own history, whatever is planned."""
        workload, granularity = self.workload, self.geometry.granularity
        if workload.history_len is None:
            return _NO_ROWS
        later = slice(workload.first_turn_count, None)
        computed = (workload.input_len[later] - 1) // granularity
        history: IntArray = np.minimum(workload.history_len[later] // granularity, computed)
        return np.maximum(history, self.geometry.head_blocks)

    @cached_property
    def least_prefixes(self) -> IntArray:
        """The head's blocks, in every request; in later turns their history."""
        head: IntArray = np.array(self.geometry.head_blocks, np.int32)
        least = np.broadcast_to(head, self.workload.first_turn_count)
        return np.concatenate((least, self.history_blocks)) if len(self.history_blocks) else least

    @cached_property
    def most_prefixes(self) -> IntArray:
        """The largest prefix of every request; one for a whole group unless nested."""
        most = self.geometry.longest_prefixes(self.workload.input_len)
        if not self.config.prefix.nested_prefix:
            return self.least_of_group(most)
        if self.tree is not None and self.tree.depth is not None:
            deepest = self.geometry.head_len + self.tree.depth
            most = np.minimum(most, deepest // self.geometry.granularity)
        if len(self.history_blocks):
            most[self.workload.first_turn_count :] = self.history_blocks
        return most

    @property
    def capacity_blocks(self) -> int | None:
        """The planned capacity of each cache, in steps of hits; None without limit."""
        blocks = self.config.planning.capacity_blocks
        if blocks is None:
            return None
        return blocks * self.geometry.block_size // self.geometry.granularity

    def in_cache_blocks(self, steps: int) -> int:
        """So many steps of hits as cache blocks, rounded up."""
        return -(-steps * self.geometry.granularity // self.geometry.block_size)

    @property
    def counts_prefixes(self) -> bool:
        """Whether the target counts shared prefixes (static) instead of hits in the run.

        In a warmed cache of limited size not everything that is shared is found.
        """
        static = self.config.target.semantics is TargetSemantics.STATIC_PREFIX_RATIO
        evicted = self.capacity_blocks is not None and self.domains.warmed
        return static and not evicted

    @property
    def keeps_all(self) -> bool:
        """Whether every request finds what all earlier ones left: then the order is no matter."""
        in_turn = self.domains.warmed or self.config.planning.concurrency == 1
        return in_turn and self.capacity_blocks is None

    @property
    def budget_policy(self) -> BudgetPolicy:
        """The wanted policy.

        Budgets of groups give way where groups do not hit independently: in a cache of limited
        size, in a tree, and where planned prefixes say which group is next.
        """
        mixed = self.arrangement.across_by_prefix and self._hits_follow_order(by_group=True)
        if mixed or self.capacity_blocks is not None or self.tree is not None:
            return BudgetPolicy.GLOBAL_RATIO
        return self.config.planning.budget_policy

    @property
    def splits_by_group(self) -> bool:
        """Whether every group has wanted hits of its own."""
        proportional = self.budget_policy is BudgetPolicy.PROPORTIONAL
        return proportional or self.targets.by_group is not None

    @property
    def hits_depend_on_order(self) -> bool:
        """Whether what the target counts depends on the order."""
        return self._hits_follow_order(by_group=self.splits_by_group)

    def _hits_follow_order(self, *, by_group: bool) -> bool:
        if self.counts_prefixes:
            return False
        # The head of a cold cache is the loss of the group that opens it.
        opened = by_group and self.geometry.head_blocks > 0
        by_place = caches_depend_on_order(self.config.routing)
        return opened or by_place or not self.keeps_all

    @property
    def waited_for(self) -> int:
        """Leaders at the front that finish before anything else is sent."""
        return int((self.workload.group_sizes > 0).sum()) if self.arrangement.barrier else 0

    @cached_property
    def sending(self) -> Sending:
        return Sending(self.domains, self.order, self.waited_for)

    @cached_property
    def visibility(self) -> Visibility:
        """What each request sees at the planned concurrency; rows as in `sending.rows`."""
        return self.sending.visibility(self.config.planning.concurrency)

    @cached_property
    def counting(self) -> Counting:
        """How the target counts hits: what is shared, or what the headline run finds."""
        return self._unlimited(cold=False) if self.counts_prefixes else self.headline

    @cached_property
    def headline(self) -> Unlimited | InOrder:
        """How the headline run finds hits, at the planned concurrency."""
        unlimited = self._unlimited(cold=not self.domains.warmed)
        if self.keeps_all:
            return unlimited
        if self.lru is not None:
            in_sending_order = positions(self.order)[unlimited.rows]
            return InOrder(
                rows=self.order,
                place=np.arange(len(self.order)),
                hits_each=self.lru.hits_each,
                most_hits=lambda prefixes: unlimited.hits(prefixes[in_sending_order]),
            )
        return InOrder(
            rows=self.sending.rows,
            place=self.visibility.place,
            hits_each=self.visibility.hits_each,
        )

    def _unlimited(self, *, cold: bool) -> Unlimited:
        runs = replace(self.domains.runs, cold=cold, head_loss=self.domains.head_loss * cold)
        return Unlimited(rows=self.domains.by_domain, runs=runs)

    def counting_by_group(self) -> Iterator[tuple[int, slice, Counting]]:
        """Each group that has requests: its number, its rows of `counting`, how it counts alone.

        Groups share nothing but the head, which the openers of cold caches compute for all.
        """
        whole = self.counting
        opened = np.bincount(self.openers, minlength=len(self.workload.group_ids))
        for group, rows, starts in self.domains.groups():
            own = whole.rows[rows]
            if isinstance(whole, Unlimited):
                lost = self.geometry.head_blocks * int(opened[group]) if whole.runs.cold else 0
                runs = replace(whole.runs, starts=starts, head_loss=lost)
                yield group, rows, Unlimited(rows=own, runs=runs)
            else:
                seen = self.visibility.part(rows)
                yield group, rows, InOrder(rows=own, place=seen.place, hits_each=seen.hits_each)

    @cached_property
    def lru(self) -> LruCaches | None:
        """The caches of limited size, in sending order; None without limit."""
        return None if self.capacity_blocks is None else self.caches_of(self.capacity_blocks)

    def caches_of(self, capacity_blocks: int) -> LruCaches:
        """The planned caches with so many blocks each."""
        return LruCaches(
            stored=self.stored,
            capacity_blocks=capacity_blocks,
            head_blocks=self.geometry.head_blocks,
            warmed=self.domains.warmed,
            lag=self.config.planning.concurrency,
            waited_for=self.waited_for,
        )

    @cached_property
    def stored(self) -> Stored:
        """What each request leaves in its cache, in sending order."""
        workload, order = self.workload, self.order
        blocks = stored_blocks(workload.input_len, workload.output_len, self.geometry.granularity)
        return Stored(
            group=workload.group[order], cache=self.routes.cache[order], blocks=blocks[order]
        )

    @cached_property
    def openers(self) -> IntArray:
        """The groups that open cold caches; of no interest without a shared head block."""
        return self.domains.openers(self.order) if self.geometry.head_blocks else _NO_ROWS

    @cached_property
    def range(self) -> Range:
        return Range(
            least=self.counted_hits(self.least_prefixes),
            most=self.counted_hits(self.most_prefixes),
        )

    @cached_property
    def group_range(self) -> GroupRange:
        return GroupRange(
            least=self.counted_hits_by_group(self.least_prefixes),
            most=self.counted_hits_by_group(self.most_prefixes),
        )

    @property
    def reachable(self) -> bool:
        """Whether the target, and each group's, rounds to hits that some plan has."""
        if self.targets.by_group is None:
            return self.range.least <= self.targets.total <= self.range.most
        wanted = np.array(self.targets.by_group)
        inside = (self.group_range.least <= wanted) & (wanted <= self.group_range.most)
        return bool(inside.all())

    @property
    def history_hits(self) -> int:
        """Blocks that later turns find of their histories."""
        return int(self.history_blocks.sum())

    @cached_property
    def history_hits_by_group(self) -> IntArray:
        later = self.workload.group[self.workload.first_turn_count :]
        return sums_by(later, self.history_blocks, len(self.workload.group_ids))

    def run_hits(self, prefix_blocks: IntArray) -> int:
        """Blocks found cached in the headline run."""
        return self.headline.hits(prefix_blocks[self.headline.rows]) + self.history_hits

    def run_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        """As `run_hits`, for each group."""
        return self._first_hits_by_group(prefix_blocks) + self.history_hits_by_group

    def _first_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        groups, counting = len(self.workload.group_ids), self.headline
        if isinstance(counting, InOrder):
            rows, hits = counting.rows, counting.hits_each(prefix_blocks[counting.rows])
        elif self.tree is not None and not self.domains.warmed:
            # Who computes a shared node is a matter of the order.
            rows = self.sending.rows
            hits = self.visibility.hits_each(prefix_blocks[rows])
        else:
            return self.domains.hits_by_group(prefix_blocks, self.openers, groups)
        return sums_by(self.workload.group[rows], hits, groups)

    def counted_hits(self, prefix_blocks: IntArray) -> int:
        """What the target counts, in blocks."""
        return self.counting.hits(prefix_blocks[self.counting.rows]) + self.history_hits

    def counted_hits_by_group(self, prefix_blocks: IntArray) -> IntArray:
        """As `counted_hits`, for each group."""
        if self.counts_prefixes:
            return sums_by(self.workload.group, prefix_blocks, len(self.workload.group_ids))
        return self.run_hits_by_group(prefix_blocks)

    def least_of_group(self, values: IntArray) -> IntArray:
        """For each request the least value in its group."""
        least = np.full(len(self.workload.group_ids), np.iinfo(np.int32).max, np.int32)
        np.minimum.at(least, self.workload.group, values)
        return least[self.workload.group]

    def ratio(self, blocks: int) -> Fraction:
        """Blocks as an exact share of all input tokens."""
        return Fraction(blocks * self.geometry.granularity, self.workload.input_tokens)

    def group_ratio(self, group: int, blocks: int) -> Fraction | None:
        """Blocks as an exact share of a group's input tokens; None for a group without requests."""
        tokens = int(self.workload.group_input_tokens[group])
        return Fraction(blocks * self.geometry.granularity, tokens) if tokens else None


def set_up(
    config: PrefixCacheDatasetConfig, block_size: int, frame: Frame | None = None
) -> Setting:
    """Draw the requests; raises LengthError for one that cannot exist."""
    frame = frame or Frame()
    return settle(
        config, draw_workload(config, frame.shortest), geometry_of(config, block_size, frame)
    )


def settle(config: PrefixCacheDatasetConfig, workload: Workload, geometry: Geometry) -> Setting:
    """The setting of requests that are there already."""
    return Setting(
        config=config,
        workload=workload,
        geometry=geometry,
        targets=resolve_targets(config.target, workload, geometry.granularity),
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
        reuse_distance=words.reuse_distance,
        leaders_first=words.leaders in (Leaders.FIRST, Leaders.BARRIER),
        barrier=words.leaders is Leaders.BARRIER,
    )
