"""`prefixbench report`: a run directory becomes a report."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from prefixbench.cli.output import Output
from prefixbench.cli.verb import Verb
from prefixbench.core.errors import Stage

if TYPE_CHECKING:
    from rich.console import Console


@click.command(cls=Verb, stage=Stage.REPORT)
@click.option(
    "--run-dir", type=click.Path(path_type=Path), required=True, help="Directory of a finished run."
)
def command(output: Output, run_dir: Path) -> None:
    """Explain a finished run: JSON and one self-contained HTML page."""
    from prefixbench.explain.report import write_report

    report = write_report(run_dir)
    output.show(report, lambda console: print_report(report, run_dir, console))


def print_report(report: Mapping[str, Any], run_dir: Path, console: Console) -> None:
    """Print the headline, and where page and document are."""
    from prefixbench.explain.console import print_headline
    from prefixbench.explain.report import REPORT_HTML, REPORT_JSON

    print_headline(report, console)
    for name in (REPORT_HTML, REPORT_JSON):
        console.print(run_dir / name, soft_wrap=True)
