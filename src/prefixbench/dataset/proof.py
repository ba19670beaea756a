"""Proves a data set again from its files alone; nothing on disk is changed.

Each check is independent of how the data set was made: hashes of the files, rows against each
other, the watermark walk in the order on disk, the totals and the verdict of the report, the texts
encoded again, and, where every text is encoded, an unlimited cache of blocks over the final ids,
which would also find blocks that requests share by accident.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import zip_longest
from typing import Any

from prefixbench.core.blocks import longest_hit
from prefixbench.core.errors import DatasetChangedError, ErrorContext, PrefixBenchError, Stage
from prefixbench.core.records import CacheScope, RequestPlan
from prefixbench.dataset.block_walk import BlockWalk
from prefixbench.dataset.layout import file_sha256
from prefixbench.dataset.reader import DatasetReader
from prefixbench.simulator.watermark import CACHE_OF, walk_watermarks
from prefixbench.workload.validate import validate_theoretical_hit_rate

#: Prompts encoded again by `sample`, spread evenly over the data set.
SAMPLE_PROMPTS = 200
#: Up to so many prompts, `validate` encodes all of them unless told otherwise.
FULL_UP_TO = 2_000
_BATCH = 64

#: Ids of the sequence the server sees, for some rows of data.jsonl.
EncodeRows = Callable[[Sequence[Mapping[str, Any]]], list[list[int]]]


class VerifyDepth(StrEnum):
    """How many prompts are encoded again."""

    CERTIFICATE = "certificate"
    SAMPLE = "sample"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was proved, or was not."""

    name: str
    passed: bool
    detail: str

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "status": "ok" if self.passed else "fail", "detail": self.detail}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """Prompts that were encoded again, and how many were not what the plan says."""

    method: str
    prompts_checked: int
    mismatches: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


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
    reader: DatasetReader, encode_rows: EncodeRows | None, depth: VerifyDepth | None = None
) -> Proof:
    """Run every check; a broken row ends the checks that read rows.

    Without `encode_rows` the texts stay unproved: `verification` is None.
    """
    checks = list(_check_files(reader))
    verification = None
    try:
        rows = list(reader.metadata())
        checks += _check_rows(reader, rows)
        checks.append(_check_walk(reader, rows))
        checks += _check_report(reader, rows)
        if encode_rows is not None:
            text_checks, verification = _check_texts(reader, rows, encode_rows, depth)
            checks += text_checks
    except (PrefixBenchError, KeyError, TypeError, ValueError) as error:
        detail = error.message if isinstance(error, PrefixBenchError) else "a row lacks its keys"
        checks.append(Check(name="rows_readable", passed=False, detail=detail))
    return Proof(
        dataset_id=reader.manifest.dataset_id, checks=tuple(checks), verification=verification
    )


def _check_files(reader: DatasetReader) -> Iterator[Check]:
    for name, expected in reader.manifest.files.items():
        path = reader.folder / name
        found = file_sha256(path) if path.is_file() else None
        detail = "as the manifest says"
        if found is None:
            detail = "missing"
        elif found != expected["sha256"]:
            detail = "edited or reordered since it was written"
        yield Check(name=f"hash of {name}", passed=found == expected["sha256"], detail=detail)


def _check_rows(reader: DatasetReader, rows: list[dict[str, Any]]) -> Iterator[Check]:
    wrong_order = sum(
        data is None or row is None or data["request_id"] != row["request_id"]
        for data, row in zip_longest(reader.requests(), rows)
    )
    yield _counted("same requests in both files", wrong_order, "rows differ")
    misplaced = sum(row["order_index"] != place for place, row in enumerate(rows))
    yield _counted("order_index counts the rows", misplaced, "rows stand at another place")
    yield Check(
        name="request count",
        passed=len(rows) == reader.manifest.request_count
        and len({row["request_id"] for row in rows}) == len(rows),
        detail=f"{len(rows)} rows, {reader.manifest.request_count} in the manifest",
    )
    block = reader.manifest.hit_granularity
    wrong_lengths = sum(not _lengths_add_up(row, block) for row in rows)
    yield _counted("lengths add up", wrong_lengths, "rows do not")


