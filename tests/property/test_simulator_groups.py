"""Several KV groups: what they must have in common with one, whatever is asked of them."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from prefixbench.simulator.engine import Engine
from prefixbench.simulator.profile import get_profile
from prefixbench.simulator.rules import KVGroup, next_row
from simulated import one_by_one, request, text, together

BLOCK = 4

#: Prompts that share a head with others of the same seed: seed, shared and own tokens, outputs.
ROWS = st.lists(
    st.tuples(st.integers(0, 2), st.integers(1, 40), st.integers(1, 12), st.integers(1, 6)),
    min_size=1,
    max_size=12,
)
#: A window of one token needs no block before it, so vLLM keeps none and nothing hits.
WINDOWS = st.integers(2, 30)
Rows = Sequence[tuple[int, int, int, int]]


def requests(rows: Rows):
    return [request(text((seed, shared), own), outputs) for seed, shared, own, outputs in rows]


def engine(profile: str, *groups: KVGroup, **options) -> Engine:
    row = next_row(get_profile(profile), {}, groups=groups)
    return Engine(row, block_size=BLOCK, **options)


@given(ROWS)
def test_without_limit_equal_groups_hit_as_one(rows: Rows) -> None:
    asked = requests(rows)
    one = one_by_one(engine("vllm-0.33"), asked)
    assert one_by_one(engine("vllm-0.33", KVGroup(), KVGroup()), asked) == one


@given(ROWS, WINDOWS)
def test_windows_that_keep_all_blocks_cost_no_hit_and_sparse_ones_gain_none(
    rows: Rows, window: int
) -> None:
    asked = requests(rows)
    groups = (KVGroup(), KVGroup(window=window))
    plain = one_by_one(engine("vllm-0.28"), asked)
    assert one_by_one(engine("vllm-0.28", *groups), asked) == plain
    sparse = one_by_one(engine("vllm-0.33", *groups), asked)
    assert all(less <= more for less, more in zip(sparse, plain, strict=True))


@given(ROWS, WINDOWS, st.integers(60, 120), st.sampled_from([8, 32, 500]))
def test_tight_pools_stay_whole_after_every_step(
    rows: Rows, window: int, blocks: int, budget: int
) -> None:
    groups = (KVGroup(), KVGroup(window=window), KVGroup(recurrent=True))
    engines = [
        engine("vllm-0.33", *groups, capacity_blocks=blocks, max_num_batched_tokens=budget),
        engine("vllm-0.23", *groups[:2], capacity_blocks=blocks, max_num_batched_tokens=budget),
    ]
    for each in engines:
        asked = requests(rows)
        finished = [name for step in together(each, asked) for name in step.finished]
        assert sorted(finished) == sorted(one.request_id for one in asked)
        assert each.kv_usage == 0
