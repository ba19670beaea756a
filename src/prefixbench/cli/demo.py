"""`prefixbench demo`: the whole flow on built-in parts, in seconds."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from prefixbench.server.options import ServeOptions

BLOCK_SIZE = 16

#: Three customers share one server from a cold start; 60 % of all tokens shall come from the cache.
SETTINGS: dict[str, Any] = {
    "dataset_id": "demo",
    "request_count": 60,
    "block_size": BLOCK_SIZE,
    "input_length": {
        "mode": "truncated_normal",
        "min": 256,
        "max": 2048,
        "mean": 1000,
        "std": 400,
    },
    "output_length": 8,
    "target": {"hit_ratio": 0.6, "semantics": "order_aware_global"},
    "prefix": {
        "groups": [
            {"id": "customer_a", "request_weight": 5},
            {"id": "customer_b", "request_weight": 3},
            {"id": "customer_c", "request_weight": 2},
        ]
    },
    "execution": {"mode": "progressive_prefix_fill"},
}


@click.command(cls=Verb, stage=Stage.RUN)
@click.option(
    "--output",
    "folder",
    type=click.Path(path_type=Path),
    default="demo-output",
    show_default=True,
    help="Folder of data set and run; an earlier demo in it is replaced.",
)
def command(output: Output, folder: Path) -> None:
    """Generate, serve, run and report with built-in parts; no download, no GPU."""
    from prefixbench.config.load import parse_config
    from prefixbench.explain.report import write_report
    from prefixbench.pipeline import generate_prefix_cache_dataset
    from prefixbench.run.options import RunOptions
    from prefixbench.run.runner import run_dataset
    from prefixbench.server.options import ServeOptions

    dataset, run_dir = folder / "dataset", folder / "run"
    output.say(f"1/4 generate  {SETTINGS['request_count']} requests in {dataset}")
    generate_prefix_cache_dataset(
        parse_config(SETTINGS), output_dir=dataset, overwrite=True, verify="full"
    )
    output.say("2/4 serve     the embedded server, on a free port of this machine")
    with background_server(ServeOptions(block_size=BLOCK_SIZE)) as url:
        output.say(f"3/4 run       one request at a time, results in {run_dir}")
        run_dataset(
            RunOptions(
                dataset=dataset,
                urls=(url,),
                output=run_dir,
                overwrite=True,
                command=tuple(sys.argv),
            )
        )
    output.say("4/4 report    asked, planned, measured")
    report = write_report(run_dir)
    output.show(
        {"dataset": str(dataset), "run_dir": str(run_dir), **report},
        lambda console: _print_end(report, run_dir, console),
    )


def _print_end(report: dict[str, Any], run_dir: Path, console: Console) -> None:
    from prefixbench.cli.report import print_report

    console.print()
    print_report(report, run_dir, console)


@contextmanager
def background_server(options: ServeOptions) -> Iterator[str]:
    """The embedded server on a thread of its own; yields its base URL, and ends with the block."""
    started: Future[tuple[str, asyncio.AbstractEventLoop, asyncio.Event]] = Future()
    thread = Thread(target=lambda: asyncio.run(_serve(options, started)), daemon=True)
    thread.start()
    url, loop, ended = started.result()
    try:
        yield url
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()


async def _serve(options: ServeOptions, started: Future[Any]) -> None:
    from prefixbench.server.app import running_server

    ended = asyncio.Event()
    try:
        async with running_server(options) as url:
            started.set_result((url, asyncio.get_running_loop(), ended))
            await ended.wait()
    except Exception as error:
        if started.done():
            raise
        started.set_exception(error)
