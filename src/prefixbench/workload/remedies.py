"""What can be changed about a data set that cannot have its target, one kind after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np

from prefixbench.config.lengths import (
    ExplicitLength,
    HistogramLength,
    TruncatedNormalLength,
)
from prefixbench.config.order import OrderWord
from prefixbench.config.overrides import override
from prefixbench.config.target import TargetScope, exact
from prefixbench.core.wording import plural
from prefixbench.workload.columns import sums_by
from prefixbench.workload.setting import Setting
from prefixbench.workload.trials import Change, Knob

#: More requests than this are not suggested; in a limited cache, more times the given number.
MOST_REQUESTS = 1_000_000
MOST_TIMES_LIMITED = 20
#: Blocks that engines offer, tried where the configured block is larger.
SMALLER_BLOCKS = (64, 32, 16)
#: Lists of lengths up to this are rewritten, value by value.
_LISTED_LENGTHS = 200


def remedies_above(setting: Setting) -> Iterator[Knob]:
    """Changes that can raise the highest ratio."""
    kinds = (
        _more_requests,
        _fewer_groups,
        _shorter_longest,
        _less_unshared,
        _smaller_blocks,
        _bound_routing,
        _more_capacity,
        _barrier,
        _robust_order,
        _fewer_in_flight,
        _nested,
        _warm_up,
    )
    for kind in kinds:
        yield from kind(setting)


def remedies_below(setting: Setting) -> Iterator[Knob]:
    """A target below the head's own hits: only a larger share of other tokens helps."""
    longest = int(setting.workload.input_len.max())
    yield Knob(
        values=range(longest + 1, 64 * longest),
        change=lambda length: Change(
            settings=(f"input_length={length}",),
            words=f"prompts of {plural(length, 'token')}, so that the shared head weighs less",
        ),
        stride=longest,
    )


def _more_requests(setting: Setting) -> Iterator[Knob]:
    given = setting.workload.request_count
    most = MOST_REQUESTS if setting.lru is None else MOST_TIMES_LIMITED * given
    if _can_grow(setting) and _holds_without_cold_starts(setting):
        yield Knob(
            values=range(given + 1, max(most, given) + 1),
            change=lambda count: Change(
                settings=(f"request_count={count}",),
                words=f"{plural(count, 'request')} instead of {given:,}",
            ),
            stride=given,
            in_company=9 * given,
        )


def _holds_without_cold_starts(setting: Setting) -> bool:
    """With many requests the cold starts weigh nothing; what is left has to hold the target."""
    ratios = setting.targets.group_ratios
    if ratios is None:
        return setting.targets.ratio <= setting.ratio(int(setting.most_prefixes.sum()))
    groups = len(setting.workload.group_ids)
    most = sums_by(setting.workload.group, setting.most_prefixes, groups).tolist()
    shares = (setting.group_ratio(group, blocks) for group, blocks in enumerate(most))
    return all(
        share is not None and ratio <= share for ratio, share in zip(ratios, shares, strict=True)
    )


def _can_grow(setting: Setting) -> bool:
    config = setting.config
    counted = any(group.request_count is not None for group in config.prefix.groups)
    listed = isinstance(config.input_length, ExplicitLength) or isinstance(
        config.output_length, ExplicitLength
    )
    return not (counted or listed or config.prefix.assignment)


def _fewer_groups(setting: Setting) -> Iterator[Knob]:
    prefix, groups = setting.config.prefix, len(setting.workload.group_ids)
    if prefix.group_count is not None:
        yield Knob(
            values=range(groups - 1, 0, -1),
            change=lambda count: Change(
                settings=(f"prefix.group_count={count}",),
                words=f"{plural(count, 'prefix group')} instead of {groups}",
            ),
        )
    elif groups > 1 and setting.config.target.scope is TargetScope.GLOBAL:
        yield _switch(
            f"one prefix group instead of {groups}",
            "prefix.groups=[]",
            "prefix.assignment=[]",
            "prefix.mode=single_prefix",
        )


