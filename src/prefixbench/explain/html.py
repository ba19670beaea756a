"""The report as one page that needs no network: styles, charts and data are inside.

The page forbids itself every outside request (Content-Security-Policy), so a reader behind a wall
sees what everyone sees, and nobody learns that the report was opened.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import orjson

from prefixbench.explain.charts import Chart
from prefixbench.explain.first_screen import first_screen
from prefixbench.explain.markup import Html, element, join
from prefixbench.explain.origin_section import origin
from prefixbench.explain.report import PrefixCacheReport
from prefixbench.explain.sections import (
    attribution,
    groups,
    instances,
    latency,
    over_the_run,
    phases,
    reconciliation,
)
from prefixbench.explain.wording import headline_sentence

_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
)
#: An icon of no bytes: without one a browser asks the server, or the disk, for /favicon.ico.
_NO_ICON = "data:,"

#: The sections in the order of the page, with the words of the menu.
SECTIONS = (
    (over_the_run, "curve", "over the run"),
    (groups, "groups", "groups"),
    (phases, "phases", "phases"),
    (latency, "latency", "latency"),
    (attribution, "attribution", "attribution"),
    (reconciliation, "reconciliation", "reconciliation"),
    (instances, "instances", "caches"),
    (origin, "provenance", "provenance"),
)


def render_page(report: PrefixCacheReport, charts: Mapping[str, Chart]) -> str:
    """The whole page as text."""
    captions = {name: chart.caption for name, chart in charts.items()}
    sections = [(build(report, captions), id_, word) for build, id_, word in SECTIONS]
    shown = [(content, id_, word) for content, id_, word in sections if content is not None]
    menu = [element("a", word, href=f"#{id_}") for _, id_, word in shown]
    body = element(
        "body",
        first_screen(report),
        element("main", element("nav", menu), [content for content, _, _ in shown]),
        _footer(report),
        _scripts(charts) if charts else None,
    )
    page = element("html", _head(report), body, lang="en")
    return f"<!doctype html>\n{page}\n"


def _head(report: PrefixCacheReport) -> Html:
    answer = headline_sentence(
        report.target_hit_ratio, report.designed_hit_ratio, report.actual_hit_rate
    )
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("link", rel="icon", href=_NO_ICON),
        element("title", f"{report.dataset_id}: {answer}"),
        element("style", _asset("page.css")),
    )


def _footer(report: PrefixCacheReport) -> Html:
    return element(
        "footer",
        f"prefixbench {report.provenance['report_version']}. Ratios are designed and exact, rates "
        "are measured; pp are percentage points. All numbers stand in prefix_cache_report.json.",
    )


def _scripts(charts: Mapping[str, Chart]) -> Html:
    figures = {name: chart.figure for name, chart in charts.items()}
    return join(
        element("script", Html(_inline_json(figures)), type="application/json", id="figures"),
        element("script", _plotly()),
        element("script", _asset("charts.js")),
    )


def _inline_json(value: object) -> str:
    """JSON that cannot end its script element: no `<` is left in it."""
    return orjson.dumps(value).decode().replace("<", "\\u003c")


@cache
def _asset(name: str) -> Html:
    return Html(files("prefixbench.explain").joinpath("page", name).read_text(encoding="utf-8"))


@cache
def _plotly() -> Html:
    from plotly.offline import get_plotlyjs  # 4.8 MB: read only where a page is written

    return Html(get_plotlyjs())
