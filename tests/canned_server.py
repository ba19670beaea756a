"""A server that answers byte for byte what a test wants, for a client's bad days."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = Callable[["Request"], Awaitable[None]]

STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the way back."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any
    writer: asyncio.StreamWriter

    async def send(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()

    async def piece(self, data: bytes) -> None:
        """One HTTP chunk."""
        await self.send(b"%x\r\n%s\r\n" % (len(data), data))

    async def end(self) -> None:
        await self.send(b"0\r\n\r\n")

    async def whole(
        self, body: bytes, *, status: int = 200, content_type: str = "application/json"
    ) -> None:
        head = f"HTTP/1.1 {status} X\r\nContent-Type: {content_type}\r\n"
        await self.send(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)

    async def stream(self, *pieces: bytes, pause_s: float = 0) -> None:
        """A whole stream, cut as given."""
        await self.send(STREAM_HEAD)
        for data in pieces:
            await self.piece(data)
            await asyncio.sleep(pause_s)
        await self.end()

    def hang_up(self) -> None:
        self.writer.close()


def text_event(text: str, *, finish: str | None = None, usage: Any = None) -> bytes:
    choice = {"index": 0, "text": text, "finish_reason": finish}
    return b"data: " + json.dumps({"choices": [choice], "usage": usage}).encode() + b"\n\n"


def usage_event(prompt: int, completion: int, cached: int | None = None) -> bytes:
    details = None if cached is None else {"cached_tokens": cached}
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "prompt_tokens_details": details,
    }
    return b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n"


@dataclass(slots=True)
class CannedServer:
    """Where the server is, and what it was asked."""

    url: str = ""
    requests: list[Request] = field(default_factory=list)
    connections: int = 0


@asynccontextmanager
async def canned_server(answer: Answer) -> AsyncIterator[CannedServer]:
    """Runs `answer` for every request, on connections that are kept."""
    state = CannedServer()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        state.connections += 1
        try:
            while request := await _read(reader, writer):
                state.requests.append(request)
                await answer(request)
        except (ConnectionError, asyncio.IncompleteReadError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", 0)
    state.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield state
    finally:
        server.close()


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    except asyncio.IncompleteReadError:
        return None
    method, path, _ = head[0].split(" ")
    headers = {name.lower(): value for name, _, value in (x.partition(": ") for x in head[1:])}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    return Request(method, path, headers, json.loads(body) if body else None, writer)
