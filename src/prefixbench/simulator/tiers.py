"""Caches below the device's: host memory, an external store.

A request that is admitted looks for what the device does not have in the tiers below, unit by
unit: the nearest tier that holds the unit at the position reached gives it. So a tier is asked for
what all caches above it missed, and the tallies add up:

    queries of a tier = queries of the cache above it - hits there

What is found is loaded into the device's memory and is findable there like computed tokens. A tier
that is written through takes what it lacks of everything that a request has on the device, loaded
tokens included: that is how a hit is promoted to the tiers between. At least one token is computed
even where all could be loaded.

Sources: vLLM's connector interface (read in 0.33) asks for tokens beyond the local hit; LMCache
(read in 0.5.6) finds whole chunks, leaves the last token of a prompt that is found whole to be
computed, and saves chunks once they are computed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.block_keys import Key
from prefixbench.simulator.request import LiveRequest
from prefixbench.simulator.rules import TierRules, TierWrite
from prefixbench.simulator.stats import TierStats
from prefixbench.simulator.tier_store import TierStore

PathOf = Callable[[LiveRequest], list[Key]]


@dataclass(slots=True, eq=False)
class _Tier:
    """A store as one engine sees it."""

    store: TierStore
    path_of: PathOf
    stats: TierStats
    written_units: dict[LiveRequest, int] = field(default_factory=dict)

    @property
    def rules(self) -> TierRules:
        return self.store.rules

    @property
    def is_written_through(self) -> bool:
        return self.rules.write is TierWrite.THROUGH

    def path(self, live: LiveRequest, length: int) -> list[Key]:
        """The whole units within the first `length` tokens."""
        return self.path_of(live)[: length // self.rules.unit_len]

    def load_ns(self, tokens: int) -> float:
        return self.rules.load_ns + self.rules.load_token_ns * tokens if tokens else 0.0


class TierStack:
    """The tiers below one engine's cache, the nearest first.

    `device_path` gives the keys of a request's blocks under which the device hands down what it
    loses; None for an engine that does not.
    """

    def __init__(
        self, stores: Sequence[TierStore], device_path: PathOf | None, now_ns: Callable[[], int]
    ) -> None:
        self._now_ns = now_ns
        self._tiers: list[_Tier] = []
        path_of = device_path
        for store in stores:
            # What a tier takes from the one above it has the keys of the one above it.
            path_of = store.path if store.rules.write is TierWrite.THROUGH else path_of
            if path_of is None:
                raise _refused(store.rules, "takes what a radix tree loses", "write it through")
            self._tiers.append(_Tier(store, path_of, TierStats(store.rules.name)))

    @property
    def stats(self) -> list[TierStats]:
        return [tier.stats for tier in self._tiers]

    @property
    def takes_what_the_device_loses(self) -> bool:
        return not self._tiers[0].is_written_through

    def units_of_the_device(self) -> Iterator[Key]:
        """What the tiers hold under the keys of the device's blocks."""
        for tier in self._tiers:
            if tier.is_written_through:
                return
            yield from tier.store.keys()

    def reach(self, live: LiveRequest, start: int) -> int:
        """Where a request starts to compute that has its first `start` tokens on the device."""
        return start + sum(self._found(live, start))

    def admit(
        self, live: LiveRequest, hit: int, start: int, *, resumed: bool | None
    ) -> tuple[dict[str, int], float]:
        """Load what is below the device; returns tokens by tier, where any, and the time it takes.

        `hit` is what the device is counted to have given; `resumed` None counts nothing.
        """
        found = self._found(live, start)
        missed, load_ns = live.known_len - hit, 0.0
        for tier, tokens in zip(self._tiers, found, strict=True):
            tier.store.use(tier.path(live, live.known_len), self._now_ns())
            load_ns += tier.load_ns(tokens)
            if resumed is not None:
                tier.stats.count_look_up(missed, tokens, resumed=resumed)
            missed -= tokens
        pairs = zip(self._tiers, found, strict=True)
        return {tier.rules.name: tokens for tier, tokens in pairs if tokens}, load_ns

    def write_through(self, live: LiveRequest, computed_len: int) -> None:
        """Store what the request has on the device and a tier may not have yet."""
        for index, tier in enumerate(self._tiers):
            stores_output = tier.rules.stores_output
            length = computed_len if stores_output else min(computed_len, live.prompt_len)
            units = length // tier.rules.unit_len
            if tier.is_written_through and units > tier.written_units.get(live, 0):
                tier.written_units[live] = units
                self._pass_on(index, tier.store.store(tier.path(live, length), self._now_ns()))

    def take_lost(self, blocks: Iterable[Key]) -> None:
        """Take what the device has lost, in the order in which it was lost."""
        self._pass_on(-1, blocks)

    def forget(self, live: LiveRequest) -> None:
        """A request has given up its blocks."""
        for tier in self._tiers:
            tier.written_units.pop(live, None)
            if tier.is_written_through:
                tier.store.forget_path(live)

    def _found(self, live: LiveRequest, start: int) -> list[int]:
        """Tokens that each tier gives to a request whose first `start` tokens are found above."""
        now_ns, limit = self._now_ns(), live.known_len - 1
        for tier in self._tiers:
            tier.store.expire(now_ns)
        # The last unit may be found whole, although its last token is computed again.
        paths = [tier.path(live, live.known_len) for tier in self._tiers]
        found = [0] * len(self._tiers)
        position = start
        while position < limit:
            index = self._nearest_holder(paths, position)
            if index is None:
                break
            unit_len = self._tiers[index].rules.unit_len
            end = min((position // unit_len + 1) * unit_len, limit)
            found[index] += end - position
            position = end
        return found

    def _nearest_holder(self, paths: Sequence[Sequence[Key]], position: int) -> int | None:
        """The first tier that holds the unit around this position of a request."""
        for index, (tier, path) in enumerate(zip(self._tiers, paths, strict=True)):
            place = position // tier.rules.unit_len
            if place < len(path) and path[place] in tier.store:
                return index
        return None

    def _pass_on(self, index: int, lost: Iterable[Key]) -> None:
        """Hand what a cache has lost to the one below it, if that takes it, and so on."""
        for tier in self._tiers[index + 1 :]:
            if tier.is_written_through:
                return
            lost = tier.store.take_in(lost, self._now_ns())

    def check_integrity(self, lives: Sequence[LiveRequest]) -> None:
        for tier in self._tiers:
            tier.store.check_integrity()
            assert tier.written_units.keys() <= set(lives)
        for above, below in zip(self._tiers, self._tiers[1:], strict=False):
            assert below.stats.queries == above.stats.queries - above.stats.hits


def open_tiers(tiers: Iterable[TierRules | TierStore], block_size: int) -> tuple[TierStore, ...]:
    """A store for each tier below a cache of such blocks; a given one is used as it is.

    Raises ConfigError where units do not fit together, or two tiers have one name.
    """
    unit_above = block_size
    stores: list[TierStore] = []
    for tier in tiers:
        store = tier if isinstance(tier, TierStore) else TierStore(_sized(tier, block_size))
        if any(store.rules.name == above.rules.name for above in stores):
            raise _refused(store.rules, "is named twice", "one tier of each kind, or other names")
        _refuse_what_does_not_fit(store.rules, unit_above, block_size, is_shared=store is tier)
        unit_above = store.rules.unit_len
        stores.append(store)
    return tuple(stores)


def _sized(rules: TierRules, block_size: int) -> TierRules:
    return replace(rules, unit_len=rules.unit_len or block_size)


def _refuse_what_does_not_fit(
    rules: TierRules, unit_above: int, block_size: int, *, is_shared: bool
) -> None:
    if rules.write is TierWrite.ON_EVICTION and is_shared:
        raise _refused(rules, "is written on eviction, so it cannot be shared", "write it through")
    if rules.write is TierWrite.ON_EVICTION and rules.unit_len != unit_above:
        raise _refused(
            rules,
            f"takes what is lost above in units of {unit_above} tokens, not of {rules.unit_len}",
            f"unit_len {unit_above}, or write it through",
        )
    if rules.unit_len % block_size:
        raise _refused(
            rules,
            f"has units of {rules.unit_len} tokens, which are not whole blocks of {block_size}",
            f"a multiple of {block_size}",
        )


def _refused(rules: TierRules, message: str, hint: str) -> ConfigError:
    context = ErrorContext(stage=Stage.SIMULATE, field="tiers")
    return ConfigError(f"tier {rules.name} {message}", context=context, hint=hint)
