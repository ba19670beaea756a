"""`prefixbench fit`: the cost model of a server, from requests that were measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output, refuse_existing
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console

    from prefixbench.simulator.cost import CostModel
    from prefixbench.simulator.engine import Engine

#: Prices and errors as the page names them.
_PRICES = {
    "step_ns": "a step",
    "prefill_token_ns": "a prompt token",
    "context_token_ns": "a token of context read",
    "decode_sequence_ns": "a sequence that decodes",
}
_TIMES = {"ttft": "time to first token", "e2e": "whole time"}


@click.command(cls=Verb, stage=Stage.SIMULATE)
@click.argument("source", type=click.Path(path_type=Path))
@click.option(
    "--output",
    "target",
    type=click.Path(path_type=Path),
    required=True,
    help="File to write, for `simulate --cost`.",
)
@click.option("--overwrite", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--profile", default="vllm-0.33", show_default=True, help="Engine whose steps are played."
)
@click.option("--capacity-blocks", type=click.IntRange(1), help="Blocks of each cache.")
@click.option("--block-size", type=click.IntRange(1), help="Tokens in a block.")
@click.option("--max-num-batched-tokens", type=click.IntRange(1), help="Token budget of a step.")
@click.option("--max-num-seqs", type=click.IntRange(1), help="Requests that run at once.")
@click.option(
    "--dp-size",
    type=click.IntRange(1),
    default=1,
    show_default=True,
    help="Engines, served by the least loaded rule.",
)
def command(
    output: Output, source: Path, target: Path, overwrite: bool, dp_size: int, **engine: Any
) -> None:
    """A run directory, or a JSONL or CSV of measured requests -> prices of steps and tokens."""
    import orjson

    if not overwrite:
        refuse_existing(target)
    document = fit_document(source, dp_size=dp_size, **engine)
    target.write_bytes(orjson.dumps(document, option=orjson.OPT_INDENT_2))
    output.show(document, lambda console: _print_fit(target, document, console))


def fit_document(
    source: Path, *, profile: str, block_size: int | None, dp_size: int, **limits: Any
) -> dict[str, Any]:
    """What is written: prices (null: unknown), why, and the errors of the run played with them."""
    from dataclasses import asdict

    from prefixbench.exchange.measured import read_measured
    from prefixbench.simulator.cost_file import cost_document
    from prefixbench.simulator.cost_run import fit_run
    from prefixbench.simulator.engine import Engine

    def make_engine(cost: CostModel) -> Engine:
        return Engine(profile, block_size=block_size, cost=cost, **limits)

    measured = read_measured(source)
    found = fit_run(measured.requests, make_engine, dp_size)
    return cost_document(
        found.model,
        found.unknown,
        source=source.name,
        requests=len(measured.requests),
        left_out=measured.left_out,
        profile=profile,
        dp_size=dp_size,
        relative_errors={name: asdict(error) for name, error in found.errors.items()},
    )


def _print_fit(target: Path, document: dict[str, Any], console: Console) -> None:
    from rich.markup import escape

    from prefixbench.cli.tables import plain_table
    from prefixbench.core.wording import plural
    from prefixbench.explain.wording import percent

    left_out = document["left_out"] and f", {document['left_out']:,} left out"
    console.print(
        f"[bold]{escape(str(target))}[/bold]  {plural(document['requests'], 'request')} of"
        f" {escape(document['source'])}{left_out or ''}, played by {document['profile']}"
    )
    prices = plain_table("takes", "time", "")
    for name, thing in _PRICES.items():
        price = document[name]
        reason = document["unknown"].get(name, "")
        prices.add_row(thing, "unknown" if price is None else duration(price), reason)
    console.print(prices)
    console.print()
    errors = plain_table("played against measured, off by", "median", "p95")
    for name, thing in _TIMES.items():
        error = document["relative_errors"][name]
        errors.add_row(thing, percent(error["median"]), percent(error["p95"]))
    console.print(errors)


def duration(nanoseconds: float) -> str:
    """A time in the unit a reader would choose.

    >>> duration(14_578_002), duration(38_983), duration(15.43)
    ('14.58 ms', '38.98 µs', '15.43 ns')
    """
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.2f} {unit}"
    return f"{nanoseconds:.2f} ns"
