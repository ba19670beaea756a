"""Published and cross-checked figures of real traces, to the last digit where they have one.

Mooncake FAST'25 (kvcache-ai/Mooncake), WEKA's agent sessions (callanjfox/kv-cache-tester), Azure
2023. The traces are not part of the repository: they are looked for in `../shared/traces`. What
proves the code without them is `tests/unit/test_simulator_small_trace.py`.
"""

from __future__ import annotations

import gzip
import json
import statistics
from collections import defaultdict
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from prefixbench.config.load import parse_config
from prefixbench.core.percentiles import percentile
from prefixbench.core.tally import HitTally, Unit, total
from prefixbench.exchange.fidelity import compare_with_plan
from prefixbench.exchange.load import open_trace
from prefixbench.exchange.synthesize import synthesize
from prefixbench.exchange.trace import ReadOptions, TraceFormat
from prefixbench.pipeline import plan_prefix_cache_dataset
from prefixbench.simulator.hit_definition import HitDefinition, hit_ratio
from prefixbench.simulator.trace import TraceRequest
from prefixbench.simulator.trace_cache import CacheRules, IndexedTrace, Policy, TraceCache
from prefixbench.workload.rows import request_plans
from shared_folder import shared_folder

TRACES = shared_folder() / "traces"
BLOCK = 512

pytestmark = pytest.mark.skipif(
    not TRACES.is_dir(), reason="the published traces are not here (../shared/traces)"
)


@cache
def mooncake(name: str) -> list[TraceRequest]:
    path = TRACES / "mooncake-fast25" / f"{name}_trace.jsonl"
    return list(open_trace(path, TraceFormat.MOONCAKE).requests)


@cache
def indexed(name: str) -> IndexedTrace:
    return IndexedTrace(mooncake(name))


@cache
def cache_of(name: str, policy: Policy = Policy.LRU) -> TraceCache:
    return TraceCache(indexed(name), CacheRules(policy=policy))


def ratio(name: str, definition: HitDefinition, hits: Sequence[int], window: float = 1.0) -> float:
    found = hit_ratio(definition, mooncake(name), hits, BLOCK, window=window).ratio
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("name", "requests", "accesses", "unique"),
    [("conversation", 12_031, 288_500, 182_790), ("synthetic", 3_993, 121_877, 43_924)],
)
def test_the_traces_have_their_published_size(
    name: str, requests: int, accesses: int, unique: int
) -> None:
    trace = mooncake(name)
    assert len(trace) == requests
    assert sum(request.block_count for request in trace) == accesses
    assert len(indexed(name).tree) == unique
    assert indexed(name).tree.repeated_ids() == 0


#: Hit blocks at a capacity in blocks; two figures (5,859 and 50,000) are also prefixlens's own.
HIT_BLOCKS = {
    "conversation": {
        1_000: 12_847,
        3_000: 18_850,
        5_859: 39_258,
        10_000: 61_046,
        30_000: 93_978,
        50_000: 102_290,
        97_656: 104_870,
        None: 105_710,
    },
    "synthetic": {
        1_000: 10_252,
        3_000: 23_226,
        5_859: 37_703,
        10_000: 51_669,
        30_000: 76_077,
        None: 77_953,
    },
}


@pytest.mark.parametrize("name", HIT_BLOCKS)
def test_lru_hits_at_every_listed_capacity(name: str) -> None:
    cached = cache_of(name)
    curve = cached.lru_curve()
    assert {c: curve.tally(c).hits for c in HIT_BLOCKS[name]} == HIT_BLOCKS[name]
    assert {c: sum(cached.hit_blocks(c)) for c in HIT_BLOCKS[name]} == HIT_BLOCKS[name]


#: kvcache-simulator 0.1.3: hit tokens of the last half of the requests, by capacity in blocks.
LAST_HALF = {
    "conversation": {
        Policy.LRU: {
            316: 3_082_824,
            1_409: 3_320_864,
            5_637: 8_928_755,
            22_550: 21_501_492,
            90_200: 26_550_644,
            None: 27_038_068,
        },
        Policy.FIFO: {316: 2_890_824, 1_409: 3_263_837, 5_637: 8_301_260, 22_550: 18_868_426},
        Policy.OPTIMAL: {
            316: 7_672_933,
            1_409: 15_614_456,
            5_637: 25_320_951,
            22_550: 27_038_068,
        },
    },
    "synthetic": {
        Policy.LRU: {316: 1_534_211, 1_409: 6_376_252, 5_637: 16_187_558, 22_550: 29_142_879},
        Policy.FIFO: {316: 1_346_819, 1_409: 5_929_152, 5_637: 15_926_198, 22_550: 27_197_698},
        Policy.OPTIMAL: {316: 7_521_392, 1_409: 15_582_315, 5_637: 26_080_495, 22_550: 31_535_563},
    },
}


