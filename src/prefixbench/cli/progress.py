"""A progress bar on stderr, where somebody watches it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from prefixbench.cli.output import Output
from prefixbench.explain.wording import readable


@contextmanager
def phase_progress(output: Output) -> Iterator[Callable[[str, int, int], None] | None]:
    """A function that is told (phase, done, planned); None where nobody watches."""
    if not output.shows_progress:
        yield None
        return
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, int] = {}

        def show(phase: str, done: int, planned: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(readable(phase), total=planned)
            bars.update(tasks[phase], completed=done)  # type: ignore[arg-type]

        yield show
