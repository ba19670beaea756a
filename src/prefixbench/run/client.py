"""Sends requests and looks at pages over HTTP; keeps connections open; stamps before it parses.

Connections are dropped after four idle seconds, before common servers drop them after five
(uvicorn's default), so that a request never meets a connection that is being closed. System
proxies are never used; a proxy must be named, and loopback addresses go around it. Prompts and
keys go nowhere but to the address that was given: no request follows a redirect, and a page only
one to the same server.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from io import BytesIO
from types import TracebackType
from typing import Any, Self
from urllib.parse import urljoin

import aiohttp
import orjson

from prefixbench.core.clock import Clock
from prefixbench.run.addresses import origin_of
from prefixbench.run.answer import Answer, Status, read_error
from prefixbench.run.exposition import ScrapeError, ScrapeProblem
from prefixbench.run.redact import is_loopback, private_parts, safe_error
from prefixbench.run.snapshot import Scrape

#: Pins a DP rank on vLLM (metrics-adapters.md section 7); servers may say in it who answered.
RANK_HEADER = "X-data-parallel-rank"

_IDLE_CONNECTION_S = 4.0
_READ_BUFFER_BYTES = 1 << 20
_LARGEST_ERROR_BYTES = 1 << 16
_LARGE_BODY_BYTES = 1 << 20
_PAGE_TIMEOUT_S = 10.0
_MOST_REDIRECTS = 5
_JSON = {"Content-Type": "application/json", "Accept-Encoding": "identity"}

_CONNECTION_ERRORS = (aiohttp.ClientPayloadError, aiohttp.ClientConnectionError, OSError)
_STATUS_PROBLEMS = {400: ScrapeProblem.BAD_REQUEST, 404: ScrapeProblem.NOT_FOUND}


@dataclass(frozen=True, slots=True, kw_only=True)
class Exchange:
    """How one request went. Times are nanoseconds of the clock; what was not measured is None.

    `text` and `token_ids` are what a completion said; they are kept nowhere but in the histories of
    sessions that go on from them.
    """

    status: Status
    sent_ns: int
    finished_ns: int
    first_token_ns: int | None = None
    gaps_ns: tuple[int, ...] = ()
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    http_status: int | None = None
    dp_rank: int | None = None
    error: str | None = None
    text: str = field(default="", repr=False)
    token_ids: Sequence[int] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class Page:
    """An answer that was read as a whole."""

    status: int
    content_type: str
    text: str


class Client:
    """Context manager around two pools of connections: one for requests, one for all else.

    `headers` go with every request, and with pages of these `origins` alone: a metrics address
    elsewhere never sees the server's key.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        timeout_s: float,
        headers: Mapping[str, str] | None = None,
        origins: Collection[str] = (),
        proxy: str | None = None,
    ) -> None:
        self._clock = clock
        self._timeout_s = timeout_s
        self._headers = dict(headers or {})
        self._origins = frozenset(origins)
        self._proxy = proxy
        self._deadlines: set[asyncio.Timeout] = set()
        self._hung_up = False

    async def __aenter__(self) -> Self:
        self._requests = self._session(self._headers)
        self._pages = self._session({})
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._requests.close()
        await self._pages.close()

    def hang_up(self) -> None:
        """End all requests in flight, and those to come, as disconnected."""
        self._hung_up = True
        now_s = asyncio.get_running_loop().time()
        for deadline in self._deadlines:
            deadline.reschedule(now_s)

    async def complete(
        self,
        url: str,
        body: bytes,
        *,
        headers: Mapping[str, str] | None = None,
        on_first_token: Callable[[], None] = lambda: None,
    ) -> Exchange:
        """Send one request and read its answer; failures are results, not exceptions."""
        answer = Answer(on_first_token)
        sent_ns = self._clock.now_ns()
        http_status: int | None = None
        dp_rank: int | None = None
        try:
            async with (
                self._deadline(),
                self._requests.post(
                    url,
                    data=_payload(body),
                    headers={**_JSON, **(headers or {})},
                    proxy=self._proxy_for(url),
                    allow_redirects=False,
                ) as response,
            ):
                http_status = response.status
                dp_rank = _rank(response.headers.get(RANK_HEADER, ""))
                await self._read(response, answer)
            status, error = self._verdict(url, http_status, answer, body)
        except TimeoutError:
            status, error = self._late()
        except _CONNECTION_ERRORS as problem:
            status, error = Status.DISCONNECTED, _name(problem)
        except aiohttp.ClientError as problem:
            status, error = Status.MALFORMED, _name(problem)
        return Exchange(
            status=status,
            sent_ns=sent_ns,
            finished_ns=self._clock.now_ns(),
            first_token_ns=answer.first_token_ns,
            gaps_ns=tuple(answer.gaps_ns),
            prompt_tokens=answer.prompt_tokens,
            cached_tokens=answer.cached_tokens,
            output_tokens=answer.output_tokens,
            http_status=answer.error_status or http_status,
            dp_rank=dp_rank,
            error=error,
            text="".join(answer.pieces),
            token_ids=answer.token_ids,
        )

    async def get(self, url: str, *, timeout_s: float = _PAGE_TIMEOUT_S) -> Page:
        """Read a page; raises TimeoutError, OSError or aiohttp.ClientError."""
        return await self._page("GET", url, timeout_s)

    async def post(self, url: str, *, timeout_s: float = _PAGE_TIMEOUT_S) -> Page:
        """Ask for an action without a body; raises as `get` does."""
        return await self._page("POST", url, timeout_s)

    async def metrics_text(self, url: str) -> str:
        """A metrics page as text; raises ScrapeError where there is none."""
        try:
            page = await self.get(url)
        except TimeoutError:
            raise ScrapeError(ScrapeProblem.TIMEOUT) from None
        except (aiohttp.ClientError, OSError) as error:
            raise ScrapeError(ScrapeProblem.UNREACHABLE, _name(error)) from error
        if page.status != 200:
            problem = _STATUS_PROBLEMS.get(page.status, ScrapeProblem.HTTP_ERROR)
            raise ScrapeError(problem, f"status {page.status}")
        return page.text

    async def scrape(self, url: str) -> Scrape:
        """Look at a metrics page; a failure is a result."""
        try:
            return Scrape.of_text(await self.metrics_text(url))
        except ScrapeError as error:
            return Scrape(error=error)

    @asynccontextmanager
    async def _deadline(self) -> AsyncIterator[None]:
        async with asyncio.timeout(0 if self._hung_up else self._timeout_s) as deadline:
            self._deadlines.add(deadline)
            try:
                yield
            finally:
                self._deadlines.discard(deadline)

    def _late(self) -> tuple[Status, str]:
        if self._hung_up:
            return Status.DISCONNECTED, "the run was stopped"
        return Status.TIMEOUT, f"no complete answer in {self._timeout_s:g} s"

    def _session(self, headers: Mapping[str, str]) -> aiohttp.ClientSession:
        return aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_IDLE_CONNECTION_S),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            headers=headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
            trust_env=False,
        )

    async def _read(self, response: aiohttp.ClientResponse, answer: Answer) -> None:
        content, now_ns = response.content, self._clock.now_ns
        content_type = response.headers.get("Content-Type", "")
        if response.status != 200:
            answer.error, _ = _error_text(await content.read(_LARGEST_ERROR_BYTES))
        elif content_type.startswith("application/json"):
            answer.read_whole(await response.read())
        elif content_type.startswith("text/html"):
            answer.malformed = True
        else:
            while chunk := await content.readany():
                answer.feed(now_ns(), chunk)
            answer.end(now_ns())

    async def _page(self, method: str, url: str, timeout_s: float) -> Page:
        """The page at an address; it may have moved, but not to another server."""
        async with asyncio.timeout(timeout_s):
            for _ in range(_MOST_REDIRECTS):
                page, moved_to = await self._page_here(method, url)
                if moved_to is None or origin_of(moved_to) != origin_of(url):
                    break
                url = moved_to
            return page

    async def _page_here(self, method: str, url: str) -> tuple[Page, str | None]:
        """The page, and where it is instead."""
        headers = self._headers if origin_of(url) in self._origins else None
        async with self._pages.request(
            method, url, headers=headers, proxy=self._proxy_for(url), allow_redirects=False
        ) as response:
            text = await response.text(errors="replace")
            location = response.headers.get("Location")
            moved = 300 <= response.status < 400 and location is not None
            page = Page(response.status, response.content_type, text)
            return page, urljoin(url, location) if moved and location else None

    def _proxy_for(self, url: str) -> str | None:
        return None if self._proxy is None or is_loopback(url) else self._proxy

    def _verdict(
        self, url: str, http_status: int, answer: Answer, body: bytes
    ) -> tuple[Status, str | None]:
        if http_status != 200 or answer.error is not None:
            told = answer.error or "no message"
            safe = safe_error(told, prompt=_prompt_text(body), secrets=self._secrets(url))
            return Status.HTTP_ERROR, safe
        if answer.malformed:
            return Status.MALFORMED, "the answer is not of the expected form"
        if not answer.finished:
            return Status.DISCONNECTED, "the stream ended early"
        return Status.OK, None

    def _secrets(self, url: str) -> list[str]:
        """What a server may repeat of a request, beside its prompt."""
        values = self._headers.values()
        of_headers = [part for value in values for part in (value, *value.split()[1:])]
        return [*of_headers, *private_parts(url)]


def _payload(body: bytes) -> bytes | BytesIO:
    """aiohttp warns of large bodies in one piece; it sends a file in many."""
    return body if len(body) < _LARGE_BODY_BYTES else BytesIO(body)


def _rank(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() else None


def _error_text(body: bytes) -> tuple[str, int | None]:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body.decode(errors="replace"), None
    nested = document.get("error", document) if isinstance(document, dict) else document
    return read_error(nested)


def _prompt_text(body: bytes) -> str:
    """The text a server could repeat."""
    request: dict[str, Any] = orjson.loads(body)
    prompt = request.get("prompt", "")
    contents = [str(message.get("content", "")) for message in request.get("messages", ())]
    return "\n".join([prompt if isinstance(prompt, str) else "", *contents])


def _name(error: BaseException) -> str:
    """Kind of a failure without its own text, which holds addresses."""
    number = error.errno if isinstance(error, OSError) else None
    return f"{type(error).__name__}: {os.strerror(number)}" if number else type(error).__name__
