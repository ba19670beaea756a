"""Proves a data set again from its files alone; nothing on disk is changed.

Each check is independent of how the data set was made: hashes of the files, rows against each
other, the watermark walk in the order on disk, the figures of report and manifest, the texts
encoded again, and, where every text is encoded, an unlimited cache of blocks over the final ids,
which would also find blocks that requests share by accident.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice, zip_longest
from typing import Any

import numpy as np

from prefixbench.content.tape import Ids
from prefixbench.core.blocks import longest_hit
from prefixbench.core.errors import DatasetChangedError, ErrorContext, PrefixBenchError, Stage
from prefixbench.core.records import RequestPlan
from prefixbench.dataset.check import Check, counted
from prefixbench.dataset.conversation import whole_requests
from prefixbench.dataset.figures import wrong_manifest_figures, wrong_report_figures
from prefixbench.dataset.layout import IDS, file_sha256
from prefixbench.dataset.plan_walk import (
    planned_walk,
    warm_up_places,
)
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.server_view import ServerView
from prefixbench.dataset.text_walk import TextWalk

#: Prompts encoded again by `sample`, spread evenly over the data set.
SAMPLE_PROMPTS = 200
#: Up to so many prompts, `validate` encodes all of them unless told otherwise.
FULL_UP_TO = 2_000
_BATCH = 64
_SHOWN_KEYS = 5


class VerifyDepth(StrEnum):
    """How many prompts are encoded again."""

    CERTIFICATE = "certificate"
    SAMPLE = "sample"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Prompts that were encoded again, and how many were not what the plan says."""

    method: str
    prompts_checked: int
    mismatches: int
    prompts_by_engine: Mapping[str, int]

    def to_json(self) -> dict[str, Any]:
        return {
            "method": self.method,
            "prompts_checked": self.prompts_checked,
            "mismatches": self.mismatches,
            "prompts_by_engine": dict(sorted(self.prompts_by_engine.items())),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """All checks of a data set."""

    dataset_id: str
    checks: tuple[Check, ...]
    verification: Verification | None

    @property
    def passed(self) -> bool:
        return all(check.passed for check in self.checks)

    def to_json(self) -> dict[str, Any]:
        return {
            "dataset_id": self.dataset_id,
            "status": "ok" if self.passed else "fail",
            "checks": [check.to_json() for check in self.checks],
            "verification": self.verification.to_json() if self.verification else None,
        }

    def raise_if_failed(self) -> None:
        failed = [check for check in self.checks if not check.passed]
        if failed:
            raise DatasetChangedError(
                f"{len(failed)} of {len(self.checks)} checks failed: "
                + "; ".join(f"{check.name} ({check.detail})" for check in failed),
                context=ErrorContext(
                    stage=Stage.SIMULATE, dataset_id=self.dataset_id, field=failed[0].name
                ),
                hint="generate the data set again; a proof holds for one order and one content",
            )


def prove_dataset(
    reader: DatasetReader, view: ServerView | None, depth: VerifyDepth | None = None
) -> Proof:
    """Run every check; a broken row ends the checks that read rows.

    Without a `view` the texts stay unproved: `verification` is None.
    """
    checks = list(_check_files(reader))
    verification = None
    try:
        rows = list(reader.metadata())
        plans = list(map(reader.plan_of, rows))
        checks += _check_rows(reader, rows)
        checks += _check_turns(rows)
        checks.append(_check_walk(reader, rows, plans))
        checks += _check_figures(reader, rows)
        if IDS in reader.file_names:
            checks.append(_check_ids(reader, rows))
        if view is not None:
            text_checks, verification = _check_texts(reader, plans, rows, view, depth)
            checks += text_checks
    except (PrefixBenchError, KeyError, TypeError, ValueError) as error:
        detail = (
            error.message
            if isinstance(error, PrefixBenchError)
            else "a key is missing or of another kind"
        )
        checks.append(Check(name="rows_readable", passed=False, detail=detail))
    return Proof(
        dataset_id=reader.manifest.dataset_id, checks=tuple(checks), verification=verification
    )


def _check_files(reader: DatasetReader) -> Iterator[Check]:
    for name in reader.file_names:
        path = reader.folder / name
        expected = reader.manifest.hash_of(name)
        found = file_sha256(path) if path.is_file() else None
        detail = "as the manifest says"
        if found is None:
            detail = "missing"
        elif found != expected:
            detail = "edited or reordered since it was written"
        yield Check(name=f"hash of {name}", passed=found == expected is not None, detail=detail)


def _check_rows(reader: DatasetReader, rows: list[dict[str, Any]]) -> Iterator[Check]:
    wrong_order = sum(
        data is None or row is None or not _same_request(data, row)
        for data, row in zip_longest(reader.requests(), rows)
    )
    yield counted("same requests in both files", wrong_order, "rows differ")
    misplaced = sum(row["order_index"] != place for place, row in enumerate(rows))
    yield counted("order_index counts the rows", misplaced, "rows stand at another place")
    yield Check(
        name="request count",
        passed=len(rows) == reader.manifest.request_count
        and len({row["request_id"] for row in rows}) == len(rows),
        detail=f"{len(rows)} rows, {reader.manifest.request_count} in the manifest",
    )
    block = reader.manifest.hit_granularity
    wrong_lengths = sum(not _lengths_add_up(row, block) for row in rows)
    yield counted("lengths add up", wrong_lengths, "rows do not")


def _same_request(data: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    same_answer = data["max_tokens"] == row["output_len"]
    return bool(data["request_id"] == row["request_id"] and same_answer)


def _lengths_add_up(row: Mapping[str, Any], block: int) -> bool:
    parts = row["planned_prefix_len"] + row["divergence_len"] + row["suffix_len"]
    hit = row["expected_hit_len"]
    planned = row["planned_prefix_len"] + row["accidental_hit_len"]
    most = min(planned, longest_hit(row["input_len"], block))
    fits = row["divergence_len"] > 0 and row["suffix_len"] >= 0
    return bool(
        fits
        and parts == row["input_len"]
        and 0 <= hit <= most
        and row["expected_hit_ratio"] == hit / row["input_len"]
    )


def _check_turns(rows: list[dict[str, Any]]) -> Iterator[Check]:
    """Every turn comes behind the one that it continues, in the same cache."""
    if not any("session_id" in row for row in rows):
        return
    seen: dict[str, Mapping[str, Any]] = {}
    misplaced = 0
    for row in rows:
        before = seen.get(row["history_request_id"])
        misplaced += row["turn"] > 0 and not (before and _continues(before, row))
        seen[row["request_id"]] = row
    yield counted("turns in turn", misplaced, "turns do not follow the one before them")


def _continues(before: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    same = ("session_id", "prefix_group_id", "planned_dp_id", "planned_instance_id")
    return bool(
        before["turn"] + 1 == row["turn"]
        and before["input_len"] <= row["planned_prefix_len"]
        and all(before[key] == row[key] for key in same)
    )


_WALKED = (
    "cached_watermark_before",
    "expected_hit_len",
    "cached_watermark_after",
    "expected_head_hit_len",
)


def _check_walk(
    reader: DatasetReader, rows: list[dict[str, Any]], plans: Sequence[RequestPlan]
) -> Check:
    """Walk the watermarks in the order on disk and compare every order-dependent field."""
    walk = planned_walk(reader.manifest, plans)
    wrong = sum(
        any(getattr(outcome, name) != _walked_value(row, name) for name in _WALKED)
        for outcome, row in zip(walk, rows, strict=True)
    )
    return counted("watermark walk in the order on disk", wrong, "rows find something else")


def _walked_value(row: Mapping[str, Any], name: str) -> int:
    """What the watermarks alone explain: accidental hits come on top of them."""
    return int(row[name]) - (row["accidental_hit_len"] if name == "expected_hit_len" else 0)


def _check_figures(reader: DatasetReader, rows: list[dict[str, Any]]) -> Iterator[Check]:
    report = reader.validation
    hits, tokens = (sum(row[key] for row in rows) for key in ("expected_hit_len", "input_len"))
    for name, wrong, agreed in (
        (
            "figures of the validation report",
            wrong_report_figures(report, rows),
            f"{hits} of {tokens} tokens hit in the rows",
        ),
        (
            "figures of the manifest",
            wrong_manifest_figures(reader.manifest, report, rows),
            "all agree",
        ),
    ):
        keys = sorted(wrong)
        detail = f"other by the rows: {', '.join(keys[:_SHOWN_KEYS])}" if keys else agreed
        yield Check(name=name, passed=not keys, detail=detail)


def _check_ids(reader: DatasetReader, rows: list[dict[str, Any]]) -> Check:
    """The side file of ids: as many as planned for each request."""
    pairs = zip_longest(reader.prompt_ids(), rows)
    wrong = sum(ids is None or row is None or len(ids) != row["input_len"] for ids, row in pairs)
    return counted("lengths of the ids on disk", wrong, "requests have another number of ids")


def _check_texts(
    reader: DatasetReader,
    plans: Sequence[RequestPlan],
    rows: list[dict[str, Any]],
    view: ServerView,
    depth: VerifyDepth | None,
) -> tuple[list[Check], Verification]:
    if depth is None:
        depth = VerifyDepth.FULL if len(plans) <= FULL_UP_TO else VerifyDepth.SAMPLE
    chosen = chosen_places(len(plans), depth)
    walk = TextWalk(reader.manifest, plans, rows) if depth is VerifyDepth.FULL else None
    if walk is not None:
        sample = chosen_places(len(plans), VerifyDepth.SAMPLE)
        view.try_fast_engine([data for _, data in _picked(reader, sample)])
        warm_ups = warm_up_places(reader.manifest, plans)
        for place, data, ids in _encoded(reader, view, warm_ups):
            walk.warm_up(place, data, ids)
    mismatches = other_ids = 0
    stored = _stored_ids(reader, chosen)
    for place, data, ids in _encoded(reader, view, chosen):
        mismatches += len(ids) != plans[place].input_len
        other_ids += stored is not None and not np.array_equal(ids, next(stored, ()))
        if walk is not None:
            walk.serve(place, data, ids)
    verification = Verification(
        method=f"{depth}: encoded again from disk",
        prompts_checked=len(chosen),
        mismatches=mismatches,
        prompts_by_engine=view.prompts_by_engine,
    )
    checks = [counted("encoded lengths", mismatches, f"of {len(chosen)} prompts differ")]
    if stored is not None and chosen:
        checks.append(counted("ids on disk are those of the prompts", other_ids, "are not"))
    if walk is not None:
        checks += walk.checks()
    return checks, verification


def chosen_places(count: int, depth: VerifyDepth) -> list[int]:
    """Places of the prompts to encode again, spread evenly."""
    if depth is VerifyDepth.FULL:
        return list(range(count))
    if depth is VerifyDepth.CERTIFICATE:
        return []
    sample = min(count, SAMPLE_PROMPTS)
    return sorted({number * (count - 1) // max(sample - 1, 1) for number in range(sample)})


def _picked(reader: DatasetReader, chosen: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Place and whole row of the chosen requests, in sending order."""
    wanted = set(chosen)
    return ((place, data) for place, data in enumerate(whole_requests(reader)) if place in wanted)


def _encoded(
    reader: DatasetReader, view: ServerView, chosen: Sequence[int]
) -> Iterator[tuple[int, dict[str, Any], Ids]]:
    """As `_picked`, with the ids of each request."""
    picked = _picked(reader, chosen)
    while batch := list(islice(picked, _BATCH)):
        ids = view([data for _, data in batch])
        yield from ((place, data, own) for (place, data), own in zip(batch, ids, strict=True))


def _stored_ids(reader: DatasetReader, chosen: Sequence[int]) -> Iterator[Ids] | None:
    """Ids on disk of the chosen requests; None where there are none."""
    if IDS not in reader.file_names:
        return None
    wanted = set(chosen)
    return (ids for place, ids in enumerate(reader.prompt_ids()) if place in wanted)