@pytest.mark.parametrize("policy", [Policy.LRU, Policy.FIFO, Policy.OPTIMAL])
@pytest.mark.parametrize("name", LAST_HALF)
def test_hit_tokens_of_the_last_half(name: str, policy: Policy) -> None:
    cached = cache_of(name, policy)
    found = {}
    for capacity in LAST_HALF[name][policy]:
        hits = cached.hit_blocks(capacity)
        measured = hit_ratio(
            HitDefinition.TOKENS_CAPPED, cached.trace.requests, hits, BLOCK, window=0.5
        )
        assert measured.tally is not None
        found[capacity] = measured.tally.hits
        if name == "conversation":
            assert measured.tally.queries == 67_915_607
    assert found == LAST_HALF[name][policy]


def test_the_optimum_as_it_was_published() -> None:
    cached = cache_of("conversation", Policy.OPTIMAL)
    found = [
        round(ratio("conversation", HitDefinition.TOKENS_CAPPED, cached.hit_blocks(c), 0.5), 4)
        for c in (1_409, 5_637, 22_550)
    ]
    assert found == [0.2299, 0.3728, 0.3981]


#: Without limit, by definition: conversation, synthetic.
DEFINITIONS = {
    HitDefinition.BLOCKS: (0.3664, 0.6396),
    HitDefinition.TOKENS_CAPPED: (0.3736, 0.6512),
    HitDefinition.TOKENS_ENGINE: (0.3734, 0.6504),
    HitDefinition.FULL_BLOCKS: (0.3819, 0.6594),
    HitDefinition.MEAN_BLOCK_RATIO: (0.3843, 0.4232),
    HitDefinition.MEAN_TOKEN_RATIO: (0.4094, 0.4315),
}


@pytest.mark.parametrize("definition", HitDefinition)
def test_each_definition_has_its_own_figure(definition: HitDefinition) -> None:
    found = tuple(
        round(ratio(name, definition, cache_of(name).hit_blocks()), 4)
        for name in ("conversation", "synthetic")
    )
    assert found == DEFINITIONS[definition]


