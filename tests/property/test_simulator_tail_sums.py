"""Sums behind a place against the numbers themselves, over several stretches and areas."""

from __future__ import annotations

from random import Random

import pytest

from prefixbench.simulator.tail_sums import TailSums


@pytest.mark.parametrize("count", [1, 64, 65, 4_096, 4_097, 9_000])
def test_a_sum_behind_a_place_adds_up_all_numbers_after_it(count: int) -> None:
    draw = Random(count)
    numbers: list[int] = []
    sums = TailSums()
    for _ in range(count):
        numbers.append(draw.randrange(1_000))
        sums.append(numbers[-1])
        changed, amount = draw.randrange(len(numbers)), draw.randrange(-500, 500)
        numbers[changed] += amount
        sums.add(changed, amount)
    places = {-1, 0, count - 1, count // 2, *draw.choices(range(count), k=200)}
    assert {place: sums.behind(place) for place in places} == {
        place: sum(numbers[place + 1 :]) for place in places
    }
