"""The whole flow of the specification on one page (RFC 3.1.6, 3.5.1).

configuration -> lengths, groups, order -> reachability -> prefixes      (workload)
  -> master prefixes, divergence blocks, suffixes -> collisions          (content)
  -> watermarks -> verdict -> data set on disk                           (dataset)
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from prefixbench.config.dataset import PrefixCacheDatasetConfig
from prefixbench.config.overrides import as_options
from prefixbench.config.validation import OnFailure
from prefixbench.core.errors import (
    ConfigError,
    CorpusError,
    ErrorContext,
    PrefixBenchError,
    Stage,
    TokenizerError,
    UnreachableTargetError,
    ValidationFailedError,
)
from prefixbench.core.log import event
from prefixbench.core.records import ValidationStatus
from prefixbench.dataset.block_size import resolve_block_size
from prefixbench.dataset.collisions import compose_without_collisions, with_accidental_hits
from prefixbench.dataset.compose import ChunkComposer, compose_chunks
from prefixbench.dataset.description import BlockSize, describe, identity_sha256
from prefixbench.dataset.layout import DATA, MANIFEST, METADATA, REPORT
from prefixbench.dataset.materials import (
    Materials,
    load_materials,
    load_planning_frame,
)
from prefixbench.dataset.proof import Proof, VerifyDepth, prove_dataset
from prefixbench.dataset.reader import DatasetReader
from prefixbench.dataset.recipes import open_dataset
from prefixbench.dataset.server_profile import ServerStatement
from prefixbench.dataset.server_view import ServerView
from prefixbench.dataset.verification import verify_texts
from prefixbench.dataset.writer import DatasetWriter
from prefixbench.workload.certificate import certificate
from prefixbench.workload.planner import Plan, plan_workload
from prefixbench.workload.setting import Frame
from prefixbench.workload.suggestions import Advice, advise
from prefixbench.workload.validate import validation_report

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetGenerationResult:
    """Where the four files are, and the validation report as it was written."""

    data_path: Path
    manifest_path: Path
    request_metadata_path: Path
    validation_report_path: Path
    report: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanResult:
    """A plan without texts: the validation report's keys and the certificate."""

    plan: Plan
    report: dict[str, Any]

    @property
    def failure(self) -> PrefixBenchError | None:
        """The error that ends the command, where the target is missed and the user wants one."""
        return _failure_of(self.plan, self.report)

    def to_json(self) -> dict[str, Any]:
        return {**self.report, "certificate": certificate(self.plan)}


def plan_prefix_cache_dataset(
    config: PrefixCacheDatasetConfig, *, server: Sequence[ServerStatement] = ()
) -> PlanResult:
    """Lengths, groups, order, prefixes and the verdict; no text and no file.

    A missed target is no exception here: the plan with its reasons and suggestions is the result.
    """
    config, block_size = resolve_block_size(config, server)
    return _plan(config, block_size, load_planning_frame(config))


def generate_prefix_cache_dataset(
    config: PrefixCacheDatasetConfig,
    *,
    output_dir: str | Path = "prefix_cache_dataset",
    corpus: str | None = None,
    server: Sequence[ServerStatement] = (),
    workers: int = 1,
    resume: bool = False,
    overwrite: bool = False,
    verify: VerifyDepth | str = VerifyDepth.SAMPLE,
    with_ids: bool = False,
) -> DatasetGenerationResult:
    """Write a data set that provably has its target hit ratio.

    `server` is what is known of the server it is made for. `with_ids` writes the token ids of all
    prompts beside them (`DatasetReader.prompt_ids`). A failure leaves what was written with a
    partial manifest; `resume` continues it.
    """
    _refuse_hidden_ids(config, with_ids)
    config, block_size = resolve_block_size(config, server)
    materials = load_materials(config, corpus=corpus)
    planned = _plan(config, block_size, materials.planning_frame)
    writer = DatasetWriter(
        Path(output_dir),
        dataset_id=config.dataset_id,
        identity=identity_sha256(planned.plan, materials, block_size, with_ids=with_ids),
        resume=resume,
        overwrite=overwrite,
        with_ids=with_ids,
    )
    with writer:
        return _write(writer, planned, materials, block_size, workers, VerifyDepth(verify))


