"""The compiled step loop gives what the readable engine gives, step by step.

As plain Python the loop always runs here; compiled, where numba is installed.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loop_paths import BOTH, take_loops
from prefixbench.core.errors import ConfigError
from prefixbench.simulator import compiled_play, play
from prefixbench.simulator.compiled_play import CompiledPlay
from prefixbench.simulator.engine import Engine, StepOutcome
from prefixbench.simulator.play import Play, play_script, why_not_these_rules
from prefixbench.simulator.play_path import PlayPath
from prefixbench.simulator.profile import get_profile, profiles
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.script import ReadablePlay, Script
from prefixbench.simulator.tokens import TokenRuns

BLOCK = 3
CAPACITIES = [8, 8, 9, 12, 24, None]
#: Longest request: 8 blocks of tokens, one of which is never computed.
MOST_PROMPT, MOST_OUTPUT = 16, 8
#: All that the compiled loop does not refuse, whatever rule a row may get.
PROFILES = [
    name
    for row in profiles()
    for name in (row.name, f"{row.name}:prefill", f"{row.name}:decode")
    if get_profile(name).is_simulated and why_not_these_rules(Engine(name)) is None
]
WHOLE_ENGINES = [name for name in PROFILES if ":" not in name]


@dataclass(frozen=True)
class Setting:
    """An engine's settings; a fresh engine for each play."""

    profile: str
    capacity_blocks: int | None
    budget: int
    seats: int
    chunked: bool
    threshold: int
    policy: str
    caching: bool

    def engine(self) -> Engine:
        return Engine(
            self.profile,
            self.capacity_blocks,
            self.budget if self.chunked else MOST_PROMPT + MOST_OUTPUT,
            self.seats,
            block_size=BLOCK,
            chunked_prefill=self.chunked,
            long_prefill_token_threshold=self.threshold,
            policy=self.policy,
            prefix_caching=self.caching,
        )


