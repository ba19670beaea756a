"""What is asked of a server before anything is sent: is it there, what does it serve and run."""

from __future__ import annotations

import asyncio
import errno
import logging
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import aiohttp
import orjson

from prefixbench.core.clock import Clock
from prefixbench.core.errors import EndpointError, ErrorContext, Stage
from prefixbench.core.log import event
from prefixbench.run.addresses import Address
from prefixbench.run.answer import Status
from prefixbench.run.bodies import BodyBuilder
from prefixbench.run.client import Client, Page
from prefixbench.run.counters import engine_configs
from prefixbench.run.families import Adapter
from prefixbench.run.metrics_reader import MetricsReader
from prefixbench.run.snapshot import MetricsSnapshot

log = logging.getLogger(__name__)

_MODELS_TIMEOUT_S = 5.0
_VERSION_TIMEOUT_S = 2.0
_BETWEEN_TRIES_NS = 100_000_000

#: What a server answers while it loads a model (llama.cpp).
_LOADING = 503


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerFacts:
    """What the server says of itself, and a server profile where it is silent; None: unknown."""

    engine: str | None = None
    version: str | None = None
    block_size: int | None = None
    hit_granularity: int | None = None
    num_blocks: int | None = None
    enable_prefix_caching: bool | None = None
    hash_algo: str | None = None

    def or_else(self, profile: Mapping[str, Any]) -> ServerFacts:
        """With the profile's values for what is unknown."""
        known = {name: value for name, value in asdict(self).items() if value is not None}
        names = asdict(self).keys() & profile.keys()
        return replace(self, **{name: profile[name] for name in names} | known)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a server may still be starting: refuse connections, or say that it loads."""

    clock: Clock
    seconds: float


async def find_model(
    client: Client, addresses: Sequence[Address], asked: str | None, patience: Patience
) -> str:
    """The model to ask for: the one named, else the first that is served.

    Raises EndpointError where a server cannot be reached or does not serve it.
    """
    served = await asyncio.gather(
        *(_served_models(client, address, patience) for address in addresses)
    )
    model = asked or next((names[0] for names in served if names), None)
    if model is None:
        raise _unusable("the server does not list its models", "--model", "name one with --model")
    for names in served:
        if names and model not in names:
            raise _unusable(
                f"the server does not serve the model {model!r}",
                "--model",
                f"it serves {', '.join(names)}",
            )
    return model


async def server_facts(
    client: Client, address: Address, metrics: MetricsReader, snapshot: MetricsSnapshot
) -> ServerFacts:
    """Engine, version and cache configuration, as far as the first instance tells."""
    version = await _version(client, address)
    page = next((scrape.page for scrape in snapshot.scrapes.values() if scrape.page), None)
    adapter: Adapter | None = metrics.adapter_of(page) if page else None
    if page is None or adapter is None:
        return ServerFacts(version=version)
    config = next(iter(engine_configs(page, adapter).values()), None)
    return ServerFacts(
        engine=adapter.name, version=version, **(asdict(config) if config is not None else {})
    )


async def check_token_ids(
    client: Client, addresses: Sequence[Address], bodies: BodyBuilder, headers: Mapping[str, str]
) -> None:
    """Raise EndpointError where a server does not tell the ids of its answers.

    One short request an address, to be sent once the cache is isolated. A server that fails by
    itself shows nothing; the requests to come will.
    """
    probe = bodies.answer_probe(f"Probe {secrets.token_hex(16)}")
    for address in addresses:
        exchange = await client.complete(address.requests_url, probe, headers=headers)
        refused = exchange.status is Status.HTTP_ERROR and (exchange.http_status or 0) < 500
        if refused or (exchange.status is Status.OK and not exchange.token_ids):
            raise EndpointError(
                "the server does not tell the token ids of its answers (return_token_ids), which"
                " later turns of the sessions are to go on from",
                context=ErrorContext(stage=Stage.RUN, field="sessions.answers"),
                hint="generate the data set with prompt_format: text, or run a server that tells"
                " them (vLLM from 0.10.2 on)",
            )


async def _served_models(client: Client, address: Address, patience: Patience) -> list[str]:
    page = await _models_page(client, address, patience)
    if page.status in (401, 403):
        raise _unusable(
            f"the server refuses the key (status {page.status})",
            "--api-key-env",
            "name the environment variable that holds the key",
        )
    return _model_names(page)


async def _models_page(client: Client, address: Address, patience: Patience) -> Page:
    clock = patience.clock
    deadline_ns = clock.now_ns() + round(patience.seconds * 1e9)
    page, is_told = None, False
    while page is None:
        page = await _look(client, address, may_start=clock.now_ns() < deadline_ns)
        if page is None:
            if not is_told:
                event(log, "server.starting", level=logging.WARNING, wait_s=patience.seconds)
                is_told = True
            await clock.sleep_ns(_BETWEEN_TRIES_NS)
    return page


async def _look(client: Client, address: Address, *, may_start: bool) -> Page | None:
    """The list of models; None where the server may still be starting."""
    try:
        page = await client.get(address.models_url, timeout_s=_MODELS_TIMEOUT_S)
    except (TimeoutError, OSError, aiohttp.ClientError) as error:
        if may_start and isinstance(error, OSError) and error.errno == errno.ECONNREFUSED:
            return None
        raise _unusable(
            f"the server cannot be reached ({type(error).__name__})",
            "--url",
            "check the address, and that the server is up; --startup-timeout waits for it",
        ) from error
    return None if may_start and page.status == _LOADING else page


def _model_names(page: Page) -> list[str]:
    try:
        return [str(card["id"]) for card in orjson.loads(page.text)["data"]]
    except (ValueError, KeyError, TypeError):
        return []  # a server without this route: the model must be named


async def _version(client: Client, address: Address) -> str | None:
    try:
        page = await client.get(address.root_url + "/version", timeout_s=_VERSION_TIMEOUT_S)
        version = orjson.loads(page.text).get("version")
    except (TimeoutError, OSError, aiohttp.ClientError, ValueError, AttributeError):
        return None
    return str(version) if version and page.status == 200 else None


def _unusable(message: str, option: str, hint: str) -> EndpointError:
    return EndpointError(message, context=ErrorContext(stage=Stage.RUN, field=option), hint=hint)