def validate_dataset(
    folder: str | Path,
    *,
    tokenizer: str | None = None,
    corpus: str | None = None,
    verify: VerifyDepth | str | None = None,
) -> Proof:
    """Prove a data set again from its files; raises DatasetChangedError if a check fails.

    A tokenizer, or for recipes a corpus, that is neither given nor built in leaves the texts
    unproved, and says so, unless a depth of verification was asked for.
    """
    reader = DatasetReader(folder)
    reader.check_manifest()
    depth = None if verify is None else VerifyDepth(verify)
    view = None
    if depth is not VerifyDepth.CERTIFICATE:
        try:
            view = ServerView.of_manifest(reader.manifest.data, tokenizer)
            reader = open_dataset(folder, tokenizer=tokenizer, corpus=corpus)
        except (TokenizerError, CorpusError) as error:
            if tokenizer is not None or corpus is not None or depth is not None:
                raise
            view = None
            _tell_unproved(error)
    proof = prove_dataset(reader, view, depth)
    proof.raise_if_failed()
    return proof


def _refuse_hidden_ids(config: PrefixCacheDatasetConfig, with_ids: bool) -> None:
    """Ids are prompts: who keeps prompts off the disk does not want them either."""
    if with_ids and not config.save_prompts:
        raise ConfigError(
            "ids of the prompts cannot be written with save_prompts: false",
            context=ErrorContext(
                stage=Stage.CONFIG, dataset_id=config.dataset_id, field="save_prompts"
            ),
            hint="leave --with-ids away, or let the prompts be saved",
        )


def _tell_unproved(error: PrefixBenchError) -> None:
    event(
        log,
        "content.not_encoded",
        level=logging.WARNING,
        reason=error.message,
        hint="give what the data set was made with: --tokenizer PATH, --corpus PATH",
    )


def _plan(config: PrefixCacheDatasetConfig, block_size: BlockSize, frame: Frame) -> PlanResult:
    plan = plan_workload(config, block_size.tokens, frame)
    report = validation_report(plan, _advice(plan, frame))
    event(
        log,
        "plan.done",
        dataset_id=config.dataset_id,
        groups=len(plan.workload.group_ids),
        search_steps=plan.steps,
        deviation_pp=report["deviation_pp"],
        status=report["validation_status"],
    )
    return PlanResult(plan=plan, report=report)


def _advice(plan: Plan, frame: Frame) -> Advice | None:
    wanted = plan.config.planning.reachability_check and not plan.reachable
    return advise(plan, frame) if wanted else None


def _write(
    writer: DatasetWriter,
    planned: PlanResult,
    materials: Materials,
    block_size: BlockSize,
    workers: int,
    depth: VerifyDepth,
) -> DatasetGenerationResult:
    plan, report = planned.plan, planned.report
    _refuse(writer, plan, materials, block_size, report, collision={})
    composed = compose_without_collisions(plan, materials)
    report = with_accidental_hits(plan, composed, report)
    collision = composed.report.to_json()
    _refuse(writer, plan, materials, block_size, report, collision)
    chunks = ChunkComposer(plan=plan, composed=composed, with_ids=writer.with_ids)
    for chunk in compose_chunks(chunks, first=writer.chunks_done, workers=workers):
        writer.write(chunk)
    verification = verify_texts(plan, composed.composer, materials, depth)
    report = {**report, "verification": verification.to_json()}
    manifest = describe(plan, materials, block_size, report, collision)
    writer.finish(manifest, report)
    event(log, "content.done", dataset_id=plan.config.dataset_id, chunks=chunks.chunk_count)
    return _result_of(writer.folder, report)


def _refuse(
    writer: DatasetWriter,
    plan: Plan,
    materials: Materials,
    block_size: BlockSize,
    report: dict[str, Any],
    collision: dict[str, Any],
) -> None:
    """Leave the report and a partial manifest where the target is missed and that is an error."""
    failure = _failure_of(plan, report)
    if failure is not None:
        manifest = describe(plan, materials, block_size, report, collision)
        writer.finish_without_data(manifest, report, failure)
        raise failure