def _lengths_add_up(row: Mapping[str, Any], block: int) -> bool:
    parts = row["planned_prefix_len"] + row["divergence_len"] + row["suffix_len"]
    hit = row["expected_hit_len"]
    planned = row["planned_prefix_len"] + row["accidental_hit_len"]
    most = min(planned, longest_hit(row["input_len"], block))
    fits = row["divergence_len"] > 0 and row["suffix_len"] >= 0
    return bool(fits and parts == row["input_len"] and 0 <= hit <= most)


_WALKED = (
    "cached_watermark_before",
    "expected_hit_len",
    "cached_watermark_after",
    "expected_head_hit_len",
)


def _check_walk(reader: DatasetReader, rows: list[dict[str, Any]]) -> Check:
    """Walk the watermarks in the order on disk and compare every order-dependent field."""
    manifest = reader.manifest
    walk = walk_watermarks(
        map(_plan_of, rows),
        cache_scope(manifest.data),
        hit_granularity=manifest.hit_granularity,
        head_len=manifest.head_len,
        warm=warm_depths(manifest.data),
    )
    wrong = sum(
        any(getattr(outcome, name) != _walked_value(row, name) for name in _WALKED)
        for outcome, row in zip(walk, rows, strict=True)
    )
    return _counted("watermark walk in the order on disk", wrong, "rows find something else")


def _walked_value(row: Mapping[str, Any], name: str) -> int:
    """What the watermarks alone explain: accidental hits come on top of them."""
    return int(row[name]) - (row["accidental_hit_len"] if name == "expected_hit_len" else 0)


def _plan_of(row: Mapping[str, Any]) -> RequestPlan:
    return RequestPlan(
        request_id=row["request_id"],
        prefix_group_id=row["prefix_group_id"],
        input_len=row["input_len"],
        planned_prefix_len=row["planned_prefix_len"],
        order_index=row["order_index"],
        planned_dp_id=row["planned_dp_id"],
        planned_instance_id=row["planned_instance_id"],
    )


def cache_scope(manifest: Mapping[str, Any]) -> CacheScope:
    """How far a cached prefix reaches, as the data set was planned."""
    return CacheScope(manifest["routing"]["cache_scope"])


def warm_depths(manifest: Mapping[str, Any]) -> dict[str, int] | None:
    """Tokens that a warm-up leaves cached of each group; None where the run starts cold."""
    if not manifest["warmed"]:
        return None
    return {group["id"]: group["master_prefix_len"] for group in manifest["groups"]}


def _check_report(reader: DatasetReader, rows: list[dict[str, Any]]) -> Iterator[Check]:
    report = reader.validation
    hits = sum(row["expected_hit_len"] for row in rows)
    tokens = sum(row["input_len"] for row in rows)
    yield Check(
        name="totals of the validation report",
        passed=(hits, tokens) == (report["expected_hit_tokens"], report["input_tokens"]),
        detail=f"{hits} of {tokens} tokens hit in the rows",
    )
    verdict = validate_theoretical_hit_rate(
        _Counted(hits, tokens),
        report["target_hit_ratio"],
        report["pass_tolerance"],
        report["warning_tolerance"],
    )
    yield Check(
        name="designed hit ratio",
        passed=float(verdict.designed_hit_ratio) == report["designed_hit_ratio"],
        detail=f"{float(verdict.designed_hit_ratio):.6f} by the rows",
    )


@dataclass(frozen=True, slots=True)
class _Counted:
    hits: int
    queries: int


