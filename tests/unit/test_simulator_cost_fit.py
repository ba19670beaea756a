"""Fitting the cost model: known prices are found again, noise does not turn them negative."""

from __future__ import annotations

from random import Random

import pytest

from prefixbench.simulator.cost import CostModel, Work
from prefixbench.simulator.cost_fit import PRICES as PRICE_NAMES
from prefixbench.simulator.cost_fit import WorkSample, fit_cost_model, unknown_prices

PRICES = CostModel(
    step_ns=2e6, prefill_token_ns=30_000, context_token_ns=40, decode_sequence_ns=90_000
)


def sample(
    prefill: int, context: int, decode: int, prices: CostModel = PRICES, noise: float = 1.0
) -> WorkSample:
    work = Work(1, prefill, context, decode)
    return WorkSample(work=work, duration_ns=prices.price_ns(work) * noise)


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


def test_what_was_never_computed_has_no_price() -> None:
    only_prefill = CostModel(step_ns=1e6, prefill_token_ns=10)
    samples = [sample(n, 0, 0, only_prefill) for n in (100, 1000, 100_000)]
    found = fit_cost_model(samples)
    assert found.prefill_token_ns == pytest.approx(10, rel=1e-3)
    nothing = "nothing of it was computed"
    assert unknown_prices(found, samples) == {
        "context_token_ns": nothing,
        "decode_sequence_ns": nothing,
    }


def test_terms_that_always_come_together_have_one_price() -> None:
    """One request at a time: each step decodes one sequence, so only the sum is told."""
    samples = [sample(0, context, 1) for context in (100, 1_000, 50_000)]
    found = fit_cost_model(samples)
    unknown = unknown_prices(found, samples)
    assert unknown.keys() == {"prefill_token_ns", "decode_sequence_ns"}
    assert "tell it apart" in unknown["decode_sequence_ns"]
    assert found.step_ns == pytest.approx(PRICES.step_ns + PRICES.decode_sequence_ns, rel=1e-4)


def test_a_price_that_would_be_negative_is_unknown() -> None:
    samples = [sample(*step, prices=CostModel(step_ns=1e6, prefill_token_ns=10)) for step in STEPS]
    unknown = unknown_prices(fit_cost_model(samples), samples)
    assert unknown.keys() == {"context_token_ns", "decode_sequence_ns"}
    assert all("does not make the fit better" in reason for reason in unknown.values())


def test_all_prices_are_known_where_steps_differ() -> None:
    samples = [sample(*step) for step in STEPS]
    assert unknown_prices(fit_cost_model(samples), samples) == {}


def test_no_other_prices_fit_better() -> None:
    draw = Random(5)
    noisy = [sample(*step, noise=draw.uniform(0.5, 2)) for step in STEPS]

    def error(prices: CostModel) -> float:
        return sum((prices.price_ns(one.work) / one.duration_ns - 1) ** 2 for one in noisy)

    best = fit_cost_model(noisy)
    for _ in range(300):
        moved = {name: getattr(best, name) * draw.uniform(0.8, 1.25) for name in PRICE_NAMES}
        assert error(CostModel(**moved)) >= error(best) - 1e-6


def test_without_samples_there_is_nothing_to_fit() -> None:
    with pytest.raises(ValueError, match="at least one step"):
        fit_cost_model([sample(0, 0, 0, CostModel())])
