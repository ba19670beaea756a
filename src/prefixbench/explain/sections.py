"""The sections of the page below the first screen, each from the report alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from prefixbench.core.wording import plural
from prefixbench.explain.latency import LATENCIES, STATISTICS
from prefixbench.explain.markup import Child, Html, element
from prefixbench.explain.report import PrefixCacheReport
from prefixbench.explain.tables import Column, Row, badge, table
from prefixbench.explain.wording import (
    NONE,
    count,
    is_visible_pp,
    percent,
    pick,
    points,
    points_pp,
    quantity,
    readable,
)

#: Groups that a page lists; the JSON document has all of them.
_GROUPS_SHOWN = 60

Captions = Mapping[str, str]


def section(id_: str, title: str, lead: Child, *body: Child) -> Html:
    """A titled part of the page with a sentence that says how to read it."""
    return element(
        "section", element("h2", title), element("p", lead) if lead else None, *body, id=id_
    )


def plot(name: str, captions: Captions) -> Html | None:
    """The place of a chart with its caption; nothing where the run has no data for it."""
    if name not in captions:
        return None
    return element(
        "figure",
        element("div", id=name, class_="plot"),
        element("figcaption", captions[name]),
    )


def over_the_run(_report: PrefixCacheReport, captions: Captions) -> Html | None:
    """Planned and measured hit rate as the run went on."""
    if "chart-curve" not in captions:
        return None
    return section("curve", "Hit rate over the run", None, plot("chart-curve", captions))


def _percent_of(key: str) -> Callable[[Row], str]:
    return lambda row: percent(row[key], absent=NONE)


def _deviation(row: Row) -> str:
    if row["actual"] is None or row["designed"] is None:
        return NONE
    return points(row["actual"] - row["designed"])


def groups(report: PrefixCacheReport, _captions: Captions) -> Html:
    """One row a prefix group."""
    rows = sorted(report.groups, key=lambda row: -row["input_tokens"])[:_GROUPS_SHOWN]
    hidden = len(report.groups) - len(rows)
    return section(
        "groups",
        "Prefix groups",
        "Measured from the requests' own cached tokens; TTFT in ms, from sending and from the "
        "planned time."
        + (
            f" The {len(rows)} largest are shown; the JSON report has {hidden} more."
            if hidden
            else ""
        ),
        table(
            [
                Column("group", lambda row: row["id"], "name"),
                Column("requests", lambda row: count(row["requests"])),
                Column("input tokens", lambda row: count(row["input_tokens"])),
                Column("asked", _percent_of("target")),
                Column("planned", _percent_of("designed")),
                Column("predicted", _percent_of("predicted")),
                Column("measured", _percent_of("actual")),
                Column("deviation", _deviation),
                Column("TTFT p50", lambda row: quantity(pick(row, "ttft_ms", "p50"))),
                Column("p99", lambda row: quantity(pick(row, "ttft_ms", "p99"))),
                Column("scheduled p50", lambda row: quantity(pick(row, "schedule_ttft_ms", "p50"))),
                Column("p99", lambda row: quantity(pick(row, "schedule_ttft_ms", "p99"))),
            ],
            rows,
            id_="table-groups",
        ),
    )


def latency(report: PrefixCacheReport, captions: Captions) -> Html:
    """Percentiles of the headline phase, and of requests with and without a hit."""
    measured = [
        {"name": metric.name, "meaning": metric.meaning, **report.performance[metric.key]}
        for metric in LATENCIES
        if report.performance.get(metric.key)
    ]
    return section(
        "latency",
        "Latency",
        "Milliseconds. Scheduled values count from the planned time, so they show waiting inside "
        "the client too.",
        table(
            [
                Column("metric", lambda row: row["name"], "name"),
                *_statistics(),
                Column("from, to", lambda row: row["meaning"], "wide"),
            ],
            measured,
            id_="table-latency",
        ),
        element("h3", "With and without a cached prefix"),
        table(
            [Column("requests", lambda row: row["name"], "name"), *_statistics()],
            _by_cache(report),
        ),
        plot("chart-ttft", captions),
    )


def _statistics() -> list[Column]:
    def column(statistic: str) -> Column:
        say = count if statistic == "count" else quantity
        return Column(statistic, lambda row: say(row.get(statistic)))

    return [column(statistic) for statistic in STATISTICS]


def _by_cache(report: PrefixCacheReport) -> list[Row]:
    split = report.performance.get("by_cache", {})
    rows = [
        {"name": f"{metric.name}, {word}", **split[side][metric.key]}
        for metric in LATENCIES
        if metric.key in ("ttft_ms", "schedule_ttft_ms")
        for side, word in (("hit", "prefix cached"), ("miss", "nothing cached"))
        if side in split
    ]
    return [row for row in rows if row["count"]]


def phases(report: PrefixCacheReport, captions: Captions) -> Html:
    """What each phase and round came to, one column each, so that they compare line by line."""
    columns = [Column("", lambda line: line["name"], "name")]
    for place, row in enumerate(report.phases):
        columns.append(Column(_phase_name(report, row), _phase_value(place)))
    lines = [
        {"name": name, "values": [say(row) for row in report.phases]} for name, say in _PHASE_LINES
    ]
    return section(
        "phases",
        "Phases",
        _speed_up(report.phases),
        element(
            "div",
            table(columns, lines, id_="table-phases", class_="narrow"),
            plot("chart-phases", captions),
            class_="beside",
        ),
    )


def _phase_value(place: int) -> Callable[[Row], str]:
    return lambda line: str(line["values"][place])


def _phase_name(report: PrefixCacheReport, row: Row) -> str:
    """The phase, with its round where it has several."""
    name = readable(row["phase"])
    rounds = sum(other["phase"] == row["phase"] for other in report.phases)
    return f"{name}, round {row['round']}" if rounds > 1 else name


def _performed(*path: str, say: Callable[..., str] = quantity) -> Callable[[Row], str]:
    return lambda row: say(pick(row["performance"], *path))


_PHASE_LINES: tuple[tuple[str, Callable[[Row], str]], ...] = (
    ("cache before", lambda row: row["cache_state_before"] or NONE),
    ("warm-up requests", lambda row: count(row["warmup_requests"])),
    ("planned hit ratio", lambda row: percent(row["designed_hit_ratio"], absent=NONE)),
    ("measured hit rate", lambda row: percent(row["actual_hit_rate"])),
    ("deviation", lambda row: points(row["runtime_deviation"], absent=NONE)),
    ("requests answered", _performed("requests", "succeeded", say=count)),
    ("requests failed", _performed("requests", "failed", say=count)),
    ("TTFT p50, ms", _performed("ttft_ms", "p50")),
    ("TTFT p99, ms", _performed("ttft_ms", "p99")),
    ("TTFT scheduled p50, ms", _performed("schedule_ttft_ms", "p50")),
    ("TTFT scheduled p99, ms", _performed("schedule_ttft_ms", "p99")),
    ("TPOT p50, ms", _performed("tpot_ms", "p50")),
    ("E2E p50, ms", _performed("e2e_ms", "p50")),
    ("E2E scheduled p50, ms", _performed("schedule_e2e_ms", "p50")),
    ("requests/s", _performed("request_throughput")),
    ("input tokens/s", _performed("input_token_throughput")),
    ("output tokens/s", _performed("output_token_throughput")),
    ("duration, s", _performed("duration_s")),
)


def _speed_up(rows: Sequence[Row]) -> str | None:
    """What caching gains at the median, where a cold and a hot phase stand side by side."""
    medians = {row["phase"]: pick(row["performance"], "ttft_ms", "p50") for row in rows}
    cold, hot = medians.get("cold"), medians.get("hot")
    if not cold or not hot:
        return None
    return (
        f"Hot gives the first token {cold / hot:.1f} times as fast as cold at the median: "
        f"{quantity(hot)} ms instead of {quantity(cold)} ms."
    )


def attribution(report: PrefixCacheReport, captions: Captions) -> Html:
    """The way from target to measured rate, and the causes that were found."""
    found = report.attribution
    verdicts = [row for row in found["verdicts"] if _matters(row["contribution_pp"])]
    return section(
        "attribution",
        "Where the difference comes from",
        _attribution_lead(report),
        plot("chart-attribution", captions),
        table(
            [
                Column("station", lambda row: readable(row["name"]), "name"),
                Column("hit rate", _percent_of("hit_ratio")),
                Column("step", lambda row: points_pp(row["contribution_pp"])),
                Column("evidence", lambda row: row["evidence"], "wide"),
            ],
            found["stations"],
            id_="table-stations",
        ),
        element("h3", "What to do") if verdicts else None,
        table(
            [
                Column("cause", lambda row: readable(row["cause"]), "name"),
                Column("step", lambda row: points_pp(row["contribution_pp"], absent=NONE)),
                Column("confidence", lambda row: row["confidence"], "text"),
                Column("next step", lambda row: row["hint"], "wide"),
            ],
            verdicts,
        )
        if verdicts
        else None,
    )


def _matters(step: float | None) -> bool:
    return step is None or is_visible_pp(step)


def _attribution_lead(report: PrefixCacheReport) -> str:
    unexplained = report.attribution["unexplained_pp"]
    if unexplained is None:
        return f"Nothing was measured: {report.actual_hit_rate_reason}."
    return (
        "Each step puts one more observed fact in place of a planned one; together they are the "
        f"way from asked to measured. Unexplained: {points_pp(unexplained)}."
    )


def reconciliation(report: PrefixCacheReport, _captions: Captions) -> Html:
    """Plan, requests and counters side by side."""
    compared = [row for row in report.checks if row["phase"] is None]
    while_running = [row for row in report.checks if row["phase"] is not None]
    noticed = [row for row in while_running if row["status"] != "ok"]
    fine = len(while_running) - len(noticed)
    return section(
        "reconciliation",
        "Reconciliation",
        "Three witnesses: the plan, the requests' own usage, the server's counters. "
        + _open_checks(report.checks),
        table(
            [
                Column("check", lambda row: readable(row["name"]), "name"),
                Column("result", lambda row: badge(row["status"]), "text"),
                Column("expected", lambda row: count(row["expected"])),
                Column("observed", lambda row: count(row["observed"])),
                Column("compares", lambda row: row["detail"], "wide"),
            ],
            compared,
            id_="table-checks",
        ),
        element("h3", "Noticed while running") if while_running else None,
        _noticed_table(noticed) if noticed else None,
        element("p", f"{plural(fine, 'check')} made while running came out well.")
        if fine
        else None,
    )


def _open_checks(rows: Sequence[Row]) -> str:
    still_open = sum(row["status"] in ("unexplained", "fail") for row in rows)
    if still_open:
        return f"{plural(still_open, 'check')} open."
    return "All that was measured agrees or is explained."


def _noticed_table(rows: Sequence[Row]) -> Html:
    return table(
        [
            Column("check", lambda row: readable(row["name"]), "name"),
            Column("phase", lambda row: readable(row["phase"]), "text"),
            Column("result", lambda row: badge(row["status"]), "text"),
            Column("what", lambda row: row["detail"], "wide"),
        ],
        rows,
        id_="table-noticed",
    )


def instances(report: PrefixCacheReport, _captions: Captions) -> Html | None:
    """One row a cache: a rank of an instance."""
    if not report.instances:
        return None
    return section(
        "instances",
        "Caches",
        "Counter growth in the headline phase, one row a rank of an instance. Rates are never "
        "averaged: hits and queries add.",
        table(
            [
                Column("instance", lambda row: str(row.get("endpoint") or NONE), "name"),
                Column("rank", lambda row: str(_known(row.get("engine"))), "text"),
                Column("queries", lambda row: count(row.get("queries"))),
                Column("hits", lambda row: count(row.get("hits"))),
                Column("hit rate", lambda row: percent(row.get("hit_rate"), absent=NONE)),
                Column(
                    "KV usage, max",
                    lambda row: percent(pick(row, "kv_cache_usage", "max"), absent=NONE),
                ),
                Column("preemptions", lambda row: count(row.get("preemptions"))),
                Column("evictions", lambda row: count(pick(row, "evictions", "count"))),
                Column("block size", lambda row: count(row.get("block_size"))),
                Column("blocks", lambda row: count(row.get("num_blocks"))),
            ],
            report.instances,
        ),
    )


def _known(value: Any) -> Any:
    return NONE if value is None else value
