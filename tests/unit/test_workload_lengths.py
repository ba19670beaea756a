"""Lengths: what each distribution promises."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from prefixbench.config.lengths import LengthDistributionConfig
from prefixbench.core.errors import LengthError
from prefixbench.workload.lengths import (
    draw_lengths,
    generate_request_lengths,
    length_statistics,
    refuse_beyond_context,
)

NORMAL = {"mode": "truncated_normal", "min": 1024, "max": 8192, "mean": 4096, "std": 1024}


def lengths(count: int = 1000, seed: int = 42, **given: object) -> list[int]:
    return generate_request_lengths(LengthDistributionConfig(**given), count, seed)


def test_a_longer_list_starts_with_the_shorter_one() -> None:
    assert lengths(200, **NORMAL)[:50] == lengths(50, **NORMAL)


def test_a_truncated_normal_is_a_normal_inside_its_range() -> None:
    drawn = np.array(lengths(20_000, **NORMAL))
    assert drawn.min() >= 1024
    assert drawn.max() <= 8192
    assert abs(drawn.mean() - 4096) < 5 * 1024 / math.sqrt(20_000)
    assert abs(drawn.std() - 1022) < 30
    # Rejection, not clipping: the edges are as rare as their neighbours.
    assert (drawn == 1024).sum() < 20


def test_clipping_gathers_draws_at_the_edges() -> None:
    narrow = {**NORMAL, "min": 4000, "max": 4200, "out_of_range": "clip"}
    drawn = np.array(lengths(2000, **narrow))
    assert (drawn == 4000).sum() > 500
    assert (drawn == 4200).sum() > 500


def test_a_range_far_narrower_than_the_deviation_still_draws_normally() -> None:
    drawn = np.array(lengths(20_000, **{**NORMAL, "min": 3996, "max": 4196, "std": 200}))
    centre = ((drawn > 4046) & (drawn <= 4146)).mean()
    expected = math.erf(0.25 / math.sqrt(2)) / math.erf(0.5 / math.sqrt(2))
    assert abs(centre - expected) < 0.02


def test_out_of_range_error_names_the_request() -> None:
    with pytest.raises(LengthError, match=r"outside 4000\.\.4200") as caught:
        lengths(**{**NORMAL, "min": 4000, "max": 4200, "out_of_range": "error"})
    assert caught.value.context.request_id is not None


def test_histogram_bins_are_half_open_and_follow_their_weights() -> None:
    bins = [{"range": [10, 20], "weight": 3}, {"range": [20, 21], "weight": 1}]
    drawn = np.array(lengths(8000, mode="histogram", bins=bins))
    assert set(drawn) == set(range(10, 21))
    assert abs((drawn == 20).mean() - 0.25) < 0.03


def test_empirical_lengths_are_samples(tmp_path: Path) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text("100 200\n300")
    assert set(lengths(mode="empirical", path=str(file))) == {100, 200, 300}
    file.write_text('{"input_length": 7}\n{"length": 9}\n')
    assert set(lengths(mode="empirical", path=str(file))) == {7, 9}
    file.write_text("[5, 6]", encoding="utf-8-sig")
    assert set(lengths(mode="empirical", path=str(file))) == {5, 6}
    file.write_text('{"length": 8, "note": "one\u2028two\x85"}\n{"length": 9}', "utf-8")
    assert set(lengths(mode="empirical", path=str(file))) == {8, 9}


@pytest.mark.parametrize("content", ["", "1 0", "seven", '{"size": 3}'])
def test_a_useless_file_of_samples_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "lengths.txt"
    file.write_text(content)
    with pytest.raises(LengthError) as caught:
        lengths(mode="empirical", path=str(file))
    assert str(tmp_path) not in caught.value.render()


def test_edges_are_raised_to_the_shortest_possible_request() -> None:
    bins = LengthDistributionConfig(mode="histogram", bins=[{"range": [0, 6], "weight": 1}])
    assert set(draw_lengths(bins, 200, 1, shortest=4).tolist()) == {4, 5}
    with pytest.raises(LengthError, match="no length bin holds 9 tokens"):
        draw_lengths(bins, 200, 1, shortest=9)


def test_a_normal_whose_range_is_raised_above_its_mean_still_ends() -> None:
    normal = LengthDistributionConfig(**{**NORMAL, "std": 10})
    drawn = draw_lengths(normal, 300, 1, shortest=5000)
    assert drawn.min() == 5000
    # 90 standard deviations out the density falls e-fold every 0.11 tokens.
    assert (drawn == 5000).mean() > 0.99
    with pytest.raises(LengthError, match="max 8,192 is below 9,000 tokens"):
        draw_lengths(normal, 300, 1, shortest=9000)


def test_an_explicit_length_that_is_too_short_names_its_request() -> None:
    explicit = LengthDistributionConfig(mode="explicit", values=[9, 9, 2])
    said = "2 tokens cannot hold a request: the shortest one has 3"
    with pytest.raises(LengthError, match=said) as caught:
        draw_lengths(explicit, 3, 0, shortest=3)
    assert caught.value.context.request_id == "r000002"


def test_the_first_request_beyond_the_context_is_named() -> None:
    inputs, outputs = np.array([10, 100, 200]), np.array([5, 5, 5])
    refuse_beyond_context(inputs, outputs, 205)
    with pytest.raises(LengthError, match="2 such requests") as caught:
        refuse_beyond_context(inputs, outputs, 104)
    assert caught.value.context.request_id == "r000001"


def test_statistics_count_every_request_once() -> None:
    statistics = length_statistics(np.array(lengths(**NORMAL)), seed=42)
    assert statistics["count"] == sum(one["count"] for one in statistics["bins"]) == 1000
    assert statistics["min"] <= statistics["p50"] <= statistics["p99"] <= statistics["max"]
    assert statistics["seed"] == 42
