"""Changes that make an unreachable target reachable, each computed, none guessed.

A change is a list of `KEY=VALUE` for `--set`. It is offered only after the changed configuration
was set up and its range of hits was found to hold the target; where no single change suffices,
combinations are tried, and the highest ratio found is stated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.lengths import ExplicitLength
from prefixbench.config.load import with_changes
from prefixbench.config.target import TargetScope
from prefixbench.core.errors import PrefixBenchError
from prefixbench.workload.setting import Frame, Setting, set_up

#: More requests than this are not suggested.
MOST_REQUESTS = 1_000_000
#: Blocks that engines offer, tried where the configured block is larger.
SMALLER_BLOCKS = (64, 32, 16)


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One verified change."""

    change: tuple[str, ...]
    sentence: str
    would_reach: Fraction

    def to_json(self) -> dict[str, Any]:
        return {
            "change": list(self.change),
            "sentence": self.sentence,
            "would_reach": float(self.would_reach),
        }


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Changes that reach the target, and the highest ratio of all changes tried."""

    suggestions: tuple[Suggestion, ...]
    highest_ratio: Fraction


@dataclass(frozen=True, kw_only=True)
class _Candidate:
    change: tuple[str, ...]
    sentence: str


def advise(setting: Setting, frame: Frame) -> Advice:
    """Find changes that reach the target of an unreachable setting."""
    trial = _Trial(setting, frame)
    above = setting.targets.total > setting.range.most
    single = list(_single_changes(setting)) if above else list(_longer_requests(setting))
    suggestions = [s for s in (trial.verify(candidate) for candidate in single) if s]
    more = trial.more_requests() if above else None
    if more is not None:
        suggestions.insert(0, more)
    if not suggestions and above:
        suggestions = [s for s in map(trial.verify, _combinations(single)) if s][:1]
    lowered = trial.verify(_nearest_target(setting))
    if lowered is not None and (lowered.would_reach or not above):
        suggestions.append(lowered)
    return Advice(suggestions=tuple(suggestions), highest_ratio=trial.highest_ratio)


class _Trial:
    """Sets changed configurations up and remembers the highest ratio seen."""

    def __init__(self, setting: Setting, frame: Frame) -> None:
        self._setting = setting
        self._frame = frame
        self.highest_ratio = setting.ratio(setting.range.most)

    def set_up(self, change: tuple[str, ...]) -> Setting | None:
        """The changed setting; None where the change does not fit the configuration."""
        try:
            config = with_changes(self._setting.config, change)
            block_size = _block_size(config, self._setting)
            changed = set_up(config, block_size, self._frame)
        except PrefixBenchError:
            return None
        self.highest_ratio = max(self.highest_ratio, changed.ratio(changed.range.most))
        return changed

    def verify(self, candidate: _Candidate) -> Suggestion | None:
        changed = self.set_up(candidate.change)
        if changed is None or not changed.reachable:
            return None
        return Suggestion(
            change=candidate.change,
            sentence=candidate.sentence,
            would_reach=changed.ratio(changed.range.most),
        )

    def more_requests(self) -> Suggestion | None:
        """The least number of requests, found by doubling and bisection, that suffices."""
        if not _can_grow(self._setting.config):
            return None
        given = self._setting.workload.request_count
        enough = _first_true(self._reaches_with, given)
        if enough is None:
            return None
        candidate = _Candidate(
            change=(f"request_count={enough}",),
            sentence=f"{enough} requests instead of {given}",
        )
        return self.verify(candidate)

    def _reaches_with(self, request_count: int) -> bool:
        changed = self.set_up((f"request_count={request_count}",))
        return changed is not None and changed.reachable


def _block_size(config: PrefixCacheDatasetConfig, setting: Setting) -> int:
    """The changed block size; one that was discovered stays."""
    if config.block_size != setting.config.block_size and config.block_size is not None:
        return config.block_size
    return setting.geometry.block_size


def _first_true(holds: Callable[[int], bool], start: int) -> int | None:
    """The least value above `start` for which a growing condition holds, up to MOST_REQUESTS."""
    low, high = start, 2 * start
    while not holds(high):
        low, high = high, 2 * high
        if high > MOST_REQUESTS:
            return None
    while high - low > max(1, high // 1000):
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle
    return high


def _can_grow(config: PrefixCacheDatasetConfig) -> bool:
    counted = any(group.request_count is not None for group in config.prefix.groups)
    listed = isinstance(config.input_length, ExplicitLength) or isinstance(
        config.output_length, ExplicitLength
    )
    return not (counted or listed or config.prefix.assignment)


def _single_changes(setting: Setting) -> Iterator[_Candidate]:
    yield from _fewer_groups(setting)
    yield from _routing(setting)
    yield from _less_unshared(setting)
    yield from _smaller_blocks(setting)
    yield from _warm_up(setting)


def _fewer_groups(setting: Setting) -> Iterator[_Candidate]:
    config, groups = setting.config, len(setting.workload.group_ids)
    if config.prefix.group_count is not None:
        count = groups // 2
        while count > 1:
            yield _Candidate(
                change=(f"prefix.group_count={count}",),
                sentence=f"{count} prefix groups instead of {groups}",
            )
            count //= 2
    if groups > 1 and config.target.scope is TargetScope.GLOBAL:
        kept = [f"prefix.{key}" for key in ("groups", "assignment", "group_count")]
        cleared = (f"{kept[0]}=[]", f"{kept[1]}=[]", f"{kept[2]}=null")
        yield _Candidate(
            change=(*cleared, "prefix.mode=single_prefix"),
            sentence=f"one prefix group instead of {groups}",
        )


def _routing(setting: Setting) -> Iterator[_Candidate]:
    if setting.domains.count > len(setting.workload.group_ids):
        yield _Candidate(
            change=("routing.policy=bound",),
            sentence="each group bound to one rank, so that its prefix is computed once",
        )


def _less_unshared(setting: Setting) -> Iterator[_Candidate]:
    unshared = setting.geometry.minimum_non_shared_len
    if unshared > 1:
        yield _Candidate(
            change=("prefix.minimum_non_shared_length=1",),
            sentence=f"1 non-shared token a request instead of {unshared}",
        )


def _smaller_blocks(setting: Setting) -> Iterator[_Candidate]:
    given = setting.geometry.granularity
    for size in SMALLER_BLOCKS:
        if size < given and setting.config.hit_granularity is None:
            yield _Candidate(
                change=(f"block_size={size}",),
                sentence=f"blocks of {size} tokens instead of {given}, if the server allows it",
            )


def _warm_up(setting: Setting) -> Iterator[_Candidate]:
    if not setting.config.execution.mode.is_warmed:
        yield _Candidate(
            change=("execution.mode=warmup", "execution.warmup_rounds=1"),
            sentence="a warm-up, so that no prefix is computed during the measurement",
        )


def _longer_requests(setting: Setting) -> Iterator[_Candidate]:
    """A target below the head's own hits: only a larger share of other tokens helps."""
    longest = int(setting.workload.input_len.max())
    for factor in (2, 4, 8):
        yield _Candidate(
            change=(f"input_length={longest * factor}",),
            sentence=f"prompts of {longest * factor} tokens, so that the shared head weighs less",
        )


