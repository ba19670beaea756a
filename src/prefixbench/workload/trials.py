"""Changed configurations, set up or planned to see what they reach; nothing is guessed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.lengths import LengthDistributionConfig
from prefixbench.config.load import with_changes
from prefixbench.config.target import exact
from prefixbench.core.errors import PrefixBenchError
from prefixbench.core.records import ValidationStatus
from prefixbench.workload.columns import IntArray
from prefixbench.workload.lengths import draw_lengths
from prefixbench.workload.planner import plan_setting
from prefixbench.workload.requests import draw_workload
from prefixbench.workload.setting import Frame, Setting, geometry_of, settle
from prefixbench.workload.verdict import status_of_plan


@dataclass(frozen=True, kw_only=True)
class Change:
    """Settings for `--set`, and what they mean in words."""

    settings: tuple[str, ...]
    words: str


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """A change, and the lowest and the highest ratio that the changed data set can have.

    `suffices` says that some plan has the target, rounded to blocks, and that the rounding alone
    does not make it fail.
    """

    change: Change
    lowest: Fraction
    highest: Fraction
    suffices: bool


@dataclass(frozen=True, kw_only=True)
class Knob:
    """A setting with values from the smallest to the largest change, and the change of each.

    `stride` is about how far apart values have to be to make a difference; `in_company` the place
    of the value that is combined with other changes, the last one unless given.
    """

    values: Sequence[int]
    change: Callable[[int], Change]
    stride: int = 1
    in_company: int = -1

    @property
    def combined(self) -> Change:
        return self.change(self.values[min(self.in_company, len(self.values) - 1)])


class Trials:
    """Sets changed configurations up; remembers the outcome that reached highest."""

    def __init__(self, setting: Setting, frame: Frame) -> None:
        self.setting = setting
        self._frame = frame
        self._lengths = _LongestDraws()
        self._outcomes: dict[tuple[str, ...], Outcome | None] = {}

    @property
    def outcomes(self) -> list[Outcome]:
        """Everything that could be set up so far."""
        return [outcome for outcome in self._outcomes.values() if outcome is not None]

    def outcome(self, change: Change) -> Outcome | None:
        """What the change reaches; None where it does not fit the configuration."""
        if change.settings not in self._outcomes:
            changed = self._set_up(change)
            self._outcomes[change.settings] = _outcome(change, changed) if changed else None
        return self._outcomes[change.settings]

    def suffices(self, change: Change) -> bool:
        outcome = self.outcome(change)
        return outcome is not None and outcome.suffices

    def is_met_by(self, change: Change) -> bool:
        """Whether the changed configuration's own plan does not fail."""
        changed = self._set_up(change)
        if changed is None or not changed.reachable:
            return False
        plan = plan_setting(changed)
        near = plan.ratio(abs(plan.residual_blocks)) <= exact(plan.config.validation.pass_tolerance)
        return near and status_of_plan(plan) is not ValidationStatus.FAIL

    def smallest(self, knob: Knob) -> Change | None:
        """The first value that suffices, where larger changes do so too; None if none does.

        Values are tried at growing distances, then halfway between the last two.
        """
        failed, tried, step = -1, 0, knob.stride
        last = len(knob.values) - 1
        while not self.suffices(knob.change(knob.values[tried])):
            if tried == last:
                return None
            failed, tried, step = tried, min(tried + step, last), 2 * step
        while tried - failed > max(1, tried // 1000):
            middle = (failed + tried) // 2
            if self.suffices(knob.change(knob.values[middle])):
                tried = middle
            else:
                failed = middle
        return knob.change(knob.values[tried])

    def _set_up(self, change: Change) -> Setting | None:
        try:
            config = with_changes(self.setting.config, change.settings)
            workload = draw_workload(config, self._frame.shortest, self._lengths)
        except PrefixBenchError:
            return None
        return settle(
            config, workload, geometry_of(config, _block_size(config, self.setting), self._frame)
        )


def _outcome(change: Change, changed: Setting) -> Outcome:
    return Outcome(
        change=change,
        lowest=changed.ratio(changed.range.least),
        highest=changed.ratio(changed.range.most),
        suffices=changed.reachable and not _rounding_fails(changed),
    )


def _rounding_fails(changed: Setting) -> bool:
    """Whether whole blocks are too large for the targets, as in a group of a few requests."""
    return changed.targets.rounding > exact(changed.config.validation.warning_tolerance)


def _block_size(config: PrefixCacheDatasetConfig, setting: Setting) -> int:
    """The changed block size; one that was discovered stays."""
    if config.block_size != setting.config.block_size and config.block_size is not None:
        return config.block_size
    return setting.geometry.block_size


class _LongestDraws:
    """Draws lengths; a shorter list of the same distribution is the start of a longer one."""

    def __init__(self) -> None:
        self._drawn: dict[tuple[str, int, str, int], IntArray] = {}

    def __call__(
        self,
        config: LengthDistributionConfig,
        request_count: int,
        seed: int,
        *,
        purpose: str = "input_length",
        shortest: int = 1,
    ) -> IntArray:
        key = (config.model_dump_json(), seed, purpose, shortest)
        known = self._drawn.get(key)
        if known is None or len(known) < request_count:
            known = draw_lengths(config, request_count, seed, purpose=purpose, shortest=shortest)
            self._drawn[key] = known
        return known[:request_count]
