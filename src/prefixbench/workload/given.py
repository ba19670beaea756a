"""What is given before prefixes are chosen: requests, places, bounds, what the target counts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property

import numpy as np

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.order import Leaders, resolve_order
from prefixbench.config.planning import BudgetPolicy
from prefixbench.config.target import TargetSemantics
from prefixbench.workload.capacity import Stored, stored_blocks
from prefixbench.workload.columns import Geometry, IntArray, Workload
from prefixbench.workload.domains import Domains, build_domains
from prefixbench.workload.lag import Sending
from prefixbench.workload.order import Arrangement, arrange
from prefixbench.workload.routing import Routes, caches_depend_on_order, depends_on_order, route
from prefixbench.workload.targets import Targets
from prefixbench.workload.tree import Level, Tree, tree_of

_NO_ROWS = np.zeros(0, np.int64)


class Heads(Enum):
    """Which groups find the head of which others: all, none, or some (by model and salt)."""

    COMMON = auto()
    OWN = auto()
    MIXED = auto()


@dataclass(frozen=True, kw_only=True)
class Given:
    """Everything a plan depends on, rows in generation order.

    What follows from it (order, places, domains, bounds) is computed when it is asked for.
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
            namespaces=self.namespaces,
            head_blocks=self.geometry.head_blocks,
            warmed=warmed,
            levels_of=self._levels_of if self.tree else None,
        )

    @cached_property
    def namespaces(self) -> IntArray:
        """A number for the model and salt of each group; others share nothing, nor the head."""
        return np.array(self.config.prefix.namespaces(self.workload.group_ids), np.int64)

    @cached_property
    def heads(self) -> Heads:
        """How far groups share the head, beyond the caches that keep it."""
        namespaces = len(np.unique(self.namespaces))
        if namespaces == 1 or not self.geometry.head_blocks:
            return Heads.COMMON
        return Heads.OWN if namespaces == len(self.namespaces) else Heads.MIXED

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
    def stored(self) -> Stored:
        """What each request leaves in its cache, in sending order."""
        workload, order = self.workload, self.order
        blocks = stored_blocks(workload.input_len, workload.output_len, self.geometry.granularity)
        return Stored(
            group=workload.group[order], cache=self.routes.cache[order], blocks=blocks[order]
        )

    @property
    def largest_request_blocks(self) -> int:
        """Cache blocks that the longest request and its answer need; the last token needs none."""
        tokens = int((self.workload.input_len + self.workload.output_len).max()) - 1
        return -(-tokens // self.geometry.block_size)

    @cached_property
    def openers(self) -> IntArray:
        """The groups that open cold caches; of no interest without a shared head block."""
        return self.domains.openers(self.order) if self.geometry.head_blocks else _NO_ROWS

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
