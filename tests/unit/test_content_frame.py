"""Frames: what stands around a content, in text, as ids, inside a chat template."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from content_samples import LABELS, builtin_pool, builtin_tokenizer, columns_of, prompt_text
from prefixbench.config.prefix import Carrier
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.compose import Composer
from prefixbench.content.template import make_frame, messages_renderer, shortest_possible
from prefixbench.content.tokenizer import Tokenizer, load_tokenizer
from prefixbench.core.errors import ConfigError, TokenizerError
from prefixbench.dataset.members import whole_rows

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\\n' + message.content +"
    " '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def chat_folder(folder: Path, **settings: Any) -> Path:
    """The built-in tokenizer with ChatML marks, saved as a folder."""
    definition = json.loads(builtin_tokenizer().define())
    for text in ("<|im_start|>", "<|im_end|>"):
        number = definition["added_tokens"][-1]["id"] + 1
        definition["added_tokens"].append(
            definition["added_tokens"][0] | {"id": number, "content": text}
        )
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder


def with_bos() -> Tokenizer:
    settings = {"add_bos_token": True, "bos_token": "<|endoftext|>"}
    return Tokenizer.of(builtin_tokenizer().define(), name="bos", settings=settings)


def test_a_text_frame_is_the_opening_word() -> None:
    frame = make_frame(builtin_tokenizer())
    assert (frame.opening, frame.tail_len) == ("The", 0)
    assert list(frame.head_ids) == builtin_tokenizer().encode("The")
    assert shortest_possible(frame) == 2


def test_bos_counts_in_the_head() -> None:
    tokenizer = with_bos()
    frame = make_frame(tokenizer)
    assert list(frame.head_ids) == tokenizer.encode("The", add_special_tokens=True)
    assert frame.head_len == 2
    composer = Composer(builtin_pool(), frame, columns_of([(0, 40, 20)], frame), LABELS)
    ids = composer.prompt_ids(0).tolist()
    assert len(ids) == 40
    assert tokenizer.encode(prompt_text(composer, 0), add_special_tokens=True) == ids


def test_an_id_frame_has_no_tail() -> None:
    settings = {
        "add_bos_token": True,
        "bos_token": "<|endoftext|>",
        "add_eos_token": True,
        "eos_token": "<|endoftext|>",
    }
    tokenizer = Tokenizer.of(builtin_tokenizer().define(), name="both", settings=settings)
    frame = make_frame(tokenizer, "token_ids")
    assert (frame.head_len, frame.tail_len) == (2, 0)
    assert make_frame(tokenizer, "text").tail_len == 1


@pytest.mark.parametrize("given", ["folder", "argument", "list"])
def test_a_chat_frame_holds_the_template(tmp_path: Path, given: str) -> None:
    pytest.importorskip("jinja2")
    own: dict[str, Any] = {"folder": {"chat_template": CHATML}, "argument": {}}.get(
        given, {"chat_template": [{"name": "default", "template": CHATML}]}
    )
    tokenizer = load_tokenizer(chat_folder(tmp_path, **own))
    frame = make_frame(tokenizer, "chat", CHATML if given == "argument" else None)
    head = tokenizer.decode(frame.head_ids)
    assert head == "<|im_start|>user\nThe"
    assert tokenizer.decode(frame.tail_ids) == "<|im_end|>\n<|im_start|>assistant\n"


def test_chat_prompts_are_exact_inside_their_template(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    tokenizer = load_tokenizer(chat_folder(tmp_path, chat_template=CHATML))
    frame = make_frame(tokenizer, "chat")
    rows = [(group, length, length // 2) for group in (0, 1) for length in (30, 31, 300)]
    rows += [(0, shortest_possible(frame), 0), (1, shortest_possible(frame) + 1, 0)]
    composer = Composer(builtin_pool(), frame, columns_of(rows, frame), LABELS)
    render = messages_renderer(tokenizer)
    for request, (_, input_len, _) in enumerate(rows):
        ids = composer.prompt_ids(request).tolist()
        assert len(ids) == input_len
        messages = [{"role": "user", "content": prompt_text(composer, request)}]
        assert tokenizer.encode(render(messages)) == ids
        assert tuple(ids[-frame.tail_len :]) == frame.tail_ids


def test_the_template_file_of_newer_folders_is_read(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    (chat_folder(tmp_path) / "chat_template.jinja").write_text("[{{ messages[0].content }}]")
    render = messages_renderer(load_tokenizer(tmp_path))
    assert render([{"role": "user", "content": "The x"}]) == "[The x]"


def test_a_system_prompt_holds_the_prefix_and_its_divergence_block(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    tokenizer = load_tokenizer(chat_folder(tmp_path, chat_template=CHATML))
    frame = make_frame(tokenizer, "chat", carrier=Carrier.SYSTEM)
    rows = [(group, length, length // 2) for group in (0, 1) for length in (60, 61, 300)]
    rows += [(0, shortest_possible(frame), 0), (1, shortest_possible(frame) + 1, 0)]
    columns = columns_of(rows, frame)
    composer = Composer(builtin_pool(), frame, columns, LABELS)
    batch = composer.batch(np.arange(len(rows)))
    for request, row in enumerate(whole_rows(batch, PromptFormat.CHAT)):
        ids, (system, user) = composer.prompt_ids(request), row["messages"]
        assert (system["role"], user["role"]) == ("system", "user")
        assert len(ids) == columns.input_len[request]
        assert tokenizer.encode(messages_renderer(tokenizer)([system, user])) == ids.tolist()
        # Opening word, content of the prefix, divergence block: all in the system prompt.
        inside = 1 + columns.planned_prefix_len[request] - frame.head_len
        inside += columns.divergence_len[request]
        assert len(tokenizer.encode(system["content"])) == inside


def test_a_template_without_system_messages_is_refused_by_name(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    refusing = "{% if messages[0].role == 'system' %}{{ raise_exception('no') }}{% endif %}"
    tokenizer = load_tokenizer(chat_folder(tmp_path, chat_template=refusing + CHATML))
    with pytest.raises(ConfigError, match="refuses a system message"):
        make_frame(tokenizer, "chat", carrier=Carrier.SYSTEM)


def test_chat_without_a_template_is_a_config_error() -> None:
    with pytest.raises(ConfigError, match="no chat template"):
        make_frame(builtin_tokenizer(), "chat")


def test_a_broken_template_is_a_config_error(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    with pytest.raises(ConfigError, match="cannot be read"):
        make_frame(builtin_tokenizer(), "chat", "{% for %}")


def test_a_template_that_refuses_is_a_config_error() -> None:
    pytest.importorskip("jinja2")
    with pytest.raises(ConfigError, match="no system message"):
        make_frame(builtin_tokenizer(), "chat", "{{ raise_exception('no system message') }}")


def test_a_template_that_changes_the_content_is_refused() -> None:
    pytest.importorskip("jinja2")
    with pytest.raises(TokenizerError, match="changes the ids"):
        make_frame(builtin_tokenizer(), "chat", "<< {{ messages[0].content | upper }} >>")


def test_chat_without_the_template_engine_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError) as caught:
        make_frame(builtin_tokenizer(), "chat", CHATML)
    assert "prefixbench[chat]" in caught.value.hint
