"""A server whose timing is known, as a process of its own: `python -m` this module CHUNKS DELAY_MS.

Answers every POST with a prepared stream of so many pieces, all at once, after the delay; every
GET of /waited with the delays it really made, in milliseconds, and any other GET with a list of
one model. Prints its port, and ends when its standard input is closed.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import orjson

_MODEL = "calibration"
_ENVELOPE = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": _MODEL}


class _Connection(asyncio.Protocol):
    def __init__(self, stream: bytes, delay_s: float, waited_ms: list[float]) -> None:
        self._stream = stream
        self._delay_s = delay_s
        self._waited_ms = waited_ms
        self._received = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = _content_length(head)
        if not blank or len(body) < length:
            return
        self._received = body[length:]
        if head.startswith(b"POST") and self._delay_s:
            received_s = time.perf_counter()
            asyncio.get_running_loop().call_later(self._delay_s, self._answer, received_s)
        elif head.startswith(b"POST"):
            self._answer(time.perf_counter())
        elif head.startswith(b"GET /waited "):
            self._transport.write(_whole(self._waited_ms))
        else:
            self._transport.write(_whole({"data": [{"id": _MODEL}]}))

    def _answer(self, received_s: float) -> None:
        self._waited_ms.append((time.perf_counter() - received_s) * 1000)
        self._transport.write(self._stream)


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


def _whole(document: Any) -> bytes:
    body = orjson.dumps(document)
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _stream(chunks: int) -> bytes:
    """A whole answer: so many pieces, the usage, the end; each in an HTTP chunk of its own."""
    pieces = [_piece(f" w{number}", number == chunks - 1) for number in range(chunks)]
    usage = {**_ENVELOPE, "choices": [], "usage": {"completion_tokens": chunks}}
    events = [b"data: " + orjson.dumps(event) + b"\n\n" for event in (*pieces, usage)]
    body = b"".join(
        b"%x\r\n%s\r\n" % (len(event), event) for event in [*events, b"data: [DONE]\n\n"]
    )
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + body + b"0\r\n\r\n"


def _piece(text: str, is_last: bool) -> dict[str, Any]:
    reason = "length" if is_last else None
    return {**_ENVELOPE, "choices": [{"index": 0, "text": text, "finish_reason": reason}]}


async def _serve(chunks: int, delay_ms: float) -> None:
    loop = asyncio.get_running_loop()
    stream, waited_ms = _stream(chunks), list[float]()
    server = await loop.create_server(
        lambda: _Connection(stream, delay_ms / 1000, waited_ms), "127.0.0.1", 0
    )
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await loop.run_in_executor(None, sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]), float(sys.argv[2])))
