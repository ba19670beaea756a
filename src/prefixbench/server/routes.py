"""The routes beside generation: what a client may ask about the server and its cache."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import orjson
from aiohttp import hdrs, web

from prefixbench.core.log import event, raised_at
from prefixbench.core.version import __version__
from prefixbench.server.api_error import ApiError
from prefixbench.server.backend import Backend
from prefixbench.server.faults import faulty_page
from prefixbench.server.metrics_page import render_metrics
from prefixbench.server.openai import chat_messages, flag, read_body, text, token_ids

log = logging.getLogger(__name__)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_JSON = "application/json"


class ServiceRoutes:
    """Models, tokenization, metrics, cache reset, health and version."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    def table(self) -> list[web.RouteDef]:
        return [
            web.get("/v1/models", self.models),
            web.post("/tokenize", self.tokenize),
            web.post("/detokenize", self.detokenize),
            web.get("/metrics", self.metrics),
            web.post("/reset_prefix_cache", self.reset_prefix_cache),
            web.get("/health", self.health),
            web.get("/version", self.version),
        ]

    async def models(self, _: web.Request) -> web.Response:
        backend = self._backend
        base, *adapters = backend.models
        cards = [
            {
                "id": name,
                "object": "model",
                "created": int(backend.started_s),
                "owned_by": "prefixbench",
                "root": name,
                "parent": base if name in adapters else None,
                "max_model_len": backend.limits.max_model_len,
            }
            for name in backend.models
        ]
        return _json({"object": "list", "data": cards})

    async def tokenize(self, request: web.Request) -> web.Response:
        """Ids of a prompt or of a chat, as the generation routes would see them."""
        backend, body = self._backend, read_body(await request.read())
        if body.get("messages") is not None:
            ids = await backend.codec.encode_chat(chat_messages(body))
        else:
            prompt = text(body, "prompt")
            if prompt is None:
                raise ApiError(400, "prompt or messages must be given", param="prompt")
            special = flag(body, "add_special_tokens", default=True)
            [ids] = await backend.codec.encode([prompt], add_special_tokens=special)
        with_texts = flag(body, "return_token_strs")
        return _json(
            {
                "count": len(ids),
                "max_model_len": backend.limits.max_model_len,
                "tokens": ids,
                "token_strs": [backend.codec.decode([i]) for i in ids] if with_texts else None,
            }
        )

    async def detokenize(self, request: web.Request) -> web.Response:
        ids = token_ids(read_body(await request.read()), "tokens")
        return _json({"prompt": self._backend.codec.decode(ids)})

    async def metrics(self, _: web.Request) -> web.Response:
        backend = self._backend
        page = faulty_page(render_metrics(backend.state(), backend.options.dialect), backend.faults)
        return web.Response(
            body=page.text.encode(),
            status=page.status,
            headers={hdrs.CONTENT_TYPE: page.content_type},
        )

    async def reset_prefix_cache(self, _: web.Request) -> web.Response:
        if not self._backend.reset_prefix_cache():
            raise ApiError(409, "the cache is in use; reset it when no request is running")
        return web.Response()

    async def health(self, _: web.Request) -> web.Response:
        return web.Response(status=200 if self._backend.is_alive else 503)

    async def version(self, _: web.Request) -> web.Response:
        """The engine version that is imitated, and by whom."""
        return _json(
            {
                "version": self._backend.version,
                "profile": self._backend.profile.name,
                "simulated_by": f"prefixbench {__version__}",
            }
        )


@web.middleware
async def errors_as_json(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Give every error the form that OpenAI clients read; log what nobody expected, by kind."""
    try:
        return await handler(request)
    except ApiError as error:
        answer = error
    except web.HTTPException as error:
        answer = ApiError(error.status, error.reason)
    except Exception as error:
        kind, where = type(error).__name__, raised_at(error)
        event(log, "request.failed", level=logging.ERROR, kind=kind, where=where)
        answer = ApiError(500, "internal error")
    return web.Response(body=answer.body(), status=answer.status, content_type=_JSON)


def _json(document: object) -> web.Response:
    return web.Response(body=orjson.dumps(document), content_type=_JSON)
