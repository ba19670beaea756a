"""`prefixbench validate`: a data set is proved again from its files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console


@click.command(cls=Verb, stage=Stage.SIMULATE)
@click.option(
    "--dataset", type=click.Path(path_type=Path), required=True, help="Folder of the data set."
)
@click.option("--tokenizer", help="The data set's tokenizer, where its name alone is not enough.")
@click.option("--corpus", help="The data set's corpus, where it holds recipes of another one.")
@click.option(
    "--verify",
    type=click.Choice(["certificate", "sample", "full"]),
    help="Prompts that are encoded again; all up to 2,000, else a sample.",
)
def command(
    output: Output,
    dataset: Path,
    tokenizer: str | None,
    corpus: str | None,
    verify: str | None,
) -> None:
    """Prove a data set again from its files; nothing on disk is changed."""
    from prefixbench.pipeline import validate_dataset

    proof = validate_dataset(dataset, tokenizer=tokenizer, corpus=corpus, verify=verify).to_json()
    output.show(proof, lambda console: _print_proof(proof, console))


def _print_proof(proof: dict[str, Any], console: Console) -> None:
    from rich.markup import escape

    console.print(f"[bold]{escape(proof['dataset_id'])}[/bold]  [green]proved[/green]")
    for check in proof["checks"]:
        console.print(f"  {check['status']}  {escape(check['name'])}: {escape(check['detail'])}")
