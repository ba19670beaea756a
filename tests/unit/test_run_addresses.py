"""Where a server's routes are."""

from __future__ import annotations

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.run.addresses import resolve_address, resolve_addresses


@pytest.mark.parametrize(
    "url",
    ["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/", "http://h:1/v1/completions"],
)
def test_a_base_address_and_a_full_endpoint_mean_the_same(url: str) -> None:
    address = resolve_address(url, is_chat=False)
    assert address.requests_url == "http://h:1/v1/completions"
    assert address.models_url == "http://h:1/v1/models"
    assert address.root_url == "http://h:1"


def test_a_chat_data_set_goes_to_the_chat_route() -> None:
    assert resolve_address("http://h", is_chat=True).requests_url.endswith("/v1/chat/completions")
    given = resolve_address("https://h/p/v1/chat/completions", is_chat=True)
    assert given.models_url == "https://h/p/v1/models"


@pytest.mark.parametrize(
    ("url", "is_chat"),
    [("http://h/v1/chat/completions", False), ("http://h/v1/completions", True)],
)
def test_an_endpoint_of_the_other_kind_is_refused(url: str, is_chat: bool) -> None:
    with pytest.raises(ConfigError, match="the data set holds"):
        resolve_address(url, is_chat=is_chat)


@pytest.mark.parametrize(
    "url", ["http://h:1/p?version=3", "http://h:1/p/v1/completions?version=3#x"]
)
def test_a_query_stays_with_every_request(url: str) -> None:
    address = resolve_address(url, is_chat=False)
    assert address.requests_url == "http://h:1/p/v1/completions?version=3"
    assert address.models_url == "http://h:1/p/v1/models?version=3"
    assert address.root_url == "http://h:1/p"
    assert resolve_addresses([url], [], is_chat=False, instances=1).metrics_urls == (
        "http://h:1/metrics",
    )


@pytest.mark.parametrize(
    "url",
    [
        "h:8000",
        "ftp://h",
        "http://",
        "http://h:port",
        "http://h:0",
        "http://h:99999",
        "http://[::1",
        f"http://{'h' * 64}",
    ],
)
def test_what_is_no_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="cannot be used"):
        resolve_address(url, is_chat=False)


def test_a_refused_address_is_not_shown() -> None:
    with pytest.raises(ConfigError) as caught:
        resolve_address("ftp://secret.internal.example", is_chat=False)
    assert "internal" not in caught.value.render()


def test_metrics_are_at_the_origin_unless_given() -> None:
    urls = ["http://h:1/deep/v1", "http://h:2"]
    found = resolve_addresses(urls, [], is_chat=False, instances=2)
    assert found.metrics_urls == ("http://h:1/metrics", "http://h:2/metrics")
    given = resolve_addresses(urls, ["http://m/x"], is_chat=False, instances=2)
    assert given.metrics_urls == ("http://m/x",)


def test_as_many_addresses_as_planned_instances_or_one() -> None:
    resolve_addresses(["http://router"], [], is_chat=False, instances=3)
    with pytest.raises(ConfigError, match="2 addresses are given"):
        resolve_addresses(["http://a", "http://b"], [], is_chat=False, instances=3)
    with pytest.raises(ConfigError, match="no server address"):
        resolve_addresses([], [], is_chat=False, instances=1)