def _shorter_longest(setting: Setting) -> Iterator[Knob]:
    """The longest request of a group is its cold loss; cutting it shortens few others."""
    lengths = setting.config.input_length
    longest = int(setting.workload.input_len.max())
    shortest = setting.geometry.head_len + setting.geometry.tail_len + 1
    match lengths:
        case TruncatedNormalLength():
            values = range(longest - 1, max(int(lengths.mean), lengths.min), -1)
        case HistogramLength():
            values = range(longest - 1, max(shortest, min(b.range[0] for b in lengths.bins)), -1)
        case ExplicitLength() if len(lengths.values) <= _LISTED_LENGTHS:
            values = range(longest - 1, shortest, -1)
        case _:
            return
    yield Knob(
        values=values,
        change=lambda most: Change(
            settings=(_cut_lengths(setting, most),),
            words=f"no request longer than {plural(most, 'token')} instead of {longest:,}",
        ),
        stride=max(1, len(values) // 64),
    )


def _cut_lengths(setting: Setting, most: int) -> str:
    match setting.config.input_length:
        case TruncatedNormalLength():
            return f"input_length.max={most}"
        case HistogramLength(bins=bins):
            rows = [
                {"range": [one.range[0], min(one.range[1], most + 1)], "weight": one.weight}
                for one in bins
                if one.range[0] <= most
            ]
            return override("input_length.bins", rows)
        case ExplicitLength(values=values):
            return override("input_length.values", [min(one, most) for one in values])
        case lengths:
            raise TypeError(f"{type(lengths).__name__} has no longest request to cut")


def _less_unshared(setting: Setting) -> Iterator[Knob]:
    unshared = setting.geometry.minimum_non_shared_len
    yield Knob(
        values=range(unshared - 1, 0, -1),
        change=lambda kept: Change(
            settings=(f"prefix.minimum_non_shared_length={kept}",),
            words=f"{plural(kept, 'non-shared token')} a request instead of {unshared:,}",
        ),
    )


def _smaller_blocks(setting: Setting) -> Iterator[Knob]:
    given = setting.geometry.granularity
    if setting.config.hit_granularity is None:
        yield Knob(
            values=[size for size in SMALLER_BLOCKS if size < given],
            change=lambda size: Change(
                settings=(f"block_size={size}",),
                words=f"blocks of {size} tokens instead of {given}, if the server allows it",
            ),
        )


def _bound_routing(setting: Setting) -> Iterator[Knob]:
    if setting.domains.count > len(np.unique(setting.domains.group)):
        yield _switch(
            "each group bound to one rank, so that its prefix is computed once",
            "routing.policy=bound",
            "routing.sticky_routing=null",
            "routing.bind_prefix_group_to_dp=true",
        )


def _more_capacity(setting: Setting) -> Iterator[Knob]:
    given = setting.config.planning.capacity_blocks
    if given is None:
        return
    everything = setting.in_cache_blocks(int(setting.stored.blocks.sum()))
    yield Knob(
        values=range(given + 1, max(given, everything) + 1),
        change=lambda blocks: Change(
            settings=(f"planning.capacity_blocks={blocks}",),
            words=f"caches of {plural(blocks, 'block')} instead of {given:,}",
        ),
        stride=given,
    )


def _barrier(setting: Setting) -> Iterator[Knob]:
    if _in_flight(setting) and not setting.arrangement.barrier:
        yield _switch(
            "the longest request of each group sent first and waited for",
            "request_order.leaders=barrier",
        )


def _robust_order(setting: Setting) -> Iterator[Knob]:
    words = setting.arrangement
    if _in_flight(setting) and words.across is not OrderWord.LAG_ROBUST:
        yield _switch(
            "groups sent in turn, as far apart as they allow",
            "request_order.mode=null",
            f"request_order.within_group={words.within}",
            "request_order.across_group=lag_robust",
        )


def _fewer_in_flight(setting: Setting) -> Iterator[Knob]:
    given = setting.config.planning.concurrency
    if _in_flight(setting):
        yield Knob(
            values=range(given - 1, 0, -1),
            change=lambda count: Change(
                settings=(f"planning.concurrency={count}",),
                words=f"{plural(count, 'request')} in flight instead of {given}",
            ),
        )


def _in_flight(setting: Setting) -> bool:
    return setting.config.planning.concurrency > 1 and not setting.domains.warmed


def _nested(setting: Setting) -> Iterator[Knob]:
    if not setting.config.prefix.nested_prefix:
        yield _switch("prefixes of different lengths inside a group", "prefix.nested_prefix=true")


def _warm_up(setting: Setting) -> Iterator[Knob]:
    if not setting.domains.warmed:
        yield _switch(
            "a warm-up, so that no prefix is computed during the measurement",
            "execution.mode=warmup",
            "execution.warmup_rounds=1",
        )


def _switch(words: str, *settings: str) -> Knob:
    """A knob with one position."""
    return Knob(values=range(1), change=lambda _: Change(settings=settings, words=words))


def nearest_target(setting: Setting) -> Change:
    """The nearest target that the data set can have as it is, in ten-thousandths."""
    if setting.targets.by_group is not None:
        return _nearest_group_targets(setting, setting.targets.by_group)
    wanted, found = setting.targets.total, setting.range
    end = found.most if wanted > found.most else found.least
    ratio = _inward(setting.ratio(end), upper=wanted > found.most)
    return Change(
        settings=(f"target.hit_ratio={ratio}",),
        words=f"a target of {ratio}, the nearest this data set can have",
    )


def _nearest_group_targets(setting: Setting, by_group: Sequence[int]) -> Change:
    assert setting.targets.group_ratios is not None
    ends = zip(setting.group_range.least.tolist(), setting.group_range.most.tolist(), strict=True)
    tolerance = exact(setting.config.validation.warning_tolerance)
    rows = []
    for group, (name, wanted, (least, most)) in enumerate(
        zip(setting.workload.group_ids, by_group, ends, strict=True)
    ):
        asked = setting.targets.group_ratios[group]
        blocks = min(max(wanted, least), most)
        nearest = setting.group_ratio(group, blocks) or Fraction(0)
        kept = blocks == wanted and abs(nearest - asked) <= tolerance
        ratio = float(asked) if kept else _inward(nearest, upper=blocks <= wanted)
        rows.append({"id": name, "hit_ratio": ratio})
    return Change(
        settings=(override("target.groups", rows),),
        words="for each group the nearest target it can have",
    )


def _inward(ratio: Fraction, *, upper: bool) -> float:
    """Ten-thousandths, rounded towards the reachable side."""
    scaled = ratio * 10_000
    whole = scaled.numerator // scaled.denominator
    return (whole if upper or whole == scaled else whole + 1) / 10_000
