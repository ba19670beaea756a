"""The last section of the page: configuration and provenance."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from prefixbench.core.wording import plural
from prefixbench.explain.markup import Child, Html, element
from prefixbench.explain.report import PrefixCacheReport
from prefixbench.explain.sections import Captions, section
from prefixbench.explain.tables import Row, facts
from prefixbench.explain.wording import NONE, count, percent, readable


def origin(report: PrefixCacheReport, _captions: Captions) -> Html:
    """Configuration and provenance."""
    dataset, run = report.provenance["dataset"], report.provenance["run"]
    return section(
        "provenance",
        "Configuration and provenance",
        None,
        element(
            "div",
            element("div", element("h3", "Data set"), facts(_dataset_facts(report, dataset))),
            element("div", element("h3", "Run"), facts(_run_facts(report, run))),
            class_="facts",
        ),
        element(
            "details",
            element("summary", "The configuration with every default filled in"),
            element("pre", json.dumps(report.provenance["config"], indent=2, ensure_ascii=False)),
        ),
    )


def _dataset_facts(report: PrefixCacheReport, dataset: Row) -> list[tuple[str, Child]]:
    return [
        ("data set", report.dataset_id),
        ("seed", str(dataset["seed"])),
        ("manifest", _hash(report.manifest_sha256)),
        ("configuration", _hash(dataset["config_sha256"])),
        (
            "tokenizer",
            _named(dataset["tokenizer"], "fingerprint", size="vocab_size", unit="tokens"),
        ),
        ("corpus", _named(dataset["corpus"], "sha256", size="rows", unit="rows")),
        ("block size", f"{dataset['block_size']} tokens ({dataset['block_size_source']})"),
        ("hit granularity", f"{dataset['hit_granularity']} tokens"),
        ("hit definition", _text(dataset["hit_definition"])),
        ("engine profile", _text(dataset["engine_profile"])),
        ("head, tail", f"{dataset['head_len']}, {dataset['tail_len']} tokens"),
        ("prompts verified", _verification(dataset["verification"])),
        ("exact up to concurrency", _text(dataset["robust_to_concurrency"])),
        ("written by", f"prefixbench {dataset['prefixbench_version']}"),
    ]


def _run_facts(report: PrefixCacheReport, run: Row) -> list[tuple[str, Child]]:
    server = run["server"] or {}
    states = dict.fromkeys(row["cache_state_before"] or "unknown" for row in report.phases)
    return [
        ("run", _text(report.run_id)),
        ("mode", _text(report.mode)),
        ("scenario", readable(report.scenario_class)),
        ("prediction", _prediction(report)),
        ("isolation", _isolation(run["isolation"])),
        ("cache before each phase", ", ".join(states)),
        ("concurrency", _text(run["concurrency"])),
        ("request rate", _text(run["request_rate"])),
        ("routing", _routing(run["routing"])),
        ("server", _plain(server)),
        (
            "metrics read as",
            f"{_text(report.provenance['adapter'])}, {_text(report.provenance['unit'])}s",
        ),
        ("started, ended", f"{_text(run['started'])}, {_text(run['ended'])}"),
        ("versions", _plain(run["versions"])),
        ("command", element("code", _plain(run["command"], between=" "))),
    ]


def _prediction(report: PrefixCacheReport) -> str:
    number = percent(report.predicted_hit_ratio, absent="no number")
    return f"{number}: {report.prediction['reason']}"


def _isolation(value: Any) -> str:
    """What was done in each phase, and what was asked."""
    if not isinstance(value, Mapping):
        return _text(value)
    used = dict.fromkeys(str(phase.get("used")) for phase in value.get("phases", ()))
    return f"{', '.join(used) or 'none'} (asked: {value.get('asked')})"


def _routing(value: Any) -> str:
    """Policy and places; the addresses stand in the table of caches."""
    if not isinstance(value, Mapping):
        return _text(value)
    known = ("policy", "cache_scope", "instances", "dp_size")
    return _plain({key: value.get(key) for key in known})


def _verification(value: Any) -> str:
    if not isinstance(value, Mapping):
        return NONE
    checked, wrong = value.get("prompts_checked"), value.get("mismatches")
    return f"{count(checked)} re-encoded, {plural(wrong or 0, 'mismatch', 'mismatches')}"


def _named(value: Any, digest: str, *, size: str, unit: str) -> Child:
    if not isinstance(value, Mapping):
        return _text(value)
    name = " ".join(str(value[key]) for key in ("name", "version") if value.get(key))
    return [f"{name}, {count(value.get(size))} {unit} ", _hash(value.get(digest))]


def _hash(digest: str | None) -> Html:
    return element("code", digest[:16] if digest else NONE, title=digest)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return NONE if value is None else str(value)


def _plain(value: Any, *, between: str = ", ") -> str:
    """A value of any shape in one line, without what is not known."""
    if isinstance(value, Mapping):
        known = [(key, part) for key, part in value.items() if part is not None]
        return between.join(f"{readable(str(key))} {_plain(part)}" for key, part in known) or NONE
    if isinstance(value, Sequence) and not isinstance(value, str):
        return between.join(_plain(part) for part in value) or NONE
    return _text(value)
