"""How a server starts, keeps time and refuses options that cannot be served."""

from __future__ import annotations

import asyncio
import sys
from signal import SIGTERM
from subprocess import PIPE, Popen
from typing import Any
from urllib.request import urlopen

import pytest
from aiohttp import ClientSession

from prefixbench.core.errors import ConfigError, EndpointError, TokenizerError
from prefixbench.server.app import ServeOptions, create_app, running_server
from serving import served, token_prompt


async def test_time_passes_as_the_scale_says() -> None:
    """500 tokens of at least 5 ms each take 2.5 engine seconds, and a fraction of that here."""
    loop = asyncio.get_running_loop()
    async with served(time_scale=20.0) as client:
        start = loop.time()
        await client.complete(token_prompt(64), max_tokens=100)
        assert 100 * 0.005 / 20 <= loop.time() - start < 100 * 0.005


def test_a_process_tells_its_address_and_ends_at_a_signal() -> None:
    program = "from prefixbench.server.app import *; serve(ServeOptions())"
    with Popen([sys.executable, "-c", program], stdout=PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        url = line.removeprefix("listening on ").strip()
        with urlopen(url + "/health", timeout=10) as answer:
            assert answer.status == 200
        process.send_signal(SIGTERM)
        assert process.stdout.read() == ""
        assert process.wait(timeout=10) == 0


async def test_two_servers_cannot_share_a_port() -> None:
    async with running_server(ServeOptions()) as url:
        port = int(url.rsplit(":", 1)[1])
        with pytest.raises(EndpointError, match=f"port {port}"):
            async with running_server(ServeOptions(port=port)):
                pass


async def test_ipv6_addresses_are_bracketed() -> None:
    try:
        async with running_server(ServeOptions(host="::1")) as url, ClientSession() as session:
            assert url.startswith("http://[::1]:")
            async with session.get(url + "/health") as answer:
                assert answer.status == 200
    except EndpointError:
        pytest.skip("this machine has no IPv6 loopback")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dialect": "vlm"}, "--dialect"),
        ({"block_size": 0}, "--block-size"),
        ({"dp_size": 0}, "--dp-size"),
        ({"dp_size": 2, "dialect": "mindie"}, "--dp-size"),
        ({"dp_size": 2, "dialect": "llamacpp"}, "--dp-size"),
        ({"time_scale": -1.0}, "--time-scale"),
        ({"time_scale": float("nan")}, "--time-scale"),
        ({"capacity_blocks": 4, "max_model_len": 65}, "--max-model-len"),
        ({"faults": ("http_eror",)}, "--fault"),
    ],
)
def test_options_that_cannot_be_served_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        create_app(ServeOptions(block_size=options.pop("block_size", 16), **options))
    assert [problem.path for problem in refusal.value.problems] == [field]


def test_all_wrong_options_are_reported_at_once() -> None:
    with pytest.raises(ConfigError) as refusal:
        create_app(ServeOptions(block_size=0, dp_size=-1, dialect="vlm"))
    paths = [problem.path for problem in refusal.value.problems]
    assert paths == ["--block-size", "--dp-size", "--dialect"]
    assert refusal.value.problems[-1].nearest == "vllm"


def test_a_tokenizer_that_is_not_there_is_told() -> None:
    with pytest.raises(TokenizerError):
        create_app(ServeOptions(tokenizer="/nowhere/tokenizer.json"))
