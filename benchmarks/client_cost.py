"""What the client of `prefixbench run` costs: processor time a request, start-up, memory.

    python benchmarks/client_cost.py [--requests 3000] [--chunks 100] [--concurrency 64]

A separate process answers each request with so many chunks at once, the cheapest server there can
be, so that what is printed is the client's own cost: the whole path of a measured request, from
the row on disk to the row of results. Bars (peers.md section 5): at most 0.5 ms of processor time
a request at 100 chunks and concurrency 64, start-up below 1 s, memory below 100 MB.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path

import orjson

from prefixbench.core.version import FORMAT_VERSION
from prefixbench.dataset.layout import row
from prefixbench.dataset.writer import DatasetWriter, RowChunk
from prefixbench.run.options import RunOptions
from prefixbench.run.runner import run_dataset

PROMPT_CHARS = 16_000


class ChunkedServer(asyncio.Protocol):
    """Answers every POST with a prepared stream and every GET with a list of one model."""

    stream = b""
    connections = 0
    _MODELS = b'{"data":[{"id":"canned"}]}'

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""
        ChunkedServer.connections += 1

    def data_received(self, data: bytes) -> None:
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        if not blank:
            return
        is_post = head.startswith(b"POST")
        length = _content_length(head) if is_post else 0
        if len(body) < length:
            return
        self._received = body[length:]
        self._transport.write(self.stream if is_post else _whole(self._MODELS))


def _content_length(head: bytes) -> int:
    fields = dict(line.split(b": ", 1) for line in head.split(b"\r\n")[1:])
    return int(next(value for name, value in fields.items() if name.lower() == b"content-length"))


def _whole(body: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


def _stream(chunks: int) -> bytes:
    envelope = {"id": "cmpl-0", "object": "text_completion", "created": 0, "model": "canned"}
    pieces = [
        {**envelope, "choices": [{"index": 0, "text": f" w{n}", "finish_reason": None}]}
        for n in range(chunks)
    ]
    pieces[-1]["choices"][0]["finish_reason"] = "length"  # type: ignore[index]
    usage = {"prompt_tokens": 4096, "completion_tokens": chunks}
    events = [*pieces, {**envelope, "choices": [], "usage": usage}]
    lines = [b"data: " + orjson.dumps(event) + b"\n\n" for event in events] + [b"data: [DONE]\n\n"]
    body = b"".join(b"%x\r\n%s\r\n" % (len(line), line) for line in lines) + b"0\r\n\r\n"
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    return head + body


def _serve(chunks: int, port: Connection) -> None:
    async def main() -> None:
        ChunkedServer.stream = _stream(chunks)
        loop = asyncio.get_running_loop()
        server = await loop.create_server(ChunkedServer, "127.0.0.1", 0)
        port.send(server.sockets[0].getsockname()[1])
        await server.serve_forever()

    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main())


@contextlib.contextmanager
def _server(chunks: int) -> Iterator[str]:
    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(chunks, theirs))
    process.start()
    try:
        yield f"http://127.0.0.1:{ours.recv()}"
    finally:
        process.terminate()
        process.join()


def _dataset(folder: Path, requests: int, chunks: int) -> None:
    """Rows of the right size; what they say does not matter here."""
    text = "The " + "word " * (PROMPT_CHARS // 5)
    metadata = {
        "prefix_group_id": "g",
        "input_len": 4096,
        "output_len": chunks,
        "planned_prefix_len": 0,
        "cached_watermark_before": 0,
        "expected_hit_len": 0,
        "planned_dp_id": 0,
        "planned_instance_id": 0,
    }
    with DatasetWriter(folder, dataset_id="client_cost", identity="client_cost") as writer:
        for index in range(requests):
            name = {"request_id": f"r{index}"}
            data = row({**name, "prompt": text, "max_tokens": chunks})
            writer.write(RowChunk(data=data, metadata=row({**name, **metadata})))
        writer.finish(
            {
                "dataset_id": "client_cost",
                "format_version": FORMAT_VERSION,
                "request_count": requests,
                "block_size": 16,
                "hit_granularity": 16,
                "head_len": 0,
                "tail_len": 0,
                "config": {"execution": {"mode": "cold"}},
            },
            {},
        )


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=3000)
    parser.add_argument("--chunks", type=int, default=100)
    parser.add_argument("--concurrency", type=int, default=64)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, _server(asked.chunks) as url:
        _dataset(Path(folder, "dataset"), asked.requests, asked.chunks)
        started_s = time.perf_counter()
        result = run_dataset(
            RunOptions(
                dataset=Path(folder, "dataset"),
                urls=(url,),
                output=Path(folder, "run"),
                concurrency=asked.concurrency,
                isolation="none",
                metrics_optional=True,
            )
        )
        wall_s = time.perf_counter() - started_s
    (phase,) = result.runtime.performance.phases
    client = phase["client"]
    print(f"requests answered            {phase['requests']['succeeded']}")
    print(f"requests a second            {phase['qps']:.0f}")
    print(f"CPU a request                {client['cpu_s'] / asked.requests * 1000:.3f} ms")
    print(f"time beside the phase        {wall_s - phase['duration_s']:.2f} s")
    print(f"peak memory                  {_peak_mb():.0f} MB")


if __name__ == "__main__":
    main()
