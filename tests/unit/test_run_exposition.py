"""Reading metrics pages, and refusing what is none."""

from __future__ import annotations

import math

import pytest

from prefixbench.run.exposition import (
    Sample,
    ScrapeError,
    ScrapeProblem,
    lines_of,
    parse_exposition,
    whole_number,
)

PAGE = """\
# HELP vllm:prefix_cache_hits_total Tokens found.
# TYPE vllm:prefix_cache_hits_total counter
vllm:prefix_cache_hits_total{engine="0",model_name="a \\"b\\" \\\\c\\n"} 90.0
# TYPE vllm:prefix_cache_hits_created gauge
vllm:prefix_cache_hits_created{engine="0",model_name="m"} 1.7e+09
# TYPE empty_total counter
# TYPE vllm:ttft_seconds histogram
vllm:ttft_seconds_bucket{le="0.5"} 3
vllm:ttft_seconds_bucket{le="+Inf"} 4
vllm:ttft_seconds_sum 2.5
vllm:ttft_seconds_count 4
untyped_total 7
broken_gauge NaN
"""


def test_a_page_is_read_by_family() -> None:
    page = parse_exposition(PAGE)
    (hits,) = page.of("vllm:prefix_cache_hits")
    assert hits == Sample({"engine": "0", "model_name": 'a "b" \\c\n'}, 90.0)
    assert page.created["vllm:prefix_cache_hits"][0].value == 1.7e9
    assert page.of("untyped")[0].value == 7
    assert [sample.value for sample in page.of("vllm:ttft_seconds_bucket")] == [3, 4]
    assert math.isnan(page.of("broken_gauge")[0].value)
    assert page.of("not there") == ()


def test_a_family_without_samples_is_there_all_the_same() -> None:
    page = parse_exposition(PAGE)
    assert page.has("empty")
    assert not page.has("not there")


def test_openmetrics_reads_like_the_classic_form() -> None:
    text = '# TYPE a counter\na_total{x="1"} 5\na_created{x="1"} 3\n# TYPE g gauge\ng 0.5\n# EOF\n'
    page = parse_exposition(text)
    assert page.of("a") == (Sample({"x": "1"}, 5.0),)
    assert page.created["a"][0].value == 3
    assert page.of("g")[0].value == 0.5


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", ScrapeProblem.EMPTY),
        ("\n \n", ScrapeProblem.EMPTY),
        ("<!doctype html><title>Sign in</title>\n", ScrapeProblem.HTML),
        (PAGE[: PAGE.index("90.0")], ScrapeProblem.TRUNCATED),
        (PAGE[: PAGE.index("# TYPE empty") + 6], ScrapeProblem.TRUNCATED),
        ('{"detail": "no"}\n', ScrapeProblem.MALFORMED),
        ("a b c d\n", ScrapeProblem.MALFORMED),
    ],
)
def test_what_is_no_metrics_page_has_its_own_error(text: str, problem: ScrapeProblem) -> None:
    with pytest.raises(ScrapeError) as caught:
        parse_exposition(text)
    assert caught.value.problem is problem
    assert caught.value.exit_code == 5


def test_every_problem_has_a_message_of_its_own() -> None:
    messages = {ScrapeError(problem).message for problem in ScrapeProblem}
    assert len(messages) == len(ScrapeProblem)


def test_lines_of_some_families_are_those_of_the_whole_page() -> None:
    part = parse_exposition(lines_of(PAGE, ["vllm:ttft_seconds_sum", "broken_gauge"]))
    assert set(part.samples) == {"vllm:ttft_seconds_sum", "broken_gauge"}


@pytest.mark.parametrize("value", [math.nan, math.inf, 0.5, 2.0**54])
def test_only_exact_integers_are_counts(value: float) -> None:
    assert whole_number(value) is None
    assert whole_number(2.0**53) == 2**53
