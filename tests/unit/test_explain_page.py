"""The page as text: self-contained, escaped, and of bounded size."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from prefixbench.explain.analysis import Analysis
from prefixbench.explain.charts import CLOUD_POINTS, CURVE_POINTS, Chart, charts
from prefixbench.explain.html import render_page
from prefixbench.explain.report import report_of
from prefixbench.explain.run_files import read_run
from synthetic_runs import write_run
from synthetic_world import World

HOSTILE = '</script><script>alert("x")</script><b>&amp;'


class Page(HTMLParser):
    """What a browser would load, and the text of every element with an id."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.scripts = 0
        self.texts: dict[str, str] = {}
        self._open: list[str | None] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.scripts += tag == "script"
        self.loads += [value for key in ("src", "href") if (value := values.get(key))]
        if tag not in ("meta", "link", "br"):
            self._open.append(values.get("id"))

    def handle_endtag(self, tag: str) -> None:
        self._open.pop()

    def handle_data(self, data: str) -> None:
        for name in filter(None, self._open):
            self.texts[name] = self.texts.get(name, "") + data


def page_of(folder: Path, **changes: Any) -> str:
    analysis = Analysis(read_run(write_run(folder, **changes)))
    return render_page(report_of(analysis), charts(analysis))


def test_the_waterfall_shows_what_the_plan_allows_for(tmp_path: Path) -> None:
    page = page_of(tmp_path / "planned", planned_blocks=60, served_blocks=60)
    assert "allowing for a cache of 60 blocks" in page
    assert "planned conditions" in Page(page).texts["table-stations"]
    assert "as the plan allows" in page
    assert "allowing for" not in page_of(tmp_path / "plain")


def test_the_page_loads_nothing_but_itself(tmp_path: Path) -> None:
    page = Page(page_of(tmp_path))
    assert page.scripts == 3
    assert all(load.startswith("#") or load == "data:," for load in page.loads)


def test_the_first_screen_says_the_four_numbers(tmp_path: Path) -> None:
    page = Page(page_of(tmp_path, requests=200, concurrency=16))  # loses between 3 and 5 points
    assert page.texts["headline-target"] == "60.00 %"
    assert page.texts["headline-designed"] == "60.00 %"
    measured = page.texts["headline-actual"]
    assert re.fullmatch(r"5\d\.\d\d %", measured)
    assert page.texts["headline-verdict"].startswith("VerdictPass with warningconstruction0.00 pp")
    assert page.texts["deviation-construction"] == "0.00 pp"
    assert re.fullmatch(r"−\d\.\d\d pp", page.texts["deviation-runtime"])
    assert page.texts["headline-sentence"] == (
        f"60.00 % asked, 60.00 % planned, {measured} measured."
    )


def test_an_unmeasured_rate_is_said_in_words(tmp_path: Path) -> None:
    page = Page(page_of(tmp_path, gap="the metrics page could not be read"))
    assert page.texts["headline-actual"] == "not measured"
    assert page.texts["headline-verdict"].startswith("VerdictNot measured")
    assert page.texts["deviation-runtime"] == "not measured"


def test_names_from_files_cannot_become_markup(tmp_path: Path) -> None:
    text = page_of(tmp_path, groups=(HOSTILE, "plain"), gap=HOSTILE)
    assert HOSTILE not in text
    page = Page(text)
    assert page.scripts == 3
    assert HOSTILE in page.texts["table-groups"]


def test_data_in_a_script_cannot_end_it(tmp_path: Path) -> None:
    report = report_of(Analysis(read_run(write_run(tmp_path))))
    hostile = {"chart-x": Chart(figure={"name": HOSTILE}, caption=HOSTILE)}
    text = render_page(report, hostile)
    assert Page(text).scripts == 3
    assert _figures(text) == {"chart-x": {"name": HOSTILE}}


def test_a_run_with_a_deviation_has_all_four_charts(tmp_path: Path) -> None:
    assert _figures(page_of(tmp_path, concurrency=4, requests=80)).keys() == {
        "chart-curve", "chart-ttft", "chart-phases", "chart-attribution",
    }  # fmt: skip


def _figures(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="figures">(.*?)</script>', text)
    assert found is not None
    return json.loads(found[1])


def test_no_chart_is_drawn_of_steps_that_print_as_nothing(tmp_path: Path) -> None:
    assert 'id="chart-attribution"' not in page_of(tmp_path)


@pytest.fixture(scope="module")
def long_run(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    folder = tmp_path_factory.mktemp("long")
    world = World(requests=4000, theta=0.6, shortest=64, longest=128, concurrency=8)
    return Analysis(read_run(write_run(folder, world)))


def test_a_long_run_is_thinned_and_says_so(long_run: Analysis) -> None:
    drawn = charts(long_run)
    curve, cloud = drawn["chart-curve"], drawn["chart-ttft"]
    planned, measured, asked = curve.figure["data"]
    assert len(planned["x"]) == len(measured["x"]) == CURVE_POINTS
    assert asked["x"] == [planned["x"][0], planned["x"][-1]]
    assert curve.figure["data"][0]["x"][-1] == 4000
    assert "1,500 of 4,000 points are drawn" in curve.caption
    assert sum(len(trace["x"]) for trace in cloud.figure["data"]) == CLOUD_POINTS
    assert "3,000 of 4,000 requests are drawn" in cloud.caption


def test_the_slowest_requests_are_always_drawn(long_run: Analysis) -> None:
    cloud = charts(long_run)["chart-ttft"].figure["data"]
    drawn = sorted((y for trace in cloud for y in trace["y"]), reverse=True)
    slowest = sorted((row.ttft_ms for row in long_run.record.results), reverse=True)
    assert drawn[:100] == [round(value, 3) for value in slowest[:100]]


def test_many_groups_are_cut_on_the_page_and_whole_in_the_document(tmp_path: Path) -> None:
    names = tuple(f"group-{number}" for number in range(75))
    analysis = Analysis(read_run(write_run(tmp_path, groups=names, requests=150, theta=0.5)))
    report = report_of(analysis)
    text = render_page(report, charts(analysis))
    assert len(report.groups) == 75
    assert "The 60 largest are shown; the JSON report has 15 more." in text
    assert len(text) < 8_000_000
