"""Which path plays a script: the readable engine, or the compiled loop where it may and pays.

Both give the same steps, statistics and cache; a property test holds them together. One function
says what the compiled loop does not do, so that the engine does it instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.compiled import can_compile
from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.rules import CacheKind, Duplicates
from prefixbench.simulator.script import ReadablePlay, Script
from prefixbench.simulator.stats import EngineStats
from prefixbench.simulator.stepping import CacheContents

#: So many starts, ends and filled blocks of requests take the readable engine about 5 s: as long as
#: compiling the loops takes once, and ten times as long as loading them from then on.
WORTH_LOADING = 200_000
#: What arrays hold: a block takes them about 60 bytes.
_MOST_BLOCKS = 1 << 25


class Play(Protocol):
    """A script being played: its steps once, in order, then what remains."""

    def steps(self) -> Iterator[StepOutcome]: ...
    def stats(self) -> EngineStats: ...
    def cache_contents(self) -> CacheContents: ...


class ChosenPlay(NamedTuple):
    """A play, and the path that it takes."""

    play: Play
    path: PlayPath


def play_script(engine: Engine, script: Script, path: PlayPath = PlayPath.AUTO) -> ChosenPlay:
    """Play a script with an engine that has served nobody yet.

    Raises ConfigError where the compiled path was asked for and is not there.
    """
    because: str | None = "the readable engine was asked for"
    if path is not PlayPath.PURE:
        because = why_not_compiled(engine, script)
    block_size = engine.options.block_size
    if path is PlayPath.AUTO and because is None and _events(script, block_size) < WORTH_LOADING:
        because = "too little to be worth loading compiled loops"
    if because is None:
        from prefixbench.simulator.compiled_play import CompiledPlay

        try:
            return ChosenPlay(CompiledPlay(engine, script), PlayPath.COMPILED)
        except OverflowError:  # told by the arrays; looking at every token first would cost as much
            because = "token numbers of more than 63 bits"
    refuse_compiled(path, because)
    return ChosenPlay(ReadablePlay(engine, script), PlayPath.PURE)


def refuse_compiled(path: PlayPath, because: str) -> None:
    """Raise ConfigError if the compiled path was asked for, which is not there for a reason."""
    if path is PlayPath.COMPILED:
        raise ConfigError(
            f"the compiled engine cannot play this: {because}",
            context=ErrorContext(stage=Stage.SIMULATE, field="engine_path"),
            hint="`auto` takes the readable engine there; numba comes with the extra `fast`",
        )


def why_not_compiled(engine: Engine, script: Script) -> str | None:
    """What the compiled loop does not do, in words; None when it gives what the engine gives."""
    if not can_compile():
        return "numba is not installed"
    return why_not_these_rules(engine) or _why_not_this_script(script, engine.options.block_size)


def why_not_these_rules(engine: Engine) -> str | None:
    """What the compiled loop does not do of the rules that an engine follows."""
    profile, options = engine.profile, engine.options
    refusals = {
        "a cache that is no pool of blocks": profile.cache is not CacheKind.BLOCKS,
        "steps that either prefill or decode": not profile.mixed_steps,
        "drafts of tokens": profile.draft_tokens > 0,
        "several KV groups": bool(profile.groups),
        "look-ups that find the latest copy": profile.duplicates is Duplicates.LAST_WRITER,
        "tiers below the device's cache": bool(options.stores),
        "steps that take time": engine.cost != CostModel.ORDER_ONLY,
        "an engine that has served others": not engine.is_unused,
    }
    return next((words for words, applies in refusals.items() if applies), None)


def _why_not_this_script(script: Script, block_size: int) -> str | None:
    if not script.requests:
        return "no requests"
    if len({row.request_id for row in script.requests}) < len(script.requests):
        return "request ids that are not unique"
    tokens = sum(len(row.prompt) + len(row.output) for row in script.requests)
    return "more blocks than fit into arrays" if tokens // block_size > _MOST_BLOCKS else None


def _events(script: Script, block_size: int) -> int:
    """What ends a run of equal steps: a request starts, ends, or fills a block."""
    return sum(2 + len(request.output) // block_size for request in script.requests)
