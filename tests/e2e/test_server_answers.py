"""The forms of answers, streams and lists that OpenAI clients rely on."""

from __future__ import annotations

import json

from serving import served

TEXT = "The lamp stood by the long road and the old man went home"
CHAT = [{"role": "user", "content": TEXT}]


async def test_a_whole_completion() -> None:
    async with served(model="toy") as client:
        answer = await client.complete(TEXT, max_tokens=5)
        count = (await client.post("/tokenize", {"prompt": TEXT}))["count"]
    assert answer["object"] == "text_completion"
    assert answer["model"] == "toy"
    assert answer["id"].startswith("cmpl-")
    [choice] = answer["choices"]
    assert choice["finish_reason"] == "length"
    assert len(choice["text"].split()) == 5
    assert answer["usage"] == {
        "prompt_tokens": count,
        "completion_tokens": 5,
        "total_tokens": count + 5,
        "prompt_tokens_details": {"cached_tokens": 0},
    }


async def test_a_stream_has_a_chunk_a_token_then_the_usage_then_the_end() -> None:
    async with served() as client:
        whole = await client.complete(TEXT, max_tokens=4, cache_salt="whole")
        body = {"prompt": TEXT, "max_tokens": 4}
        *chunks, usage_chunk, end = await client.events(
            "/v1/completions", **body, stream_options={"include_usage": True}
        )
        *plain_chunks, plain_end = await client.events("/v1/completions", **body)
    assert end == plain_end == "[DONE]"
    assert len(chunks) == len(plain_chunks) == 4
    assert {chunk["id"] for chunk in chunks} == {usage_chunk["id"]}
    assert all(chunk["usage"] is None for chunk in chunks)
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None] * 3 + ["length"]
    text = "".join(chunk["choices"][0]["text"] for chunk in chunks)
    assert text == whole["choices"][0]["text"]
    assert usage_chunk["choices"] == []
    assert usage_chunk["usage"] == whole["usage"]


async def test_a_chat_stream_opens_with_the_role() -> None:
    async with served() as client:
        whole = await client.post("/v1/chat/completions", {"messages": CHAT, "max_tokens": 3})
        opening, *chunks, end = await client.events(
            "/v1/chat/completions", messages=CHAT, max_tokens=3
        )
    assert whole["object"] == "chat.completion"
    assert opening["object"] == "chat.completion.chunk"
    assert opening["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    assert end == "[DONE]"
    assert len(chunks) == 3
    text = "".join(chunk["choices"][0]["delta"]["content"] for chunk in chunks)
    assert whole["choices"][0]["message"] == {"role": "assistant", "content": text}
    assert whole["choices"][0]["finish_reason"] == "length"


async def test_choices_of_a_stream_are_told_apart_by_their_index() -> None:
    async with served() as client:
        body = {"prompt": [TEXT, TEXT + " again"], "n": 2, "max_tokens": 2}
        whole = await client.complete(**body)
        *chunks, _ = await client.events("/v1/completions", **body)
    texts = dict.fromkeys(range(4), "")
    for chunk in chunks:
        texts[chunk["choices"][0]["index"]] += chunk["choices"][0]["text"]
    assert len(chunks) == 8
    assert [choice["text"] for choice in whole["choices"]] == list(texts.values())
    assert len(set(texts.values())) == 4


async def test_the_same_request_gets_the_same_answer_from_another_server() -> None:
    texts = set()
    for _ in range(2):
        async with served() as client:
            texts.add((await client.complete(TEXT, max_tokens=8))["choices"][0]["text"])
    assert len(texts) == 1


async def test_tokenize_and_detokenize_are_inverse() -> None:
    async with served(max_model_len=4096) as client:
        answer = await client.post("/tokenize", {"prompt": TEXT, "return_token_strs": True})
        assert answer["count"] == len(answer["tokens"]) > 5
        assert answer["max_model_len"] == 4096
        assert "".join(answer["token_strs"]) == TEXT
        text = await client.post("/detokenize", {"tokens": answer["tokens"]})
        assert text == {"prompt": TEXT}


async def test_tokenizing_a_chat_gives_what_a_chat_is_charged_for() -> None:
    async with served() as client:
        count = (await client.post("/tokenize", {"messages": CHAT}))["count"]
        answer = await client.post("/v1/chat/completions", {"messages": CHAT})
        parts = [{"role": "user", "content": [{"type": "text", "text": TEXT}]}]
        in_parts = await client.post("/v1/chat/completions", {"messages": parts})
    assert answer["usage"]["prompt_tokens"] == in_parts["usage"]["prompt_tokens"] == count
    assert answer["usage"]["completion_tokens"] == 16


async def test_the_service_routes_answer() -> None:
    async with served(model="base", lora_models=("tuned",)) as client:
        models = json.loads(await client.get("/v1/models"))
        assert [(card["id"], card["parent"]) for card in models["data"]] == [
            ("base", None),
            ("tuned", "base"),
        ]
        assert await client.get("/health") == ""
        assert json.loads(await client.get("/version"))["version"] == "0.33"


async def test_token_ids_stand_beside_the_text_where_they_are_asked_for() -> None:
    async with served() as client:
        tokens = (await client.post("/tokenize", {"prompt": TEXT}))["tokens"]
        body = {"prompt": TEXT, "max_tokens": 4, "return_token_ids": True}
        whole = (await client.complete(**body))["choices"][0]
        *chunks, _ = await client.events("/v1/completions", **body)
        spoken = (await client.post("/detokenize", {"tokens": whole["token_ids"]}))["prompt"]
        plain = (await client.complete(TEXT))["choices"][0]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert whole["prompt_token_ids"] == choices[0]["prompt_token_ids"] == tokens
    assert [choice["prompt_token_ids"] for choice in choices[1:]] == [None] * 3
    assert [choice["token_ids"] for choice in choices] == [[i] for i in whole["token_ids"]]
    assert spoken == whole["text"]
    assert "token_ids" not in plain


async def test_token_ids_of_an_engine_without_them_are_left_out() -> None:
    async with served(dialect="llamacpp") as client:
        answer = await client.complete(TEXT, return_token_ids=True)
    assert "token_ids" not in answer["choices"][0]


async def test_token_ids_of_a_chat_are_refused_by_name() -> None:
    async with served() as client:
        body = {"messages": CHAT, "max_tokens": 3, "return_token_ids": True}
        refused = await client.post("/v1/chat/completions", body, 400)
    assert refused["error"]["param"] == "return_token_ids"
