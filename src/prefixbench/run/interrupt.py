"""SIGINT and SIGTERM end a run with what is there instead of killing it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """Set `stop` on the first signal; a second one acts as it always does.

    Outside the main thread, and where the loop cannot handle signals, nothing is changed.
    """
    loop = asyncio.get_running_loop()
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def release() -> None:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)

    def on_signal() -> None:
        stop.set()
        release()

    try:
        for number in _SIGNALS:
            loop.add_signal_handler(number, on_signal)
    except NotImplementedError:  # Windows: KeyboardInterrupt ends the run
        yield
        return
    try:
        yield
    finally:
        release()
