"""The options that say which trace is meant, and how they become one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from prefixbench.exchange.trace import TraceFormat

if TYPE_CHECKING:
    from prefixbench.exchange.load import LoadedTrace

_Function = TypeVar("_Function", bound=Callable[..., Any])

_OPTIONS = (
    click.option(
        "--format",
        "form",
        type=click.Choice([form.value for form in TraceFormat]),
        help="Form of the trace.",
    ),
    click.option(
        "--block-size",
        type=click.IntRange(1),
        help="Tokens in a block; what the file or its format says by default.",
    ),
    click.option(
        "--tokenizer",
        help="For logs of texts: builtin, a tokenizer.json, or a folder with one.",
    ),
    click.option(
        "--sub-agents", is_flag=True, help="With weka: the requests of sub-agents as well."
    ),
)


def trace_source_options(function: _Function) -> _Function:
    """Add the options of `_OPTIONS`, in their order."""
    for option in reversed(_OPTIONS):
        function = option(function)
    return function


def read_source(
    file: Path,
    *,
    form: str | None,
    block_size: int | None,
    tokenizer: str | None,
    sub_agents: bool,
) -> LoadedTrace:
    """The trace that the options mean."""
    from prefixbench.exchange.load import load_trace
    from prefixbench.exchange.trace import ReadOptions

    if form is None:
        raise click.UsageError(f"a trace needs --format: {', '.join(TraceFormat)}")
    options = ReadOptions(block_size=block_size, tokenizer=tokenizer, sub_agents=sub_agents)
    return load_trace(file, TraceFormat(form), options)