def _check_texts(
    reader: DatasetReader,
    rows: list[dict[str, Any]],
    encode_rows: EncodeRows,
    depth: VerifyDepth | None,
) -> tuple[list[Check], Verification]:
    if depth is None:
        depth = VerifyDepth.FULL if len(rows) <= FULL_UP_TO else VerifyDepth.SAMPLE
    chosen = chosen_places(len(rows), depth)
    walk = _PlanWalk(reader.manifest.data) if depth is VerifyDepth.FULL else None
    if walk is not None:
        for data, row, ids in _encoded(reader, rows, encode_rows, _warm_up_places(reader, rows)):
            walk.warm_up(data, row, ids)
    mismatches = 0
    for data, row, ids in _encoded(reader, rows, encode_rows, chosen):
        mismatches += len(ids) != row["input_len"]
        if walk is not None:
            walk.serve(data, row, ids)
    verification = Verification(
        method=f"{depth}: encoded again from disk",
        prompts_checked=len(chosen),
        mismatches=mismatches,
    )
    checks = [_counted("encoded lengths", mismatches, f"of {len(chosen)} prompts differ")]
    if walk is not None:
        checks.append(
            _counted("block walk over the final ids", walk.wrong, "prompts hit otherwise")
        )
    return checks, verification


def chosen_places(count: int, depth: VerifyDepth) -> list[int]:
    """Places of the prompts to encode again, spread evenly."""
    if depth is VerifyDepth.FULL:
        return list(range(count))
    if depth is VerifyDepth.CERTIFICATE:
        return []
    sample = min(count, SAMPLE_PROMPTS)
    return sorted({number * (count - 1) // max(sample - 1, 1) for number in range(sample)})


def _encoded(
    reader: DatasetReader,
    rows: list[dict[str, Any]],
    encode_rows: EncodeRows,
    chosen: Sequence[int],
) -> Iterator[tuple[dict[str, Any], dict[str, Any], list[int]]]:
    wanted = set(chosen)
    batch: list[tuple[dict[str, Any], dict[str, Any]]] = []

    def flush() -> Iterator[tuple[dict[str, Any], dict[str, Any], list[int]]]:
        ids = encode_rows([data for data, _ in batch])
        yield from ((data, row, own) for (data, row), own in zip(batch, ids, strict=True))
        batch.clear()

    for place, (data, row) in enumerate(zip(reader.requests(), rows, strict=True)):
        if place in wanted:
            batch.append((data, row))
        if len(batch) == _BATCH:
            yield from flush()
    if batch:
        yield from flush()


class _PlanWalk:
    """The block walk over a planned data set, warm-up included; counts requests that differ."""

    def __init__(self, manifest: Mapping[str, Any]) -> None:
        self.wrong = 0
        self._walk = BlockWalk(int(manifest["hit_granularity"]))
        self._cache_of = CACHE_OF[cache_scope(manifest)]

    def warm_up(self, data: Mapping[str, Any], row: Mapping[str, Any], ids: Sequence[int]) -> None:
        """Store the planned prefix of a group's longest member."""
        self._walk.store(self._root(data, row), ids[: row["planned_prefix_len"]])

    def serve(self, data: Mapping[str, Any], row: Mapping[str, Any], ids: Sequence[int]) -> None:
        found = self._walk.serve(self._root(data, row), ids)
        self.wrong += found != row["expected_hit_len"]

    def _root(self, data: Mapping[str, Any], row: Mapping[str, Any]) -> tuple[Any, ...]:
        return (self._cache_of(_plan_of(row)), data.get("model"), data.get("cache_salt"))


def _warm_up_places(reader: DatasetReader, rows: list[dict[str, Any]]) -> list[int]:
    """Where the longest planned prefix of each (cache, group) stands; none for a cold start."""
    if warm_depths(reader.manifest.data) is None:
        return []
    cache_of = CACHE_OF[cache_scope(reader.manifest.data)]
    longest: dict[tuple[Any, ...], int] = {}
    for place, row in enumerate(rows):
        domain = (cache_of(_plan_of(row)), row["prefix_group_id"])
        best = longest.setdefault(domain, place)
        if rows[best]["planned_prefix_len"] < row["planned_prefix_len"]:
            longest[domain] = place
    return list(longest.values())


def _counted(name: str, wrong: int, what: str) -> Check:
    return Check(name=name, passed=not wrong, detail=f"{wrong} {what}" if wrong else "all agree")
