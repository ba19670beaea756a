"""The page's charts as data: traces and axes in plotly's form, colours by role.

A colour is written `$role` and becomes the value of the page's CSS variable `--role`, so one
figure serves light and dark. Long runs are thinned; the caption then says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from prefixbench.core.wording import plural
from prefixbench.explain.analysis import Analysis
from prefixbench.explain.phases import Phase
from prefixbench.explain.run_files import ObservedRequest
from prefixbench.explain.stations import (
    DESIGNED,
    PLANNED_CONDITIONS,
    TARGET,
    THEORY,
    UNEXPLAINED,
    Attribution,
    Station,
)
from prefixbench.explain.thinning import evenly, keeping_the_largest
from prefixbench.explain.wording import is_visible_pp, percent, points, readable

#: Points of a curve, and of a cloud, that a page shows at most.
CURVE_POINTS = 1500
CLOUD_POINTS = 3000
_PHASE_COLORS = ("$miss", "$hit", "$measured", "$text")


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A figure with the sentence that stands below it."""

    figure: dict[str, Any]
    caption: str


def charts(analysis: Analysis) -> dict[str, Chart]:
    """Every chart that the run has data for, by the id of its place on the page."""
    drawn: dict[str, Chart | None] = {
        "chart-curve": hit_rate_curve(analysis),
        "chart-ttft": ttft_cloud(analysis),
        "chart-phases": ttft_by_phase(analysis.phases),
        "chart-attribution": waterfall(analysis.attribution),
    }
    return {name: chart for name, chart in drawn.items() if chart is not None}


def hit_rate_curve(analysis: Analysis) -> Chart | None:
    """Hits over prompt tokens so far, planned and measured, over the last headline round."""
    if not analysis.rounds:
        return None
    phase = analysis.rounds[-1][0]
    answered = [
        (outcome, result)
        for outcome in analysis.outcomes[-1]
        for result in (phase.results.get(outcome.request_id),)
        if result is not None and result.ok
    ]
    if not answered:
        return None
    places = evenly(len(answered), CURVE_POINTS)
    traces = [
        _line(
            "planned",
            _cumulative((row.expected_hit_len, row.input_len) for row, _ in answered),
            places,
            {"color": "$designed", "width": 4},
        )
    ]
    if all(result.cached_tokens is not None for _, result in answered):
        measured = ((result.cached_tokens, _prompt_tokens(row, result)) for row, result in answered)
        traces.append(
            _line("measured", _cumulative(measured), places, {"color": "$measured", "width": 2})
        )
    caption = (
        "Share of all prompt tokens so far that came from the cache, over the answered requests in "
        f"planned order.{_thinned(len(places), len(answered))}"
    )
    target = analysis.target
    layout = _layout("request", "hit rate so far", y_format=".0%")
    layout["yaxis"]["rangemode"] = "tozero"
    if target is not None:
        traces.append(_level("asked", float(target), places))
        caption += f" The dotted line is the target, {percent(float(target))}."
    return Chart(figure={"data": traces, "layout": layout}, caption=caption)


def _prompt_tokens(outcome: Any, result: ObservedRequest) -> int:
    return outcome.input_len if result.prompt_tokens is None else result.prompt_tokens


def _cumulative(pairs: Iterable[tuple[int | None, int]]) -> list[float]:
    hits, queries = zip(*((found or 0, asked) for found, asked in pairs), strict=True)
    return [
        round(found / asked, 6)
        for found, asked in zip(accumulate(hits), accumulate(queries), strict=True)
    ]


def _line(
    name: str, values: Sequence[float], places: Sequence[int], line: dict[str, Any]
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [place + 1 for place in places],
        "y": [values[place] for place in places],
        "line": line,
        "hovertemplate": "%{y:.2%}",
    }


def _level(name: str, height: float, places: Sequence[int]) -> dict[str, Any]:
    """A dotted line across the curves, drawn over them and over the grid."""
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [places[0] + 1, places[-1] + 1],
        "y": [height, height],
        "line": {"color": "$text", "width": 2, "dash": "dot"},
        "hovertemplate": "%{y:.2%}",
    }


def ttft_cloud(analysis: Analysis) -> Chart | None:
    """Time to first token over prompt length, requests with and without a hit apart."""
    answered = [
        result
        for phase, _ in analysis.rounds
        for result in phase.results.values()
        if result.ok and result.ttft_ms is not None and result.prompt_tokens is not None
    ]
    known = [result for result in answered if result.cached_tokens is not None]
    if not known:
        return None
    shown = keeping_the_largest(known, lambda result: result.ttft_ms or 0.0, CLOUD_POINTS)
    hit = [result for result in shown if result.cached_tokens]
    miss = [result for result in shown if not result.cached_tokens]
    traces = [
        _cloud("nothing cached", miss, "$miss", "diamond"),
        _cloud("prefix cached", hit, "$hit", "circle"),
    ]
    kept = (
        f" {len(shown):,} of {plural(len(known), 'request')} are drawn, the slowest all of them."
        if len(shown) < len(known)
        else ""
    )
    return Chart(
        figure={"data": traces, "layout": _layout("prompt tokens", "TTFT, ms")},
        caption=f"Time to first token of each answered request, from sending.{kept}",
    )


def _cloud(name: str, rows: Sequence[ObservedRequest], color: str, symbol: str) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": name,
        "x": [row.prompt_tokens for row in rows],
        "y": [round(row.ttft_ms or 0.0, 3) for row in rows],
        "customdata": [row.cached_tokens for row in rows],
        "marker": {"color": color, "symbol": symbol, "size": 6, "opacity": 0.6},
        "hovertemplate": "%{y:.1f} ms, %{customdata:,} of %{x:,} tokens cached",
    }