SETTINGS = st.builds(
    Setting,
    profile=st.sampled_from(WHOLE_ENGINES) | st.sampled_from(PROFILES),
    capacity_blocks=st.sampled_from(CAPACITIES),
    budget=st.sampled_from([2, 3, 7, 40]),
    seats=st.sampled_from([1, 3, 4, 8]),
    chunked=st.booleans(),
    threshold=st.sampled_from([0, 0, 4]),
    policy=st.sampled_from(["fcfs", "priority"]),
    caching=st.sampled_from([True, True, True, False]),
)
#: Two token values share often; runs begin where others do, and continue one another.
TOKENS = st.integers(1, MOST_PROMPT).flatmap(
    lambda length: st.lists(st.integers(0, 1), min_size=length, max_size=length)
)
RUNS = st.lists(
    st.tuples(st.sampled_from([0, 1, 3, 4, 1 << 60]), st.integers(1, MOST_PROMPT // 3)),
    min_size=1,
    max_size=3,
).map(lambda runs: TokenRuns(range(start, start + length) for start, length in runs))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    count = draw(st.sampled_from([1, 4, 6, 9]))
    requests: list[EngineRequest] = []
    for number in range(count):
        prompt = draw(TOKENS | RUNS)
        output = range(
            1000 * number + 10, 1000 * number + 10 + draw(st.sampled_from([1, 3, MOST_OUTPUT]))
        )
        follows = requests and draw(st.booleans())
        if follows:  # another one's turn, answer included, as far as it fits
            earlier = draw(st.sampled_from(requests))
            prompt = ([*earlier.prompt, *earlier.output, *prompt])[:MOST_PROMPT]
        salt = draw(st.sampled_from([(), (), ("x",)]))
        requests.append(EngineRequest(f"r{number}", prompt, output, salt, draw(st.integers(0, 2))))
    waits = draw(st.lists(st.sampled_from([0, 0, 0, 1, 9]), min_size=count, max_size=count))
    arrive_steps = [sum(waits[: number + 1]) for number in range(count)]
    in_flight = draw(st.lists(st.integers(1, 6), min_size=count, max_size=count))
    return Script(
        requests,
        draw(st.sampled_from([(), tuple(arrive_steps)])),
        draw(st.sampled_from([(), tuple(in_flight), (4,) * count])),
    )


#: One after the other into a pool that is soon full: who came last or matters least is pushed back.
CROWDED_SETTINGS = st.builds(
    Setting,
    profile=st.sampled_from(["vllm-0.26", "vllm-0.32", "vllm-0.33"]),
    capacity_blocks=st.sampled_from([8, 9, 11]),
    budget=st.sampled_from([5, 6, 7, 9]),
    seats=st.just(8),
    chunked=st.just(True),
    threshold=st.sampled_from([0, 2]),
    policy=st.sampled_from(["fcfs", "priority", "priority"]),
    caching=st.just(True),
)
CROWDED_SCRIPTS = st.lists(
    st.tuples(st.integers(1, 7), st.integers(4, MOST_OUTPUT), st.integers(0, 3)),
    min_size=5,
    max_size=8,
).map(
    lambda rows: Script(
        [
            EngineRequest(
                f"r{number}",
                TokenRuns([range(min(prompt, 3)), range(100 * number, 100 * number + prompt)]),
                range(100 * number + 50, 100 * number + 50 + outputs),
                priority=priority,
            )
            for number, (prompt, outputs, priority) in enumerate(rows)
        ],
        range(len(rows)),
    )
)


@pytest.fixture(autouse=True, params=BOTH)
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    take_loops(request.param, monkeypatch)


def told_steps(play: Play) -> list[tuple[StepOutcome, list[str]]]:
    """Every outcome, and the order of who was scheduled."""
    return [(outcome, list(outcome.scheduled)) for outcome in play.steps()]


def check_equal(setting: Setting, script: Script) -> None:
    readable = ReadablePlay(setting.engine(), script)
    compiled = CompiledPlay(setting.engine(), script)
    expected = told_steps(readable)
    assert told_steps(compiled) == expected
    assert compiled.stats() == readable.stats()
    assert compiled.cache_contents() == readable.cache_contents()
    assert sum(len(outcome.finished) for outcome, _order in expected) == len(script.requests)


def test_tokens_that_fit_into_no_array_are_left_to_the_readable_engine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A trace may name blocks by hashes of 64 bits."""
    monkeypatch.setattr(play, "WORTH_LOADING", 0)
    for first, path in ((1 << 62, PlayPath.COMPILED), (1 << 63, PlayPath.PURE)):
        tokens = TokenRuns([range(first, first + 40)])
        script = Script([EngineRequest(f"r{number}", tokens, range(1)) for number in range(2)])
        chosen = play_script(Engine("vllm-0.33", 20), script)
        assert chosen.path is path
        assert [outcome.hits for outcome in chosen.play.steps()] == [{"r0": 0, "r1": 32}]
    with pytest.raises(ConfigError, match="63 bits"):
        play_script(Engine("vllm-0.33", 20), script, PlayPath.COMPILED)


def test_vllm_and_what_is_built_like_it_is_played() -> None:
    assert {"vllm-0.9", "vllm-0.33", "vllm-0.33:decode", "mindie", "ideal"} <= set(PROFILES)


def test_every_step_is_equal() -> None:
    settings(deadline=None, max_examples=200)(given(SETTINGS, scripts())(check_equal))()


def test_every_step_is_equal_where_many_are_pushed_back() -> None:
    settings(deadline=None, max_examples=150)(
        given(CROWDED_SETTINGS, CROWDED_SCRIPTS)(check_equal)
    )()


def test_a_log_that_is_often_full_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_play, "_LOGGED_STEPS", 2)
    monkeypatch.setattr(compiled_play, "_LOGGED_ENTRIES", 1)
    settings(deadline=None, max_examples=30)(given(SETTINGS, scripts())(check_equal))()
