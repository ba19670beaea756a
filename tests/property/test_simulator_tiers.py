"""Tiers below an engine's cache against plain lists, and what must hold whatever happens."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from prefixbench.core.clock import VirtualClock
from prefixbench.core.tally import HitTally
from prefixbench.simulator.engine import Engine
from prefixbench.simulator.request import EngineRequest
from prefixbench.simulator.rules import TierRules, TierWrite
from simulated import drain
from tier_oracles import ListTier, TieredPool

BLOCK = 2

#: Tokens of a prompt, of its output, and the time that passes before it.
ROWS = st.lists(
    st.tuples(
        st.lists(st.integers(0, 1), min_size=1, max_size=14),
        st.integers(1, 6),
        st.integers(0, 3),
    ),
    min_size=1,
    max_size=25,
)
TTL = st.sampled_from([None, None, 4])


@st.composite
def tiers(draw: st.DrawFn) -> list[TierRules]:
    """One to three tiers; one that is written on eviction has the units of the cache above."""
    unit = BLOCK
    chosen = []
    for name in ("host", "disk", "external")[: draw(st.integers(1, 3))]:
        write = draw(st.sampled_from(TierWrite))
        unit = unit if write is TierWrite.ON_EVICTION else draw(st.sampled_from([2, 4, 6]))
        chosen.append(
            TierRules(
                name=name,
                unit_len=unit,
                write=write,
                stores_output=draw(st.booleans()),
                capacity_units=draw(st.integers(1, 12)),
                ttl_ns=draw(TTL),
            )
        )
    return chosen


def list_tier(rules: TierRules) -> ListTier:
    assert rules.capacity_units is not None
    return ListTier(
        unit=rules.unit_len,
        capacity=rules.capacity_units,
        on_eviction=rules.write is TierWrite.ON_EVICTION,
        stores_output=rules.stores_output,
        ttl=rules.ttl_ns,
    )


@given(ROWS, tiers(), st.integers(10, 14), st.sampled_from(["vllm-0.33", "vllm-0.20"]))
@settings(max_examples=300, deadline=None)
def test_one_by_one_the_tiers_are_lists(
    rows: list[tuple[list[int], int, int]], rules: list[TierRules], capacity: int, profile: str
) -> None:
    clock = VirtualClock()
    engine = Engine(profile, capacity, block_size=BLOCK, tiers=rules, clock=clock)
    oracle = TieredPool(
        BLOCK,
        capacity,
        keyless_first=profile != "vllm-0.20",
        tiers=[list_tier(each) for each in rules],
    )
    for number, (prompt, outputs, gap) in enumerate(rows):
        clock.advance(gap)
        output = range(100 * number + 10, 100 * number + 10 + outputs)
        engine.submit(EngineRequest("r", prompt, output))
        first = drain(engine)[0]
        hit, below = oracle.serve_tiered(prompt, output, clock.now_ns())
        found = [first.tier_hits.get("r", {}).get(each.name, 0) for each in rules]
        assert (first.hits["r"], found) == (hit, below)
        assert first.scheduled["r"] == len(prompt) - hit - sum(below)
    for store, tier in zip(engine.options.stores, oracle.tiers, strict=True):
        assert len(store) == len(tier.held)


@given(
    ROWS,
    tiers(),
    st.sampled_from(["vllm-0.33", "vllm-0.26", "mindie", "nano-vllm", "sglang-0.5"]),
    st.integers(1, 5),
)
@settings(max_examples=100, deadline=None)
def test_every_token_is_found_once_or_computed(
    rows: list[tuple[list[int], int, int]], rules: list[TierRules], profile: str, concurrency: int
) -> None:
    """Concurrent, with preemption: tallies of the tiers continue each other and add up."""
    if profile == "sglang-0.5":
        rules = [each for each in rules if each.write is TierWrite.THROUGH]
    engine = Engine(profile, 24, block_size=BLOCK, max_num_seqs=4, tiers=rules)
    hits = below = 0
    for start in range(0, len(rows), concurrency):
        for number, (prompt, outputs, _) in enumerate(rows[start : start + concurrency], start):
            output = range(100 * number + 10, 100 * number + 10 + outputs)
            engine.submit(EngineRequest(f"r{number}", prompt, output))
        for outcome in drain(engine):
            hits += sum(outcome.hits.values())
            below += sum(
                sum(found.values())
                for name, found in outcome.tier_hits.items()
                if name in outcome.hits
            )
    stats = engine.stats()
    asked = stats.tokens
    for tier in stats.tiers:
        if profile != "vllm-0.26":  # which counts look-ups of its own cache that led to nothing
            assert tier.tokens.queries == asked.queries - asked.hits
        asked = tier.tokens
        assert 0 <= tier.hits <= tier.queries
    if profile == "mindie":  # which counts a resumed request like a new one
        return
    assert sum(tier.hits for tier in stats.tiers) == below
    if profile != "vllm-0.26":
        assert stats.hits == hits
        assert stats.anywhere == HitTally(hits + below, sum(len(prompt) for prompt, _, _ in rows))


@given(ROWS)
@settings(deadline=None)
def test_a_tier_with_room_for_all_makes_up_for_a_small_device(
    rows: list[tuple[list[int], int, int]],
) -> None:
    """Whatever a large device would find, a small one finds with an unlimited tier below."""
    small = Engine("vllm-0.33", 10, block_size=BLOCK, tiers=[TierRules(name="host", unit_len=2)])
    large = Engine("vllm-0.33", block_size=BLOCK)
    for number, (prompt, outputs, _) in enumerate(rows):
        output = range(100 * number + 10, 100 * number + 10 + outputs)
        found = []
        for engine in (small, large):
            engine.submit(EngineRequest("r", prompt, output))
            first = drain(engine)[0]
            found.append(first.hits["r"] + sum(first.tier_hits.get("r", {}).values()))
        # A block whose last token is computed again can be loaded but not be hit on the device.
        assert found[1] <= found[0] <= min(found[1] + BLOCK, len(prompt) - 1)