def ttft_by_phase(phases: Sequence[Phase]) -> Chart | None:
    """Share of requests with at most a given TTFT: a line a phase, and one from planned time."""
    traces = []
    for color, phase in zip(_PHASE_COLORS, phases, strict=False):
        name, rows = _phase_name(phase), list(phase.results.values())
        traces += [
            _shares(name, [row.ttft_ms for row in rows], {"color": color, "width": 2}),
            _shares(
                f"{name}, scheduled",
                [row.schedule_ttft_ms for row in rows],
                {"color": color, "width": 1.5, "dash": "dot"},
            ),
        ]
    if not traces or not all(trace["x"] for trace in traces):
        return None
    return Chart(
        figure={
            "data": traces,
            "layout": _layout("TTFT, ms", "share of requests", y_format=".0%"),
        },
        caption="Share of requests whose first token came within a time, from sending and (dotted) "
        f"from the planned time. {_first_phases(len(phases))}".rstrip(),
    )


def _first_phases(there: int) -> str:
    shown = len(_PHASE_COLORS)
    return f"The first {shown} of {there} phases are drawn." if there > shown else ""


def _shares(name: str, times: Sequence[float | None], line: dict[str, Any]) -> dict[str, Any]:
    ordered = sorted(time for time in times if time is not None)
    places = evenly(len(ordered), CURVE_POINTS // 2)
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [round(ordered[place], 3) for place in places],
        "y": [(place + 1) / len(ordered) for place in places],
        "line": {**line, "shape": "hv"},
        "hovertemplate": "%{y:.0%} within %{x:.1f} ms",
    }


def _phase_name(phase: Phase) -> str:
    name = readable(phase.name)
    return f"{name}, round {phase.round}" if phase.round > 1 else name


def waterfall(attribution: Attribution) -> Chart | None:
    """The way from target to measured rate, one bar a step; None where no step can be seen."""
    steps = attribution.stations[1:]
    if not any(is_visible_pp(float(step.contribution * 100)) for step in steps):
        return None
    stations = list(reversed(attribution.stations))
    levels = [float(station.ratio) for station in stations]
    starts = [float(station.ratio - station.contribution) for station in stations]
    low, high = min(levels + starts), max(levels + starts)
    margin = max((high - low) * 0.25, 0.0005)
    layout = _layout("hit rate", "", x_format=".2%")
    layout["xaxis"]["range"] = [low - margin / 4, high + margin]
    layout["margin"] = {"l": 170, "r": 20, "t": 10, "b": 45}
    layout["showlegend"] = False
    layout["height"] = 80 + 38 * len(stations)
    return Chart(
        figure={
            "data": [
                _bars(stations, starts),
                _levels(stations, levels),
                _labels(stations, levels, starts),
            ],
            "layout": layout,
        },
        caption="From the target at the top to the measured rate at the bottom; the axis does not "
        "start at zero.",
    )


def _bars(stations: Sequence[Station], starts: Sequence[float]) -> dict[str, Any]:
    deltas = [float(station.contribution) for station in stations]
    return {
        "type": "bar",
        "orientation": "h",
        "y": [_station_name(station) for station in stations],
        "base": list(starts),
        "x": deltas,
        "marker": {"color": ["$gain" if delta >= 0 else "$loss" for delta in deltas]},
        "width": 0.5,
        "hoverinfo": "skip",
    }


def _levels(stations: Sequence[Station], levels: Sequence[float]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "y": [_station_name(station) for station in stations],
        "x": list(levels),
        "marker": {"size": 9, "symbol": "line-ns", "line": {"width": 2, "color": "$text"}},
        "hovertemplate": "%{x:.2%}",
    }


def _labels(
    stations: Sequence[Station], levels: Sequence[float], starts: Sequence[float]
) -> dict[str, Any]:
    top = len(stations) - 1
    return {
        "type": "scatter",
        "mode": "text",
        "y": [_station_name(station) for station in stations],
        "x": [max(pair) for pair in zip(levels, starts, strict=True)],
        "text": [
            "   " + (percent(level) if index == top else points(float(station.contribution)))
            for index, (station, level) in enumerate(zip(stations, levels, strict=True))
        ],
        "textposition": "middle right",
        "textfont": {"size": 12},
        "cliponaxis": False,
        "hoverinfo": "skip",
    }


def _station_name(station: Station) -> str:
    names = {
        TARGET: "asked",
        DESIGNED: "planned",
        THEORY: "one at a time, no limit",
        PLANNED_CONDITIONS: "as the plan allows",
        UNEXPLAINED: "unexplained → measured",
    }
    return names.get(station.name, readable(station.name))


def _layout(x: str, y: str, *, x_format: str = ",", y_format: str = ",") -> dict[str, Any]:
    def axis(title: str, tick_format: str) -> dict[str, Any]:
        return {
            "title": {"text": title, "font": {"size": 13, "color": "$muted"}},
            "tickformat": tick_format,
            "gridcolor": "$line",
            "zeroline": False,
            "linecolor": "$line",
            "automargin": True,
        }

    return {
        "xaxis": axis(x, x_format),
        "yaxis": axis(y, y_format),
        "margin": {"l": 60, "r": 20, "t": 10, "b": 45},
        "height": 320,
        "hovermode": "closest",
        "legend": {"orientation": "h", "x": 1, "xanchor": "right", "y": 1.02, "yanchor": "bottom"},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "font": {"color": "$text", "size": 13},
        "hoverlabel": {"bgcolor": "$card", "bordercolor": "$line", "font": {"color": "$text"}},
    }


def _thinned(shown: int, there: int) -> str:
    return f" {shown:,} of {there:,} points are drawn." if shown < there else ""
