"""Changes that make an unreachable target reachable, each computed, none guessed.

A change is a list of `KEY=VALUE` for `--set`. Of every kind the smallest change that suffices is
looked for and planned before it is offered; where no single one does, two are tried together, then
more. Changes that help without sufficing are listed too, and the highest ratio of all is stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, combinations
from typing import Any

import numpy as np

from prefixbench.workload.remedies import nearest_target, remedies_above, remedies_below
from prefixbench.workload.setting import Frame, Setting
from prefixbench.workload.trials import Change, Knob, Outcome, Trials


@dataclass(frozen=True, kw_only=True)
class Suggestion:
    """One verified change; `would_reach` is the highest ratio the changed data set can have."""

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
    """Changes that reach the target, changes that only come nearer, and the highest ratio of all.

    `statement` says so in words where no change of the listed kinds suffices.
    """

    suggestions: tuple[Suggestion, ...]
    partial: tuple[Suggestion, ...]
    highest_ratio: Fraction
    statement: str | None


def advise(setting: Setting, frame: Frame) -> Advice:
    """Find changes that reach the target of an unreachable setting."""
    trials = Trials(setting, frame)
    knobs = [knob for knob in _knobs(setting) if knob.values]
    enough = [change for change in map(trials.smallest, knobs) if change is not None]
    changes = [change for change in enough if trials.is_met_by(change)]
    if not changes:
        changes = [change for change in _together(knobs, trials) if trials.is_met_by(change)][:1]
    partial = [] if changes else _partial(knobs, trials)
    statement = None if changes else _statement(setting, trials)
    highest = max([_most(setting), *(one.highest for one in trials.outcomes)])
    changes += [change for change in (nearest_target(setting),) if trials.is_met_by(change)]
    return Advice(
        suggestions=tuple(
            _suggestion(setting, outcome) for outcome in map(trials.outcome, changes) if outcome
        ),
        partial=tuple(_suggestion(setting, outcome) for outcome in partial),
        highest_ratio=highest,
        statement=statement,
    )


def _knobs(setting: Setting) -> Iterator[Knob]:
    """What moves the end of the range that a target lies beyond."""
    return remedies_above(setting) if _is_above(setting) else remedies_below(setting)


def _is_above(setting: Setting) -> bool:
    """Whether the target, or a group's, is more than any plan hits."""
    if setting.targets.by_group is None:
        return setting.targets.total > setting.range.most
    return bool((np.array(setting.targets.by_group) > setting.group_range.most).any())


def _together(knobs: Sequence[Knob], trials: Trials) -> Iterator[Change]:
    """Two changes that suffice together; then growing unions of all."""
    changes = [knob.combined for knob in knobs]
    pairs = (_union(pair) for pair in combinations(changes, 2))
    growing = (_union(changes[:count]) for count in range(3, len(changes) + 1))
    return (change for change in chain(pairs, growing) if change and trials.suffices(change))


def _union(changes: Sequence[Change]) -> Change | None:
    """All changes at once; of two that touch one key the earlier."""
    settings: dict[str, str] = {}
    words = []
    for change in changes:
        own = dict(setting.split("=", 1) for setting in change.settings)
        if not own.keys() & settings.keys():
            settings |= own
            words.append(change.words)
    if len(words) < 2:
        return None
    return Change(
        settings=tuple(f"{key}={value}" for key, value in settings.items()),
        words="together: " + "; ".join(words),
    )


def _partial(knobs: Sequence[Knob], trials: Trials) -> list[Outcome]:
    """The largest change of each kind that raises the highest ratio, the best first."""
    if not _is_above(trials.setting):
        return []
    outcomes = [trials.outcome(knob.combined) for knob in knobs]
    better = [one for one in outcomes if one and one.highest > _most(trials.setting)]
    return sorted(better, key=lambda one: -one.highest)


def _statement(setting: Setting, trials: Trials) -> str:
    """What is left to say where no change suffices, and which one comes nearest."""
    if _is_above(setting):
        word, better, own = "highest", max, _most(setting)
        ends = {one.change.words: one.highest for one in trials.outcomes}
    else:
        word, better, own = "lowest", min, setting.ratio(setting.range.least)
        ends = {one.change.words: one.lowest for one in trials.outcomes}
    nearest = better([own, *ends.values()])
    unreached = _unreached(setting, nearest)
    if nearest == own:
        return f"{unreached}, and none moves the {word} ratio, {float(own):.4f}"
    words = next(words for words, end in ends.items() if end == nearest)
    return f"{unreached}; the {word} ratio any reaches is {float(nearest):.4f} ({words})"


def _unreached(setting: Setting, nearest: Fraction) -> str:
    if setting.targets.by_group is not None:
        return "no listed change reaches the targets of all groups"
    target = f"{float(setting.targets.ratio):.4f}"
    between = (nearest >= setting.targets.ratio) is _is_above(setting)
    if between:
        return f"no listed change has a plan that comes near enough to {target}"
    return f"no listed change reaches {target}"


def _suggestion(setting: Setting, outcome: Outcome) -> Suggestion:
    return Suggestion(
        change=outcome.change.settings,
        sentence=outcome.change.words + _gain(setting, outcome),
        would_reach=outcome.highest,
    )


def _gain(setting: Setting, outcome: Outcome) -> str:
    """By how much the end of the range moves that the target lies beyond; nothing if it stays."""
    if _is_above(setting):
        gain = float(100 * (outcome.highest - _most(setting)))
        return f": adds {gain:.1f} pp" if gain else ""
    relief = float(100 * (setting.ratio(setting.range.least) - outcome.lowest))
    return f": takes {relief:.1f} pp off the least" if relief else ""


def _most(setting: Setting) -> Fraction:
    return setting.ratio(setting.range.most)
