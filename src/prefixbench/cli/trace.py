"""`prefixbench trace`: what can be made of a trace."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output, refuse_existing
from prefixbench.cli.trace_source import read_source, trace_source_options
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from prefixbench.exchange.load import LoadedTrace
    from prefixbench.exchange.synthesize import Synthesis
    from prefixbench.pipeline import PlanResult

#: Forms that a trace can be written in.
_WRITABLE = ("mooncake", "runs")


@click.group()
def command() -> None:
    """Make a configuration of a trace, or an anonymised trace of logs."""


def _output_options(function: Any) -> Any:
    overwrite = click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
    output = click.option(
        "--output",
        "target",
        type=click.Path(path_type=Path),
        required=True,
        help="File to write.",
    )
    return output(overwrite(function))


@command.command("synthesize", cls=Verb, stage=Stage.CONFIG)
@click.argument("file", type=click.Path(path_type=Path))
@trace_source_options
@click.option("--requests", type=click.IntRange(1), help="Take the first so many; all by default.")
@_output_options
def synthesize_command(
    output: Output,
    file: Path,
    target: Path,
    overwrite: bool,
    requests: int | None,
    **source: Any,
) -> None:
    """A trace -> a configuration with its lengths, groups, order and hits."""
    from prefixbench.config.load import load_config
    from prefixbench.exchange.synthesize import synthesize
    from prefixbench.pipeline import plan_prefix_cache_dataset

    if not overwrite:
        refuse_existing(target)
    trace = read_source(file, **source)
    made = synthesize(trace.requests[:requests], trace.block_size)
    _write_settings(made, trace, target)
    planned = plan_prefix_cache_dataset(load_config(target))
    document = {
        "config": str(target),
        "trace": trace.name,
        "source_sha256": trace.sha256,
        "requests": made.settings["request_count"],
        "groups": len(set(made.settings["prefix"].get("assignment", ["all"]))),
        "trace_hit_ratio": None
        if trace.block_size is None
        else made.trace_hit_tokens / made.input_tokens,
        "designed_hit_ratio": planned.report["designed_hit_ratio"],
        "fidelity": _fidelity(trace, requests, planned),
        "not_kept": list(made.not_kept),
    }
    output.show(document, lambda console: _print_synthesis(document, console))


def _fidelity(
    trace: LoadedTrace, requests: int | None, planned: PlanResult
) -> dict[str, Any] | None:
    """How near the plan is to the trace; None for a trace without blocks."""
    from prefixbench.exchange.fidelity import compare_with_plan
    from prefixbench.workload.rows import request_plans

    if trace.block_size is None:
        return None
    plans = request_plans(planned.plan)
    return compare_with_plan(trace.requests[:requests], plans, trace.block_size).to_json()


def _write_settings(made: Synthesis, trace: LoadedTrace, target: Path) -> None:
    import yaml

    from prefixbench.config.load import ROOT_KEY

    settings = {"dataset_id": target.stem, **made.settings}
    text = yaml.safe_dump({ROOT_KEY: settings}, default_flow_style=None, sort_keys=False, width=100)
    about = [
        f"made of the trace {trace.name} (SHA-256 {trace.sha256})",
        "not kept:",
        *(f"- {sentence}" for sentence in made.not_kept),
    ]
    target.write_text("".join(f"# {line}\n" for line in about) + text, "utf-8")


def _print_synthesis(document: dict[str, Any], console: Console) -> None:
    from rich.markup import escape

    from prefixbench.core.wording import plural
    from prefixbench.explain.wording import percent

    console.print(
        f"[bold]{escape(document['config'])}[/bold]  {plural(document['requests'], 'request')}"
        f" in {plural(document['groups'], 'group')}:"
        f" {percent(document['trace_hit_ratio'], absent='unknown')} in the trace,"
        f" {percent(document['designed_hit_ratio'])} designed"
    )
    if document["fidelity"] is not None:
        _print_fidelity(document["fidelity"], console)
    for sentence in document["not_kept"]:
        console.print(f"not kept: {escape(sentence)}")


def _print_fidelity(fidelity: dict[str, Any], console: Console) -> None:
    from prefixbench.cli.tables import plain_table
    from prefixbench.explain.wording import count, percent

    console.print(
        f"{percent(fidelity['equal_requests'])} of the requests find what they found in the trace;"
        f" {percent(fidelity['moved_hits'], absent='none')} of the hits are another's"
    )
    table = plain_table("LRU cache of blocks", "trace", "planned")
    for row in fidelity["curve"]:
        table.add_row(count(row["capacity_blocks"]), percent(row["trace"]), percent(row["planned"]))
    console.print(table)


@command.command("convert", cls=Verb, stage=Stage.SIMULATE)
@click.argument("file", type=click.Path(path_type=Path))
@trace_source_options
@click.option(
    "--to",
    "written",
    type=click.Choice(_WRITABLE),
    default=_WRITABLE[0],
    show_default=True,
    help="Form of what is written.",
)
@_output_options
def convert_command(
    output: Output,
    file: Path,
    target: Path,
    overwrite: bool,
    written: str,
    **source: Any,
) -> None:
    """Logs -> an anonymised trace: lengths, arrivals and block numbers, no content."""
    if not overwrite:
        refuse_existing(target)
    trace = read_source(file, **source)
    count = _write_trace(trace, written, target)
    document = {
        "trace": str(target),
        "format": written,
        "source": trace.name,
        "source_sha256": trace.sha256,
        "requests": count,
        "block_size": trace.block_size,
        "notes": list(trace.notes),
    }
    output.show(document, lambda console: _print_conversion(document, console))


def _write_trace(trace: LoadedTrace, written: str, target: Path) -> int:
    from prefixbench.exchange import mooncake, runs
    from prefixbench.exchange.prefix_ids import with_prefix_ids
    from prefixbench.simulator.trace import BlockIds

    with target.open("wb") as file:
        if written == "runs":
            return runs.write_trace(trace.header, trace.requests, file)
        by_content = trace.ids is BlockIds.CONTENT
        requests = with_prefix_ids(trace.requests) if by_content else trace.requests
        return mooncake.write_requests(requests, trace.block_size, file)


def _print_conversion(document: dict[str, Any], console: Console) -> None:
    from rich.markup import escape

    from prefixbench.core.wording import plural

    size = document["block_size"]
    blocks = "no blocks" if size is None else f"blocks of {size} tokens"
    console.print(
        f"[bold]{escape(document['trace'])}[/bold]  {plural(document['requests'], 'request')},"
        f" {blocks}, {document['format']}"
    )
    for note in document["notes"]:
        console.print(f"note {escape(note)}")
