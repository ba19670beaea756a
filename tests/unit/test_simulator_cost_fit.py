"""Fitting the cost model: known prices are found again, noise does not turn them negative."""

from __future__ import annotations

from random import Random

import pytest

from prefixbench.simulator.cost import CostModel
from prefixbench.simulator.cost_fit import StepSample, fit_cost_model

PRICES = CostModel(
    step_ns=2e6, prefill_token_ns=30_000, context_token_ns=40, decode_sequence_ns=90_000
)


def sample(prefill: int, context: int, decode: int, prices: CostModel = PRICES, noise: float = 1.0):
    duration = prices.duration_ns(prefill, context, decode)
    return StepSample(
        prefill_tokens=prefill,
        context_tokens=context,
        decode_sequences=decode,
        duration_ns=duration * noise,
    )


STEPS = [
    (512, 512, 0),
    (4096, 4096, 0),
    (128, 4096, 0),
    (0, 900, 1),
    (0, 40_000, 16),
    (64, 9_000, 8),
]


def test_known_prices_are_found_again() -> None:
    found = fit_cost_model([sample(*step) for step in STEPS])
    assert found.step_ns == pytest.approx(PRICES.step_ns, rel=1e-4)
    assert found.prefill_token_ns == pytest.approx(PRICES.prefill_token_ns, rel=1e-4)
    assert found.context_token_ns == pytest.approx(PRICES.context_token_ns, rel=1e-4)
    assert found.decode_sequence_ns == pytest.approx(PRICES.decode_sequence_ns, rel=1e-4)


def test_noise_never_gives_a_negative_price() -> None:
    draw = Random(3)
    for _ in range(20):
        noisy = [sample(*step, noise=draw.uniform(0.3, 3)) for step in STEPS]
        found = fit_cost_model(noisy)
        assert min(found.step_ns, found.prefill_token_ns) >= 0
        assert min(found.context_token_ns, found.decode_sequence_ns) >= 0


def test_a_price_that_no_sample_tells_apart_is_zero() -> None:
    only_prefill = CostModel(step_ns=1e6, prefill_token_ns=10)
    found = fit_cost_model([sample(n, 0, 0, only_prefill) for n in (100, 1000, 100_000)])
    assert found.decode_sequence_ns == 0.0
    assert found.prefill_token_ns == pytest.approx(10, rel=1e-3)


def test_no_other_prices_fit_better() -> None:
    draw = Random(5)
    noisy = [sample(*step, noise=draw.uniform(0.5, 2)) for step in STEPS]

    def error(prices: CostModel) -> float:
        return sum(
            (
                prices.duration_ns(s.prefill_tokens, s.context_tokens, s.decode_sequences)
                / s.duration_ns
                - 1
            )
            ** 2
            for s in noisy
        )

    best = fit_cost_model(noisy)
    names = ("step_ns", "prefill_token_ns", "context_token_ns", "decode_sequence_ns")
    for _ in range(300):
        moved = {name: getattr(best, name) * draw.uniform(0.8, 1.25) for name in names}
        assert error(CostModel(**moved)) >= error(best) - 1e-6


def test_without_samples_there_is_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        fit_cost_model([sample(0, 0, 0, CostModel())])
