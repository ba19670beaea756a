"""How texts are encoded: in order of arrival, and framed as each route needs it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Any, cast

import pytest

from prefixbench.content.tokenizer import BuiltinTokenizer
from prefixbench.server.api_error import ApiError
from prefixbench.server.chat import ChatTemplate
from prefixbench.server.codec import Codec

BOS = 99


class SlowTokenizer:
    """A token a character; takes a millisecond for each, and puts a BOS where one is asked for."""

    vocab_size = 100

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.busy = 0

    def encode_batch(self, texts: Sequence[str], add_special_tokens: bool) -> list[list[int]]:
        self.busy += 1
        assert self.busy == 1, "two encodings at a time"
        self.begun += texts
        time.sleep(sum(map(len, texts)) / 1000)
        self.busy -= 1
        return [[BOS] * add_special_tokens + [len(text)] for text in texts]


@pytest.fixture
def tokenizer() -> SlowTokenizer:
    return SlowTokenizer()


@pytest.fixture
async def codec(tokenizer: SlowTokenizer) -> AsyncIterator[Codec]:
    built = Codec(cast(Any, tokenizer), ChatTemplate(BuiltinTokenizer(), None))
    yield built
    built.close()


async def test_texts_are_encoded_in_the_order_of_their_arrival(
    codec: Codec, tokenizer: SlowTokenizer
) -> None:
    texts = ["x" * 100, "y", "z" * 20]
    done: list[str] = []

    async def encode(text: str) -> None:
        await codec.encode([text], add_special_tokens=False)
        done.append(text)

    await asyncio.gather(*map(encode, texts))
    assert tokenizer.begun == done == texts


async def test_the_loop_goes_on_while_a_text_is_encoded(codec: Codec) -> None:
    encoding = asyncio.create_task(codec.encode(["x" * 200], add_special_tokens=False))
    start = time.perf_counter()
    await asyncio.sleep(0.01)
    assert time.perf_counter() - start < 0.15
    assert await encoding == [[200]]


async def test_prompts_get_special_tokens_and_chats_bring_their_own(codec: Codec) -> None:
    assert await codec.encode_prompts(["abc", "d"]) == [[BOS, 3], [BOS, 1]]
    assert await codec.encode_prompts([[1, 2], [3]]) == [[1, 2], [3]]
    [length] = await codec.encode_chat([{"role": "user", "content": "Hi"}])
    assert length == len("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


async def test_ids_outside_the_vocabulary_are_refused(codec: Codec) -> None:
    codec.check_ids([0, 99], param="prompt")
    codec.check_ids([], param="prompt")
    with pytest.raises(ApiError, match="prompt"):
        codec.check_ids([0, 100], param="prompt")