def _result_of(folder: Path, report: dict[str, Any]) -> DatasetGenerationResult:
    return DatasetGenerationResult(
        data_path=folder / DATA,
        manifest_path=folder / MANIFEST,
        request_metadata_path=folder / METADATA,
        validation_report_path=folder / REPORT,
        report=report,
    )


def _failure_of(plan: Plan, report: dict[str, Any]) -> PrefixBenchError | None:
    """The error that ends the command, where the configuration wants one."""
    failed = report["validation_status"] == ValidationStatus.FAIL
    if not failed or plan.config.validation.on_failure is not OnFailure.ERROR:
        return None
    context = ErrorContext(
        stage=Stage.PLAN, dataset_id=plan.config.dataset_id, field="target.hit_ratio"
    )
    if plan.reachable:
        return ValidationFailedError(
            f"designed hit ratio {report['designed_hit_ratio']:.4f} misses the target"
            f" {report['target_hit_ratio']:.4f} by {abs(report['deviation_pp']):.2f} pp",
            context=context,
            hint=_missed_hint(plan, report),
        )
    return UnreachableTargetError(
        _unreachable_message(plan, report),
        context=context,
        hint=_unreachable_hint(report["suggestions"]),
    )


def _missed_hint(plan: Plan, report: Mapping[str, Any]) -> str:
    """What makes a plan exact; where it is exact already, steps of hits are too coarse."""
    if accidents := report.get("accidental_hit_tokens"):
        return (
            f"{accidents} tokens are found by accident: use a larger corpus or another target, or"
            " chained_prefix where that is how the cache matches"
        )
    if plan.coarse_steps is None:
        return "half a block is more than the tolerance: take more requests, or smaller blocks"
    switches = {
        "planning.block_residual_calibration": plan.config.planning.block_residual_calibration,
        "prefix.nested_prefix": plan.config.prefix.nested_prefix,
    }
    exact = [f"{key}=true" for key, is_on in switches.items() if not is_on]
    change = f"use {as_options(exact)}" if exact else "take more requests, or smaller blocks"
    return f"{plan.coarse_steps}: {change}"


def _unreachable_message(plan: Plan, report: dict[str, Any]) -> str:
    reasons = "; ".join(
        f"{reason['message']} (-{reason['cost_pp']:.1f} pp)"
        for reason in report["unreachable_reasons"][:3]
    )
    return "; ".join(_out_of_reach(plan)) + (f": {reasons}" if reasons else "")


def _out_of_reach(plan: Plan) -> Iterator[str]:
    """Each target that no plan meets, with the end of the range it lies beyond."""
    if plan.targets.by_group is None:
        wanted, least, most = plan.targets.total, plan.range.least, plan.range.most
        if not least <= wanted <= most:
            end = plan.ratio(most if wanted > most else least)
            yield f"target hit ratio {_beyond(plan.targets.ratio, end)}"
        return
    ranges = zip(plan.group_range.least.tolist(), plan.group_range.most.tolist(), strict=True)
    for group, (wanted, (least, most)) in enumerate(
        zip(plan.targets.by_group, ranges, strict=True)
    ):
        if not least <= wanted <= most:
            end = plan.group_ratio(group, most if wanted > most else least) or Fraction(0)
            target = (plan.targets.group_ratios or ())[group]
            yield f"target of {plan.workload.group_ids[group]} {_beyond(target, end)}"


def _beyond(target: Fraction, end: Fraction) -> str:
    side = "exceeds the reachable" if target > end else "is below the least reachable"
    return f"{float(target):.4f} {side} {float(end):.4f}"


def _unreachable_hint(suggestions: Sequence[dict[str, Any]]) -> str:
    if not suggestions:
        return "no single change was found that reaches it; lower the target"
    return " or ".join(
        f"{suggestion['sentence']} ({as_options(suggestion['change'])})"
        for suggestion in suggestions[:3]
    )
