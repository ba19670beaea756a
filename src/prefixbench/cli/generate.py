"""`prefixbench generate`: a configuration becomes a data set."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.configured import configuration_options, read_request
from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from prefixbench.pipeline import DatasetGenerationResult


@click.command(cls=Verb, stage=Stage.CONTENT)
@configuration_options
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    required=True,
    help="Folder of the data set.",
)
@click.option(
    "--corpus", help="builtin, gsm8k, or a jsonl, txt, csv or parquet file; for every text source."
)
@click.option(
    "--workers", type=click.IntRange(1), default=1, show_default=True, help="Processes that write."
)
@click.option("--resume", is_flag=True, help="Continue a generation that was stopped.")
@click.option("--overwrite", is_flag=True, help="Replace what the folder holds.")
@click.option(
    "--verify",
    type=click.Choice(["certificate", "sample", "full"]),
    default="sample",
    show_default=True,
    help="Prompts that are encoded again.",
)
@click.option(
    "--with-ids",
    is_flag=True,
    help="Write the token ids of all prompts too, in two binary files (docs/reference/files.md).",
)
def command(
    output: Output,
    folder: Path,
    corpus: str | None,
    workers: int,
    resume: bool,
    overwrite: bool,
    verify: str,
    with_ids: bool,
    **given: Any,
) -> None:
    """Write a data set that provably has its target hit ratio."""
    from prefixbench.cli.progress import planning_progress
    from prefixbench.pipeline import generate_prefix_cache_dataset

    request = read_request(output, **given)
    with planning_progress(output):
        result = generate_prefix_cache_dataset(
            request.config,
            server=request.server,
            output_dir=folder,
            corpus=corpus,
            workers=workers,
            resume=resume,
            overwrite=overwrite,
            verify=verify,
            with_ids=with_ids,
        )
    output.show(_document(result), lambda console: print_generation(result, console))


def _document(result: DatasetGenerationResult) -> dict[str, Any]:
    paths = {
        "data_path": result.data_path,
        "manifest_path": result.manifest_path,
        "request_metadata_path": result.request_metadata_path,
        "validation_report_path": result.validation_report_path,
    }
    return {**{name: str(path) for name, path in paths.items()}, **result.report}


def print_generation(result: DatasetGenerationResult, console: Console) -> None:
    """Print the verdict, how it was verified, and where the files are."""
    from prefixbench.cli.plan_page import verdict_line
    from prefixbench.core.wording import plural

    report, verification = result.report, result.report["verification"]
    console.print(verdict_line(report))
    console.print(
        f"{plural(verification['prompts_checked'], 'prompt')} encoded again,"
        f" {plural(verification['mismatches'], 'mismatch', 'mismatches')}"
    )
    console.print(result.data_path.parent, soft_wrap=True)
