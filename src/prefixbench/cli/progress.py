"""Progress bars on stderr, where somebody watches them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import TYPE_CHECKING

from prefixbench.cli.output import Output
from prefixbench.core.progress import Listener, telling
from prefixbench.explain.wording import readable

if TYPE_CHECKING:
    from rich.progress import Progress


@contextmanager
def phase_progress(output: Output) -> Iterator[Callable[[str, int, int], None] | None]:
    """A function that is told (phase, done, planned); None where nobody watches."""
    if not output.shows_progress:
        yield None
        return
    with _bars() as bars:
        tasks: dict[str, int] = {}

        def show(phase: str, done: int, planned: int) -> None:
            if phase not in tasks:
                tasks[phase] = bars.add_task(readable(phase), total=planned)
            bars.update(tasks[phase], completed=done)  # type: ignore[arg-type]

        yield show


@contextmanager
def planning_progress(output: Output) -> Iterator[None]:
    """Show how far each candidate plan is simulated; nothing where nobody watches."""
    if not output.shows_progress:
        yield
        return
    with _bars() as bars, telling(_one_bar(bars)):
        yield


def _one_bar(bars: Progress) -> Listener:
    """A listener with one bar, which begins again with every candidate."""
    task = bars.add_task("", visible=False)
    candidates = count(1)

    def show(work: str, done: int, planned: int) -> None:
        if done == 0:
            bars.reset(task, description=f"{readable(work)}, candidate {next(candidates)}")
        bars.update(task, completed=done, total=planned, visible=True)

    return show


def _bars() -> Progress:
    from rich.console import Console
    from rich.progress import Progress

    return Progress(console=Console(stderr=True), transient=True)
