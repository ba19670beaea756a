"""The page in a real browser: it opens from disk, asks the network for nothing, and is readable."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from prefixbench.explain.report import REPORT_HTML, write_report
from synthetic_runs import write_run

playwright_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
SCREEN = {"width": 1280, "height": 800}
HEADLINES = ("headline-target", "headline-designed", "headline-actual", "headline-verdict")
#: WCAG 2.1, level AA, for large and for normal text.
LARGE_TEXT, NORMAL_TEXT = 3.0, 4.5

#: Contrast of an element's text against the first opaque background behind it.
CONTRAST = """
element => {
  const channels = color => color.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(c => c / 255)
    .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  let behind = element;
  while ((channels(getComputedStyle(behind).backgroundColor)[3] ?? 1) === 0) {
    behind = behind.parentElement;
  }
  const text = light(channels(getComputedStyle(element).color));
  const back = light(channels(getComputedStyle(behind).backgroundColor));
  return (Math.max(text, back) + 0.05) / (Math.min(text, back) + 0.05);
}
"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    executable = shutil.which("chromium")
    if executable is None:
        if os.environ.get("REQUIRE_BROWSER") == "1":
            pytest.fail("REQUIRE_BROWSER=1 and there is no chromium on the path")
        pytest.skip("no chromium on the path: the page is not opened")
    with playwright_api.sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=executable, args=ARGUMENTS)
        yield running
        running.close()


@pytest.fixture(scope="module")
def report_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    write_run(folder, requests=200, mode="compare", semantics="static_prefix_ratio",
              target=0.5, foreign_queries=4000)  # fmt: skip
    write_report(folder)
    return folder / REPORT_HTML


class Visit:
    """A page that was opened, with everything it complained of or asked for."""

    def __init__(self, browser: Any, file: Path, scheme: str) -> None:
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page = browser.new_page(viewport=SCREEN, color_scheme=scheme)
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        for chart in ("curve", "phases", "ttft", "attribution"):
            self.page.locator(f"#chart-{chart} .main-svg").first.wait_for()

    def until(self, script: str, *, differs_from: Any) -> None:
        """Wait for a value to change; the page's own policy forbids waiting inside of it."""
        for _ in range(50):
            if self.page.evaluate(script) != differs_from:
                return
            self.page.wait_for_timeout(50)
        pytest.fail(f"{script} stayed {differs_from}")


@pytest.fixture(scope="module", params=["light", "dark"])
def visit(request: pytest.FixtureRequest, browser: Any, report_file: Path) -> Iterator[Visit]:
    opened = Visit(browser, report_file, request.param)
    yield opened
    opened.page.close()


def test_the_page_opens_without_complaint_and_without_network(
    visit: Visit, report_file: Path
) -> None:
    for section in ("latency", "attribution", "provenance"):
        visit.page.locator(f"#{section}").scroll_into_view_if_needed()
    visit.page.hover("#chart-curve .nsewdrag")
    visit.page.wait_for_timeout(200)
    assert visit.complaints == []
    assert visit.requests == [report_file.as_uri()]


def test_the_four_headline_numbers_stand_in_the_first_screen(visit: Visit) -> None:
    visit.page.evaluate("scrollTo(0, 0)")
    for name in HEADLINES:
        element = visit.page.locator(f"#{name}")
        assert element.is_visible()
        assert element.inner_text().strip()
        box = element.bounding_box()
        assert box["y"] >= 0
        assert box["y"] + box["height"] <= SCREEN["height"]
        assert box["x"] + box["width"] <= SCREEN["width"]


def test_the_target_is_a_line_that_can_be_seen(visit: Visit) -> None:
    """Across the plot, in the colour of text, and in the legend."""
    line = visit.page.locator("#chart-curve .scatterlayer .trace").last.locator("path.js-line")
    box = line.bounding_box()
    assert box["width"] > 0.9 * visit.page.locator("#chart-curve .nsewdrag").bounding_box()["width"]
    style = line.evaluate("path => [path.style.stroke, path.style.strokeDasharray]")
    text = visit.page.evaluate("getComputedStyle(document.body).color")
    assert style[0] == text
    assert style[1] not in ("", "none")
    assert visit.page.locator("#chart-curve .legendtext", has_text="asked").is_visible()


def test_the_page_is_as_wide_as_the_screen(visit: Visit) -> None:
    assert visit.page.evaluate("document.documentElement.scrollWidth") <= SCREEN["width"]
    for table in visit.page.locator("section table").all():
        overflow = table.evaluate("t => t.scrollWidth - t.closest('section').clientWidth")
        assert overflow <= 0


def test_text_is_readable_in_light_and_dark(visit: Visit) -> None:
    for name in HEADLINES:
        assert visit.page.locator(f"#{name}").evaluate(CONTRAST) >= LARGE_TEXT
    for selector in (
        ".verdict .big",
        ".verdict dd",
        ".setting",
        "section > p",
        "td",
        "th",
        ".tile p",
        "figcaption",
        "dt",
    ):
        assert visit.page.locator(selector).first.evaluate(CONTRAST) >= NORMAL_TEXT, selector


def test_charts_follow_a_change_of_the_colour_scheme(browser: Any, report_file: Path) -> None:
    opened = Visit(browser, report_file, "light")
    tick = "getComputedStyle(document.querySelector('#chart-curve .xtick text')).fill"
    light = opened.page.evaluate(tick)
    opened.page.emulate_media(color_scheme="dark")
    opened.until(tick, differs_from=light)
    opened.page.close()
