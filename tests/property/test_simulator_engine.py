"""An engine under arbitrary use: requests come, go, are dropped; it never contradicts itself."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from prefixbench.simulator.block_keys import BlockKeys
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.rules import TierRules, TierWrite
from prefixbench.simulator.tokens import TokenRuns

PAGED = [
    ("vllm-0.33", "fcfs"),
    ("vllm-0.33", "priority"),
    ("vllm-0.33:decode", "fcfs"),
    ("vllm-0.26", "fcfs"),
    ("vllm-0.12", "fcfs"),
    ("mindie", "fcfs"),
    ("nano-vllm", "fcfs"),
    ("ideal", "fcfs"),
]
TREES = [("sglang-0.5", "fcfs"), ("sglang-0.5", "lpm"), ("sglang-0.5", "dfs-weight")]
CAPACITY, BLOCK = 10, 3
THROUGH = TierRules(name="host", unit_len=2 * BLOCK, capacity_units=4)
FROM_DEVICE = TierRules(name="near", unit_len=BLOCK, capacity_units=3, write=TierWrite.ON_EVICTION)
FROM_HOST = TierRules(name="far", unit_len=2 * BLOCK, capacity_units=3, write=TierWrite.ON_EVICTION)


class EngineUse(RuleBasedStateMachine):
    """Short prompts over two token values share often; a small pool evicts and preempts often."""

    @initialize(
        kind=st.sampled_from(PAGED + TREES),
        budget=st.sampled_from([3, 7, 40]),
        seats=st.integers(1, 4),
        chunked=st.booleans(),
        threshold=st.sampled_from([0, 4]),
        caching=st.sampled_from([True, True, True, False]),
        overlap=st.booleans(),
        tiers=st.sampled_from([(), (), (THROUGH,), (FROM_DEVICE, THROUGH), (THROUGH, FROM_HOST)]),
    )
    def start(
        self,
        kind: tuple[str, str],
        budget: int,
        seats: int,
        chunked: bool,
        threshold: int,
        caching: bool,
        overlap: bool,
        tiers: tuple[TierRules, ...],
    ) -> None:
        profile, policy = kind
        if kind in TREES:
            tiers = tuple(each for each in tiers if each is THROUGH)
        self.engine = Engine(
            profile,
            CAPACITY,
            budget if chunked else 40,
            seats,
            block_size=BLOCK,
            chunked_prefill=chunked,
            long_prefill_token_threshold=threshold,
            policy=policy,
            prefix_caching=caching,
            overlap=overlap,
            tiers=tiers,
        )
        self.sent: dict[str, EngineRequest] = {}
        self.open: set[str] = set()
        self.sampled: dict[str, int] = {}
        self.preempted: set[str] = set()

    @rule(
        prompt=st.lists(st.integers(0, 1), min_size=1, max_size=14),
        outputs=st.integers(1, 9),
        salt=st.sampled_from([(), ("x",)]),
        priority=st.integers(0, 2),
    )
    def submit(self, prompt: list[int], outputs: int, salt: tuple[str, ...], priority: int) -> None:
        number = len(self.sent)
        output = range(100 * number + 10, 100 * number + 10 + outputs)
        request = EngineRequest(f"r{number}", prompt, output, salt, priority)
        self.engine.submit(request)
        self.sent[request.request_id] = request
        self.open.add(request.request_id)

    @rule(limit=st.sampled_from([1, 1, 5]))
    def step(self, limit: int) -> None:
        outcome = self.engine.step(limit)
        assert 0 < outcome.times <= limit
        for named in (outcome.scheduled, outcome.hits, outcome.sampled, outcome.finished):
            assert set(named) <= self.open
        assert sum(outcome.scheduled.values()) <= self.engine.options.max_num_batched_tokens or (
            all(tokens == 1 for tokens in outcome.scheduled.values())
        )
        for request_id, hit in outcome.hits.items():
            assert 0 <= hit <= len(self.sent[request_id].prompt)
        for request_id, below in outcome.tier_hits.items():
            assert min(below.values()) > 0
            assert outcome.scheduled[request_id] > 0
        for request_id in outcome.sampled:
            self.sampled[request_id] = self.sampled.get(request_id, 0) + outcome.times
        for request_id in outcome.finished:
            assert self.sampled[request_id] == len(self.sent[request_id].output)
            self.open.remove(request_id)

    @rule(data=st.data())
    def abort(self, data: st.DataObject) -> None:
        known = sorted(self.sent)
        if known:
            request_id = data.draw(st.sampled_from(known))
            assert self.engine.abort(request_id) == (request_id in self.open)
            self.open.discard(request_id)

    @rule()
    def reset(self) -> None:
        if self.engine.reset_prefix_cache():
            assert self.engine.cache_contents().cached_blocks == 0

    @rule()
    def finish_all(self) -> None:
        for _ in range(2000):
            if not self.engine.has_work:
                break
            self.step(1)
            self.engine.check_integrity()
        assert not self.open, "no progress"
        assert self.engine.kv_usage == 0.0
        assert self.engine.reset_prefix_cache()

    @invariant()
    def agrees_with_itself(self) -> None:
        if hasattr(self, "engine"):
            self.engine.check_integrity()
            assert self.engine.has_work == bool(self.open)
            assert 0.0 <= self.engine.kv_usage <= 1.0


TestEngineUse = EngineUse.TestCase
TestEngineUse.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


RUNS = st.lists(
    st.tuples(st.integers(0, 12), st.integers(0, 7)).map(
        lambda run: range(run[0], run[0] + run[1])
    ),
    max_size=6,
)


@given(st.lists(st.tuples(RUNS, RUNS, st.booleans()), max_size=8), st.integers(1, 4))
def test_two_blocks_have_one_key_if_and_only_if_all_up_to_them_is_equal(
    rows: list[tuple[list[range], list[range], bool]], block_size: int
) -> None:
    """Whether tokens are held as runs or as a list makes no difference."""
    keys = BlockKeys(block_size)
    key_of: dict[tuple[int, ...], int] = {}
    for prompt_runs, output_runs, as_list in rows:
        prompt, output = TokenRuns(prompt_runs), TokenRuns(output_runs)
        tokens = [*prompt, *output]
        found = keys.of(list(prompt) if as_list else prompt, output)
        assert len(found) == len(tokens) // block_size
        for index, key in enumerate(found):
            path = tuple(tokens[: (index + 1) * block_size])
            assert key_of.setdefault(path, key) == key
    assert len(set(key_of.values())) == len(key_of)


@given(st.lists(RUNS, min_size=1, max_size=8), st.integers(1, 3), st.data())
def test_keys_that_are_kept_stay_the_same(
    rows: list[list[range]], block_size: int, data: st.DataObject
) -> None:
    keys = BlockKeys(block_size)
    before = [keys.of(TokenRuns(runs), ()) for runs in rows]
    every = sorted({key for row in before for key in row})
    kept = data.draw(st.lists(st.sampled_from(every), unique=True)) if every else []
    keys.forget_all_but(kept)
    assert len(keys) <= len(every)
    for runs, row in zip(rows, before, strict=True):
        again = keys.of(TokenRuns(runs), ())
        deepest = max((index for index, key in enumerate(row) if key in kept), default=-1)
        assert again[: deepest + 1] == row[: deepest + 1]
        assert not set(again[deepest + 1 :]) & set(kept)
