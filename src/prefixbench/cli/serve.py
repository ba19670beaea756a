"""`prefixbench serve`: the embedded server."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage


@click.command(cls=Verb, stage=Stage.RUN)
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    show_default=True,
    help="0: any free one.",
)
@click.option("--profile", help="Engine whose rules hold (`simulate --profile list`).")
@click.option("--dialect", help="Whose metric names: vllm, sglang, mindie or llamacpp.")
@click.option("--tokenizer", help="builtin, a file that defines a tokenizer, or a folder with one.")
@click.option("--model", help="Name under which the model is served.")
@click.option(
    "--lora-model",
    "lora_models",
    multiple=True,
    help="Further model name, a part of the cache key as an adapter's is; may repeat.",
)
@click.option(
    "--chat-template", type=click.Path(path_type=Path), help="Jinja file of the chat template."
)
@click.option("--max-model-len", type=int, help="Longest request, in tokens.")
@click.option("--block-size", type=int, help="Tokens in a cache block; the profile's by default.")
@click.option("--capacity-blocks", type=int, help="Usable blocks of each rank.")
@click.option("--dp-size", type=int, help="DP ranks, each with a cache.")
@click.option(
    "--time-scale", type=float, help="Engine seconds that pass in a real one; 0: no waiting."
)
@click.option(
    "--cost",
    "cost_file",
    type=click.Path(path_type=Path),
    help="Prices that `fit` has written: how long steps take.",
)
@click.option("--fault", "faults", multiple=True, metavar="NAME[=VALUE]", help="Fail on purpose.")
def command(output: Output, cost_file: Path | None, **given: Any) -> None:
    """Serve OpenAI routes and /metrics over a simulated engine, until interrupted."""
    from prefixbench.cli.played_times import cost_of
    from prefixbench.server.app import serve
    from prefixbench.server.options import ServeOptions

    given["cost"] = cost_of(cost_file)
    options = ServeOptions(**{name: value for name, value in given.items() if value is not None})
    serve(options, lambda url: _announce(url, output))


def _announce(url: str, output: Output) -> None:
    """Even with --quiet: with --port 0 nobody else knows the address."""
    if output.as_json:
        output.show_json({"url": url})
    else:
        click.echo(f"listening on {url}")
    sys.stdout.flush()
