"""`prefixbench run`: a data set is sent to a server and measured."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import INTERRUPTED, Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from prefixbench.run.journal import RunResult


def _header(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> Any:
    """`K: V` as a pair; a value is never repeated in the message."""
    pairs = []
    for text in given:
        name, colon, value = text.partition(":")
        if not colon or not name.strip():
            raise click.BadParameter("a header is given as 'NAME: VALUE'")
        pairs.append((name.strip(), value.strip()))
    return tuple(pairs)


@click.command(cls=Verb, stage=Stage.RUN)
@click.option(
    "--dataset", type=click.Path(path_type=Path), required=True, help="Folder of the data set."
)
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Configuration whose execution.urls and metrics_urls hold; a data set has no addresses.",
)
@click.option("--url", "urls", multiple=True, help="Base address or endpoint; may repeat.")
@click.option(
    "--metrics-url", "metrics_urls", multiple=True, help="Address of metrics; origin + /metrics."
)
@click.option("--model", help="Model to ask for; the first of /v1/models by default.")
@click.option("--tokenizer", help="The data set's tokenizer, where it holds recipes.")
@click.option("--corpus", help="The data set's corpus, where it holds recipes.")
@click.option("--adapter", help="Whose metric names to read; found out by default.")
@click.option("--mode", help="cold, warmup, hot, compare or progressive_prefix_fill.")
@click.option("--concurrency", type=int, help="Requests in flight at most.")
@click.option("--request-rate", type=float, help="Requests sent a second (open loop).")
@click.option("--rounds", type=int, default=1, show_default=True, help="Times to measure.")
@click.option("--warmup-rounds", type=int, help="Rounds of warm-up requests.")
@click.option("--isolation", help="salt, reset, content, restart, none or auto.")
@click.option("--timeout", "timeout_s", type=float, help="Seconds until a request is given up.")
@click.option(
    "--startup-timeout",
    "startup_timeout_s",
    type=click.FloatRange(min=0),
    help="Seconds to wait for a server that is still starting; 10 by default.",
)
@click.option(
    "--output",
    "run_dir",
    type=click.Path(path_type=Path),
    help="Run directory; the next free outputs/run_NNN by default.",
)
@click.option("--api-key-env", help="Environment variable that holds the server's key.")
@click.option(
    "--header",
    "headers",
    multiple=True,
    callback=_header,
    metavar="'K: V'",
    help="Header of every request; never written down.",
)
@click.option("--proxy", help="Proxy for requests; environment variables are not read.")
@click.option(
    "--server-profile", type=click.Path(path_type=Path), help="What is known of the server."
)
@click.option("--max-failure-rate", type=float, help="Failed requests above it end with exit 6.")
@click.option("--metrics-optional", is_flag=True, help="Exit 0 where metrics cannot be read.")
@click.option(
    "--calibrate",
    is_flag=True,
    help="Measure first what this client adds to a time to first token; takes about a second.",
)
@click.option("--resume", is_flag=True, help="Continue an interrupted run.")
@click.option("--overwrite", is_flag=True, help="Replace what the run directory holds.")
def command(output: Output, run_dir: Path | None, config: Path | None, **given: Any) -> int:
    """Send a data set in its planned order, and measure."""
    from prefixbench.cli.progress import phase_progress
    from prefixbench.run.journal import RunStatus
    from prefixbench.run.options import RunOptions
    from prefixbench.run.runner import run_dataset

    chosen = {} if config is None else _addresses(config)
    chosen |= {name: value for name, value in given.items() if value not in (None, ())}
    options = RunOptions(output=run_dir, command=tuple(sys.argv), **chosen)
    with phase_progress(output) as progress:
        result = run_dataset(options, progress)
    document = run_document(result)
    output.show(document, lambda console: print_run(document, console))
    return INTERRUPTED if result.status is RunStatus.INTERRUPTED else 0


def _addresses(config: Path) -> dict[str, Any]:
    from prefixbench.config.load import load_config

    execution = load_config(config).execution
    return {"urls": execution.urls, "metrics_urls": execution.metrics_urls}


def run_document(result: RunResult) -> dict[str, Any]:
    """Where a run stands, and what each phase hit."""
    import orjson

    from prefixbench.run.directory import CACHE

    measured = orjson.loads((result.directory / "runtime" / CACHE).read_bytes())
    return {
        "run_dir": str(result.directory),
        "status": result.status,
        "dataset_id": measured["dataset_id"],
        "phases": measured["phases"],
    }


def print_run(document: dict[str, Any], console: Console) -> None:
    """Print designed and measured ratio of each phase, and where the run stands."""
    from rich.markup import escape

    from prefixbench.explain.wording import measured, percent, points, readable

    console.print(f"[bold]{escape(document['dataset_id'])}[/bold]  run {document['status']}")
    for phase in document["phases"]:
        deviation = phase["runtime_deviation"]
        console.print(
            f"  {readable(phase['phase'])}: {percent(phase['designed_hit_ratio'])} designed,"
            f" {measured(phase['hit_rate'])}"
            + ("" if deviation is None else f" ({points(deviation)})")
        )
    console.print(document["run_dir"], soft_wrap=True)
