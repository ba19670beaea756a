"""Starts the embedded server: as an aiohttp application, inside a test, or as a process."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from aiohttp import web

from prefixbench.core.clock import Clock, RealClock
from prefixbench.core.errors import EndpointError, ErrorContext, Stage
from prefixbench.core.log import event
from prefixbench.server.backend import Backend
from prefixbench.server.generation import GenerationRoutes
from prefixbench.server.options import ServeOptions
from prefixbench.server.routes import ServiceRoutes, errors_as_json

log = logging.getLogger(__name__)

#: Bodies up to this many bytes are read; prompts as token ids are long.
LARGEST_BODY = 256 * 2**20

#: How long requests in flight may go on when the server stops.
_STOP_AFTER_S = 0.2


def create_app(options: ServeOptions, clock: Clock | None = None) -> web.Application:
    """The routes over a fresh backend, which lives and ends with the application.

    Raises ConfigError or TokenizerError for options that cannot be served.
    """
    backend = Backend(options, clock or RealClock())
    app = web.Application(client_max_size=LARGEST_BODY, middlewares=[errors_as_json])
    app.add_routes(GenerationRoutes(backend).table())
    app.add_routes(ServiceRoutes(backend).table())

    async def live_with_app(_: web.Application) -> AsyncIterator[None]:
        backend.start()
        yield
        await backend.close()

    app.cleanup_ctx.append(live_with_app)
    return app


@asynccontextmanager
async def running_server(options: ServeOptions, clock: Clock | None = None) -> AsyncIterator[str]:
    """A server on the caller's event loop; yields its base URL, without a slash at the end."""
    runner = web.AppRunner(
        create_app(options, clock),
        handler_cancellation=True,  # a client that leaves ends its handler
        access_log=None,
        logger=_http_log(),
        shutdown_timeout=_STOP_AFTER_S,
    )
    await runner.setup()
    try:
        await _listen(runner, options)
        yield _url(runner)
    finally:
        await runner.cleanup()


async def _listen(runner: web.AppRunner, options: ServeOptions) -> None:
    try:
        await web.TCPSite(runner, options.host, options.port).start()
    except OSError as error:
        raise EndpointError(
            f"cannot listen on port {options.port}: {error.strerror}",
            context=ErrorContext(stage=Stage.RUN, field="--port"),
            hint="--port 0 takes any free port",
        ) from error


def _url(runner: web.AppRunner) -> str:
    host, port = runner.addresses[0][:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _http_log() -> logging.Logger:
    """For aiohttp's own messages, which may quote a request; ours are events without content."""
    http_log = logging.getLogger(f"{__name__}.http")
    http_log.disabled = True
    return http_log


def serve(options: ServeOptions, announce: Callable[[str], None] | None = None) -> None:
    """Serve until SIGINT or SIGTERM; `announce` is told the base URL as soon as it answers.

    Without `announce` one line, `listening on URL`, goes to stdout.
    """
    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(_serve_until_stopped(options, announce or _announce_on_stdout))


async def _serve_until_stopped(options: ServeOptions, announce: Callable[[str], None]) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        with suppress(NotImplementedError):  # Windows: KeyboardInterrupt ends the runner
            loop.add_signal_handler(number, stopped.set)
    async with running_server(options) as url:
        event(log, "serve.ready", profile=options.profile, ranks=options.dp_size)
        announce(url)
        await stopped.wait()
    event(log, "serve.stopped")


def _announce_on_stdout(url: str) -> None:
    sys.stdout.write(f"listening on {url}\n")
    sys.stdout.flush()


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop where it is installed (it is not on Windows)."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
