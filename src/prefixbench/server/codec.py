"""Texts to ids and back, as the served model does it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from prefixbench.content.tokenizer import Tokenizer
from prefixbench.server.api_error import ApiError
from prefixbench.server.chat import ChatTemplate, Messages
from prefixbench.server.openai import Prompt


class Codec:
    """A tokenizer and a chat template; encoding does not stop the event loop."""

    def __init__(self, tokenizer: Tokenizer, chat: ChatTemplate) -> None:
        self._tokenizer = tokenizer
        self._chat = chat
        # One thread, so that texts are encoded in the order in which they arrived.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="encode")

    def close(self) -> None:
        self._thread.shutdown()

    async def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[list[int]]:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._thread, self._tokenizer.encode_batch, texts, add_special_tokens
        )

    async def encode_prompts(self, prompts: Sequence[Prompt]) -> list[list[int]]:
        """Ids of prompts as the text endpoint takes them: texts are encoded, ids pass."""
        texts = [prompt for prompt in prompts if isinstance(prompt, str)]
        if texts:
            return await self.encode(texts, add_special_tokens=True)
        return [prompt for prompt in prompts if not isinstance(prompt, str)]

    async def encode_chat(self, messages: Messages) -> list[int]:
        """Ids of a chat behind its template, which brings its own special tokens."""
        [ids] = await self.encode([self._chat.render(messages)], add_special_tokens=False)
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids; ApiError for an id outside the vocabulary."""
        self.check_ids(ids, param="tokens")
        return self._tokenizer.decode(ids)

    def check_ids(self, ids: Sequence[int], *, param: str) -> None:
        if max(ids, default=0) >= self._tokenizer.vocab_size:
            raise ApiError(400, f"{param} has a token id outside the vocabulary", param=param)
