"""A running embedded server and a small client, for the tests that speak HTTP."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from aiohttp import ClientSession, ClientTimeout
from prometheus_client.parser import text_string_to_metric_families

from prefixbench.server.app import ServeOptions, running_server

#: A server that never answers fails its test, it does not stop the suite.
TIMEOUT = ClientTimeout(total=30)

Sample = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks to one server; every method fails the test on an unexpected status."""

    url: str
    session: ClientSession

    async def post(self, path: str, body: Any, status: int = 200, **options: Any) -> Any:
        async with self.session.post(self.url + path, json=body, **options) as answer:
            text = await answer.text()
            assert answer.status == status, f"{answer.status} {text}"
            return json.loads(text) if text else None

    async def get(self, path: str, status: int = 200) -> str:
        async with self.session.get(self.url + path) as answer:
            assert answer.status == status
            return await answer.text()

    async def complete(
        self, prompt: Any, *, rank: int | None = None, path: str = "/v1/completions", **fields: Any
    ) -> Any:
        headers = {} if rank is None else {"X-data-parallel-rank": str(rank)}
        body = {"prompt": prompt, "max_tokens": 1, **fields}
        return await self.post(path, body, headers=headers)

    async def cached(self, prompt: Any, **fields: Any) -> int:
        """Tokens that the server says it found cached."""
        usage = (await self.complete(prompt, **fields))["usage"]
        count = usage["prompt_tokens_details"]["cached_tokens"]
        assert isinstance(count, int)
        return count

    async def events(self, path: str, **body: Any) -> list[Any]:
        """Chunks of a stream, read as JSON; the closing `[DONE]` stays a text."""
        async with self.session.post(self.url + path, json={**body, "stream": True}) as answer:
            assert answer.status == 200, await answer.text()
            assert answer.content_type == "text/event-stream"
            text = await answer.text()
        assert text.endswith("\n\n")
        lines = text.removesuffix("\n\n").split("\n\n")
        assert all(line.startswith("data: ") for line in lines)
        data = [line.removeprefix("data: ") for line in lines]
        return [item if item == "[DONE]" else json.loads(item) for item in data]

    async def samples(self) -> dict[Sample, float]:
        """Every sample of the metrics page by name and labels."""
        families = text_string_to_metric_families(await self.get("/metrics"))
        return {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    async def metric(self, name: str, **labels: str) -> float:
        """The sum over all samples of a name that carry these labels; there must be one."""
        values = [
            value
            for (sample, pairs), value in (await self.samples()).items()
            if sample == name and labels.items() <= dict(pairs).items()
        ]
        assert values, f"no sample {name} {labels}"
        return sum(values)

    async def wait_until(self, name: str, value: float) -> None:
        """Poll a metric until it has a value."""
        async with asyncio.timeout(10):
            while await self.metric(name) != value:
                await asyncio.sleep(0.005)


@asynccontextmanager
async def served(**options: Any) -> AsyncIterator[Client]:
    """A server that does not wait, unless a time scale is given, and a client for it."""
    fields = {"time_scale": 0.0, "block_size": 16, **options}
    async with (
        running_server(ServeOptions(**fields)) as url,
        ClientSession(timeout=TIMEOUT) as session,
    ):
        yield Client(url, session)


def token_prompt(length: int, start: int = 0) -> list[int]:
    """Token ids that differ from those of another start in every place."""
    return [(start + place) % 20_000 for place in range(length)]