def _combinations(single: list[_Candidate]) -> Iterator[_Candidate]:
    """Growing unions of the changes that touch different keys, cheapest first."""
    change: dict[str, str] = {}
    sentences: list[str] = []
    for candidate in sorted(single, key=lambda c: len(c.change)):
        settings = dict(item.split("=", 1) for item in candidate.change)
        if settings.keys() & change.keys():
            continue
        change |= settings
        sentences.append(candidate.sentence)
        if len(sentences) > 1:
            yield _Candidate(
                change=tuple(f"{key}={value}" for key, value in change.items()),
                sentence="together: " + "; ".join(sentences),
            )


def _nearest_target(setting: Setting) -> _Candidate:
    """The nearest target that the data set can have as it is, in ten-thousandths."""
    if setting.targets.by_group is not None:
        return _nearest_group_targets(setting)
    wanted, found = setting.targets.total, setting.range
    end = found.most if wanted > found.most else found.least
    ratio = _inward(setting.ratio(end), upper=wanted > found.most)
    return _Candidate(
        change=(f"target.hit_ratio={ratio}",),
        sentence=f"a target of {ratio}, the nearest this data set can have",
    )


def _nearest_group_targets(setting: Setting) -> _Candidate:
    rows = []
    for group, name in enumerate(setting.workload.group_ids):
        assert setting.targets.by_group is not None
        assert setting.targets.group_ratios is not None
        wanted = setting.targets.by_group[group]
        least, most = setting.group_range.least[group], setting.group_range.most[group]
        ratio = float(setting.targets.group_ratios[group])
        if not least <= wanted <= most:
            end = int(most if wanted > most else least)
            nearest = setting.group_ratio(group, end) or Fraction(0)
            ratio = _inward(nearest, upper=wanted > most)
        rows.append(f"{{id: {name}, hit_ratio: {ratio}}}")
    return _Candidate(
        change=(f"target.groups=[{', '.join(rows)}]",),
        sentence="for each group the nearest target it can have",
    )


def _inward(ratio: Fraction, *, upper: bool) -> float:
    """Ten-thousandths, rounded towards the reachable side."""
    scaled = ratio * 10_000
    whole = scaled.numerator // scaled.denominator
    return (whole if upper or whole == scaled else whole + 1) / 10_000
