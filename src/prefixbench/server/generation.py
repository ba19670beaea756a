"""The two routes that generate: completions and chat, whole or streamed."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count

from aiohttp import hdrs, web

from prefixbench.server.answers import CHAT, COMPLETION, STREAM_END, Envelope, Said, Shape, Usage
from prefixbench.server.api_error import ApiError
from prefixbench.server.backend import Backend
from prefixbench.server.calls import Call
from prefixbench.server.dialects import DIALECTS
from prefixbench.server.faults import Fault
from prefixbench.server.openai import (
    Body,
    CallOptions,
    call_options,
    chat_messages,
    completion_prompts,
    read_body,
)

#: Pins a request to a data-parallel rank (vLLM, verified on 0.32); the answer says which it was.
RANK_HEADER = "X-data-parallel-rank"

_EVENT_STREAM = {hdrs.CONTENT_TYPE: "text/event-stream; charset=utf-8"}

PromptReader = Callable[[Body], Awaitable[list[list[int]]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A call that was accepted, and how its answer is to be written."""

    request: web.Request
    call: Call
    envelope: Envelope
    include_usage: bool
    returns_token_ids: bool
    cut_after_first_token: bool

    def ids(
        self, choice: int, token_ids: Sequence[int], *, with_prompt: bool
    ) -> Mapping[str, Sequence[int] | None]:
        """The fields with token ids; none unless they were asked for."""
        if not self.returns_token_ids:
            return {}
        prompt = self.call.prompt_of(choice) if with_prompt else None
        return {"prompt_token_ids": prompt, "token_ids": token_ids}

    def cut(self) -> None:
        """Close the connection in the middle, as a server that dies does."""
        if self.request.transport is not None:
            self.request.transport.close()


class GenerationRoutes:
    """Accepts calls, writes their answers, and fails on purpose where a fault says so."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._numbers = count()
        self._ended = 0

    def table(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/completions", self.completions),
            web.post("/v1/chat/completions", self.chat_completions),
        ]

    async def completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, COMPLETION, self._completion_prompts)

    async def chat_completions(self, request: web.Request) -> web.StreamResponse:
        return await self._generate(request, CHAT, self._chat_prompt)

    async def _completion_prompts(self, body: Body) -> list[list[int]]:
        return await self._backend.codec.encode_prompts(completion_prompts(body))

    async def _chat_prompt(self, body: Body) -> list[list[int]]:
        if self._returns_token_ids(call_options(body)):
            name = "return_token_ids"
            raise ApiError(400, f"{name} is supported for completions alone", param=name)
        return [await self._backend.codec.encode_chat(chat_messages(body))]

    async def _generate(
        self, request: web.Request, shape: Shape, read_prompts: PromptReader
    ) -> web.StreamResponse:
        """Answer one request; a client that leaves takes its sequences out of the engines."""
        arrived_ns = self._backend.clock.now_ns()
        number = next(self._numbers)
        await self._fail_on_purpose(number)
        body = read_body(await request.read())
        options = self._shortened(call_options(body), number)
        call = self._backend.start_call(
            await read_prompts(body),
            options,
            pinned_rank=_pinned_rank(request),
            arrived_ns=arrived_ns,
        )
        reply = Reply(
            request=request,
            call=call,
            envelope=Envelope(
                shape=shape,
                call_id=call.call_id,
                model=options.model or self._backend.options.model,
                created_s=int(time.time()),
            ),
            include_usage=options.include_usage,
            returns_token_ids=self._returns_token_ids(options),
            cut_after_first_token=self._backend.faults.strikes(Fault.DISCONNECT, number),
        )
        try:
            return await (self._stream(reply) if options.stream else self._whole(reply))
        finally:
            call.abort()
            self._count_ended_call()

    def _returns_token_ids(self, options: CallOptions) -> bool:
        dialect = DIALECTS[self._backend.options.dialect]
        return options.return_token_ids and dialect.returns_token_ids

    async def _fail_on_purpose(self, number: int) -> None:
        faults = self._backend.faults
        if faults.strikes(Fault.HTTP_ERROR, number):
            raise ApiError(500, "this failure was asked for by --fault http_error")
        if faults.strikes(Fault.TIMEOUT, number):
            await asyncio.Event().wait()

    def _shortened(self, options: CallOptions, number: int) -> CallOptions:
        """The options as a server takes them that heeds no `ignore_eos`."""
        if not self._backend.faults.strikes(Fault.SHORT_ANSWER, number):
            return options
        return replace(options, max_tokens=max(options.max_tokens // 2, 1))

    def _count_ended_call(self) -> None:
        self._ended += 1
        if self._ended == self._backend.faults.count(Fault.COUNTER_RESET):
            self._backend.restart_counters()

    async def _whole(self, reply: Reply) -> web.StreamResponse:
        text_of = self._backend.speaker.text_of
        tokens: list[list[int]] = [[] for _ in reply.call.sequences]
        async for token in reply.call.tokens():
            tokens[token.choice].append(token.token_id)
            if reply.cut_after_first_token:
                reply.cut()
                break
        said = [
            Said(
                "".join(text_of[token_id] for token_id in ids),
                reply.ids(choice, ids, with_prompt=True),
            )
            for choice, ids in enumerate(tokens)
        ]
        body = reply.envelope.answer(said, self._usage(reply.call))
        headers = _rank_header(reply.call)
        return web.Response(body=body, content_type="application/json", headers=headers)

    async def _stream(self, reply: Reply) -> web.StreamResponse:
        response = web.StreamResponse(headers=_EVENT_STREAM | _rank_header(reply.call))
        await response.prepare(reply.request)
        try:
            await self._write_chunks(reply, response)
        except ApiError as error:
            await response.write(b"data: " + error.body() + b"\n\n" + STREAM_END)
        except ConnectionError:
            pass  # the client has left; there is no one to tell
        return response

    async def _write_chunks(self, reply: Reply, response: web.StreamResponse) -> None:
        """One chunk a token; before the first one of a choice, its opening if it has one."""
        envelope, text_of = reply.envelope, self._backend.speaker.text_of
        unopened = set(range(len(reply.call.sequences)))
        async for token in reply.call.tokens():
            opens = token.choice in unopened
            if opens:
                unopened.remove(token.choice)
                opening = envelope.opening_chunk(token.choice)
                if opening is not None:
                    await response.write(opening)
            ids = reply.ids(token.choice, [token.token_id], with_prompt=opens)
            said = Said(text_of[token.token_id], ids)
            await response.write(envelope.token_chunk(token.choice, said, is_last=token.is_last))
            if reply.cut_after_first_token:
                reply.cut()
                return
        if reply.include_usage:
            await response.write(envelope.usage_chunk(self._usage(reply.call)))
        await response.write(STREAM_END)

    def _usage(self, call: Call) -> Usage:
        usage = call.usage()
        if self._backend.faults.has(Fault.NO_CACHED_TOKENS):
            return replace(usage, cached_tokens=None)
        return usage


def _rank_header(call: Call) -> dict[str, str]:
    rank = call.rank()
    return {} if rank is None else {RANK_HEADER: str(rank)}


def _pinned_rank(request: web.Request) -> int | None:
    text = request.headers.get(RANK_HEADER)
    if text is None:
        return None
    if text.isascii() and text.isdecimal():
        return int(text)
    raise ApiError(400, f"{RANK_HEADER} must be a whole number")