def test_a_loose_count_of_full_blocks_says_more() -> None:
    """A partial last block that hits, counted above and not below, as some tools do."""
    found = [
        round(
            sum(cache_of(name).hit_blocks())
            / sum(request.input_len // BLOCK for request in mooncake(name)),
            4,
        )
        for name in ("conversation", "synthetic")
    ]
    assert found == [0.3823, 0.6612]


def test_dynamos_replay_reuses_the_same_share() -> None:
    """Dynamo offline replay 1.6.1, one worker, 200,000 blocks, to its last digit."""
    hits = cache_of("conversation").hit_blocks(200_000)
    found = ratio("conversation", HitDefinition.TOKENS_ENGINE, hits)
    assert found == 0.373379905854133
    assert (
        round(
            ratio("synthetic", HitDefinition.TOKENS_ENGINE, cache_of("synthetic").hit_blocks()), 5
        )
        == 0.65043
    )


#: Workers in turn, blocks of each: our share, and what Dynamo's replay 1.6.1 found under vLLM's and
#: SGLang's rules. It serves requests together, which queue where a cache is small.
WORKERS = {
    (1, 5_859): (0.1386, [0.1352]),
    (1, 20_000): (0.2933, [0.2958, 0.2952]),
    (4, 5_859): (0.1313, [0.1316]),
    (4, 200_000): (0.1955, [0.1955]),
}
QUEUEING = 0.0035


@pytest.mark.parametrize(("workers", "capacity"), WORKERS)
def test_round_robin_over_workers(workers: int, capacity: int) -> None:
    trace = mooncake("conversation")
    tallies = []
    for worker in range(workers):
        own = trace[worker::workers]
        hits = TraceCache(IndexedTrace(own)).hit_blocks(capacity)
        found = hit_ratio(HitDefinition.TOKENS_ENGINE, own, hits, BLOCK).tally
        assert found is not None
        tallies.append(found)
    pooled = total(tallies).ratio
    assert pooled is not None
    expected, dynamo = WORKERS[workers, capacity]
    assert round(float(pooled), 4) == expected
    assert all(abs(float(pooled) - share) < QUEUEING for share in dynamo)


#: Plain LRU of single blocks at shares of the unique blocks.
PLAIN_LRU = {
    "conversation": {0.01: 0.052, 0.05: 0.195, 0.1: 0.278, 0.25: 0.353, 0.5: 0.363, 1: 0.366},
    "synthetic": {0.01: 0.034, 0.05: 0.155, 0.1: 0.260, 0.25: 0.443, 0.5: 0.589, 1: 0.640},
}


@pytest.mark.parametrize("name", PLAIN_LRU)
def test_plain_block_lru_at_shares_of_the_unique_blocks(name: str) -> None:
    cached = cache_of(name, Policy.BLOCK_LRU)
    curve = cached.lru_curve()
    found = {}
    for share in PLAIN_LRU[name]:
        hit_share = curve.tally(int(len(cached.trace.tree) * share)).ratio
        assert hit_share is not None
        found[share] = round(float(hit_share), 3)
    assert found == PLAIN_LRU[name]


def test_a_head_that_is_the_oldest_costs_hits() -> None:
    assert sum(cache_of("conversation", Policy.BLOCK_LRU).hit_blocks(5_859)) == 39_101


def test_the_order_of_touch_counts_most_in_a_small_cache() -> None:
    """Synthetic trace, 1 % of its unique blocks: the tail goes first, or the head."""
    capacity = len(indexed("synthetic").tree) // 100
    found = [
        round(float(cache_of("synthetic", policy).lru_curve().tally(capacity).ratio or 0), 4)
        for policy in (Policy.LRU, Policy.BLOCK_LRU)
    ]
    assert found == [0.0381, 0.0343]


def test_three_million_tokens_keep_the_share_that_the_paper_prints() -> None:
    """FAST'25: 41 % (conversation) and 46 % (synthetic) of the maximum, at finer blocks."""
    shares = [
        ratio(name, HitDefinition.TOKENS_CAPPED, cache_of(name).hit_blocks(3_000_000 // BLOCK))
        / ratio(name, HitDefinition.TOKENS_CAPPED, cache_of(name).hit_blocks())
        for name in ("conversation", "synthetic")
    ]
    assert [round(share, 2) for share in shares] == [0.37, 0.48]
    assert all(abs(share - paper) < 0.05 for share, paper in zip(shares, (0.41, 0.46), strict=True))


def test_runs_stand_for_many_blocks() -> None:
    """Blocks and runs a request, as the traces number them."""
    sizes = {name: (mooncake(name), indexed(name)) for name in ("conversation", "synthetic")}
    found = {
        name: (
            round(cached.accesses / len(trace), 1),
            round(sum(len(request.blocks) for request in trace) / len(trace), 2),
        )
        for name, (trace, cached) in sizes.items()
    }
    assert found == {"conversation": (24.0, 2.78), "synthetic": (30.5, 1.43)}
    requests = sessions().trace.requests
    runs = sum(len(request.blocks) for request in requests) / len(requests)
    assert round(runs, 1) == 3.4


#: Mooncake FAST'25, figure 9, read from its curves: capacity in tokens, the paper's, ours.
FIGURE_9 = {
    ("conversation", Policy.LRU): {
        1e4: (0.0450, 0.0425),
        1e5: (0.0731, 0.0427),
        1e6: (0.0866, 0.0543),
        2e6: (0.1202, 0.0865),
        4e6: (0.2149, 0.1783),
        5e6: (0.2472, 0.2111),
        8e6: (0.2997, 0.2663),
        1e7: (0.3263, 0.2908),
        5e7: (0.3983, 0.3707),
        1e8: (0.4006, 0.3736),
    },
    ("synthetic", Policy.BLOCK_LRU): {
        1e4: (0.0004, 0.0003),
        1e5: (0.0117, 0.0116),
        1e6: (0.1461, 0.1421),
        2e6: (0.2345, 0.2315),
        4e6: (0.3805, 0.3745),
        5e6: (0.4352, 0.4278),
        8e6: (0.5447, 0.5356),
        1e7: (0.5886, 0.5768),
        5e7: (0.6582, 0.6512),
        1e8: (0.6582, 0.6512),
    },
}


@pytest.mark.parametrize(("name", "policy"), FIGURE_9)
def test_figure_9_bounds_ours(name: str, policy: Policy) -> None:
    """The figure was most likely computed with finer blocks: at most 511 tokens a request more."""
    trace = mooncake(name)
    finer = 511 / (sum(request.input_len for request in trace) / len(trace))
    for tokens, (paper, ours) in FIGURE_9[name, policy].items():
        hits = cache_of(name, policy).hit_blocks(int(tokens) // BLOCK)
        found = ratio(name, HitDefinition.TOKENS_CAPPED, hits)
        assert round(found, 4) == ours
        assert found <= paper <= found + finer


ENGINE_RATIOS = dict(
    zip(("conversation", "synthetic"), DEFINITIONS[HitDefinition.TOKENS_ENGINE], strict=True)
)


@pytest.mark.deep
@pytest.mark.parametrize(
    ("name", "equal", "moved"), [("conversation", 0.4424, 0.0588), ("synthetic", 0.9707, 0.0017)]
)
def test_what_a_synthesized_plan_keeps_of_a_trace(name: str, equal: float, moved: float) -> None:
    """Nearly every conversation begins with one common block, which groups cannot share."""
    trace = mooncake(name)
    planned = plan_prefix_cache_dataset(parse_config(synthesize(trace, BLOCK).settings))
    fidelity = compare_with_plan(trace, request_plans(planned.plan), BLOCK)
    assert fidelity.moved_hits is not None
    assert (round(fidelity.equal_requests, 4), round(fidelity.moved_hits, 4)) == (equal, moved)
    assert round(planned.report["designed_hit_ratio"], 4) == ENGINE_RATIOS[name]
    assert all(abs(one.planned - one.trace) < 0.05 for one in fidelity.curve)


WEKA = TRACES / "weka-claude-code"


def weka(path: Path, **options: bool) -> list[TraceRequest]:
    return list(open_trace(path, TraceFormat.WEKA, ReadOptions(**options)).requests)


@cache
def sessions() -> TraceCache:
    return TraceCache(IndexedTrace(weka(WEKA / "kvct_runs.jsonl.gz")))


def test_agent_sessions_hit_almost_everything() -> None:
    cached = sessions()
    hits = cached.hit_blocks()
    assert sum(request.block_count for request in cached.trace.requests) == 93_832_730
    pooled = [
        hit_ratio(definition, cached.trace.requests, hits, 64).ratio
        for definition in (HitDefinition.BLOCKS, HitDefinition.TOKENS_CAPPED)
    ]
    assert [round(one or 0, 4) for one in pooled] == [0.9639, 0.9636]


def test_agent_sessions_one_by_one() -> None:
    """README of 739 sessions: median 96 %, mean 93 %; 710 of them are here."""
    cached = sessions()
    tallies: defaultdict[int | None, HitTally] = defaultdict(lambda: HitTally(0, 0, Unit.BLOCK))
    for request, hits in zip(cached.trace.requests, cached.hit_blocks(), strict=True):
        tallies[request.conversation] += HitTally(hits, request.block_count, Unit.BLOCK)
    ratios = [tally.hits / tally.queries for tally in tallies.values()]
    assert len(ratios) == 710
    assert round(statistics.median(ratios), 4) == 0.9555
    assert round(statistics.mean(ratios), 4) == 0.9289
    assert round(percentile(ratios, 25) or 0, 2) == 0.92


def test_the_original_form_is_the_one_in_runs() -> None:
    original = weka(WEKA / "trace_0002.json")
    with gzip.open(WEKA / "kvct_runs.jsonl.gz") as file:
        lines = [line for line in file if b'"trace_0002"' in line[:40]]
    assert len(lines) == 1
    assert len(original) == 33
    second = [request for request in sessions().trace.requests if request.conversation == 1]
    moved = second[0].blocks[0].start - original[0].blocks[0].start
    assert [
        tuple(range(run.start + moved, run.stop + moved) for run in request.blocks)
        for request in original
    ] == [request.blocks for request in second]


def test_sub_agents_can_be_taken_in() -> None:
    path = WEKA / "kvct_runs.jsonl.gz"
    assert (len(sessions().trace.requests), len(weka(path, sub_agents=True))) == (48_658, 49_334)
    # 48,721 entries at the top, as its README counts them: 63 of them stand for sub-agents.
    with gzip.open(path) as file:
        tops = [entry for line in file for entry in json.loads(line)["requests"]]
    assert (len(tops), sum("requests" in entry for entry in tops)) == (48_721, 63)


def test_azure_tells_lengths_and_arrivals() -> None:
    folder = TRACES / "azure-llm-2023"
    traces = {
        name: list(
            open_trace(folder / f"AzureLLMInferenceTrace_{name}.csv", TraceFormat.AZURE).requests
        )
        for name in ("code", "conv")
    }
    assert {name: len(rows) for name, rows in traces.items()} == {"code": 8_819, "conv": 19_366}
    first = traces["code"][0]
    assert (first.arrival_ms, first.input_len, first.output_len) == (0.0, 4_808, 10)
    assert traces["code"][1].arrival_ms == 52.0
    assert not any(request.blocks for rows in traces.values() for request in rows)
