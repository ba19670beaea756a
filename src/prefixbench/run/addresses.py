"""Where a server's routes are, given a base address or a full endpoint."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from prefixbench.config.execution import is_address
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.run.redact import endpoint_labels

_COMPLETIONS = "/completions"
_CHAT = "/chat/completions"
_VERSION = "/v1"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """One instance: where requests go, where models are listed, and the server's root."""

    url: str
    requests_url: str
    models_url: str
    root_url: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Addresses:
    """All addresses of a run; `labels` are what may be written down of each."""

    requests: tuple[Address, ...]
    metrics_urls: tuple[str, ...]
    labels: Mapping[str, str]


def resolve_addresses(
    urls: Sequence[str], metrics_urls: Sequence[str], *, is_chat: bool, instances: int
) -> Addresses:
    """Find the routes behind each address; without metrics addresses, the origins' /metrics."""
    if not urls:
        raise _refused("no server address is given", "--url", "add --url http://HOST:PORT")
    if len(urls) > 1 and len(urls) != instances:
        raise _refused(
            f"{len(urls)} addresses are given and the data set is planned for {instances}",
            "--url",
            "give one --url for each planned instance, or the one of a router; "
            "or generate with routing.instances",
        )
    requests = tuple(resolve_address(url, is_chat=is_chat) for url in urls)
    pages = tuple(metrics_urls) or tuple(origin_of(url) + "/metrics" for url in urls)
    for page in pages:
        _check(page, "--metrics-url")
    pages = tuple(dict.fromkeys(pages))
    return Addresses(
        requests=requests,
        metrics_urls=pages,
        labels=endpoint_labels(urls) | endpoint_labels(pages),
    )


def resolve_address(url: str, *, is_chat: bool) -> Address:
    """The routes of one server; a query stays with every request.

    >>> resolve_address("http://h:1", is_chat=False).requests_url
    'http://h:1/v1/completions'
    >>> resolve_address("http://h:1/v1/chat/completions", is_chat=True).models_url
    'http://h:1/v1/models'
    """
    _check(url, "--url")
    parts = urlsplit(url)
    base = parts.path.rstrip("/")
    wanted = _CHAT if is_chat else _COMPLETIONS
    if base.endswith(_COMPLETIONS):
        if base.endswith(_CHAT) != is_chat:
            raise _refused(
                "the data set holds "
                + (
                    "chat messages, the address takes texts"
                    if is_chat
                    else "texts, the address takes chat messages"
                ),
                "--url",
                "give the base address of the server, or the endpoint that fits",
            )
        base = base.removesuffix(wanted)
    elif not base.endswith(_VERSION):
        base += _VERSION
    place = parts._replace(fragment="")
    root = place._replace(path=base.removesuffix(_VERSION), query="")
    return Address(
        url=url,
        requests_url=place._replace(path=base + wanted).geturl(),
        models_url=place._replace(path=base + "/models").geturl(),
        root_url=root.geturl(),
    )


def origin_of(url: str) -> str:
    """Scheme, host and port, in whatever way they are written."""
    return urlsplit(url)._replace(path="", query="", fragment="").geturl()


def _check(url: str, option: str) -> None:
    if not is_address(url):
        raise _refused(
            "an address cannot be used", option, "write http://HOST:PORT or https://HOST/PATH"
        )


def _refused(message: str, option: str, hint: str) -> ConfigError:
    return ConfigError(message, context=ErrorContext(stage=Stage.RUN, field=option), hint=hint)
