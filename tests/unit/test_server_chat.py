"""Which template a server uses for a chat, and what happens when it cannot."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from prefixbench.content.tokenizer import BuiltinTokenizer
from prefixbench.core.errors import ConfigError
from prefixbench.server.api_error import ApiError
from prefixbench.server.chat import ChatTemplate

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]


def test_a_tokenizer_without_a_template_gets_chatml() -> None:
    text = ChatTemplate(BuiltinTokenizer(), None).render(MESSAGES)
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_file_goes_before_the_tokenizers_own_template(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    path = tmp_path / "chat.jinja"
    path.write_text("{% for m in messages %}[{{ m.role }}] {{ m.content }};{% endfor %}>")
    tokenizer = BuiltinTokenizer()
    tokenizer.settings["chat_template"] = "own"
    assert ChatTemplate(tokenizer, path).render(MESSAGES) == "[system] Be brief.;[user] Hi;>"
    assert ChatTemplate(tokenizer, None).render(MESSAGES) == "own"


def test_a_template_may_refuse_messages(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    path = tmp_path / "chat.jinja"
    path.write_text("{{ raise_exception('xylophone') }}")
    with pytest.raises(ApiError) as refusal:
        ChatTemplate(BuiltinTokenizer(), path).render(MESSAGES)
    assert (refusal.value.status, refusal.value.param) == (400, "messages")
    assert "xylophone" not in refusal.value.message


def test_a_file_that_cannot_be_used_stops_the_start(tmp_path: Path) -> None:
    pytest.importorskip("jinja2")
    broken = tmp_path / "chat.jinja"
    broken.write_text("{% for %}")
    for path in (broken, tmp_path / "missing.jinja"):
        with pytest.raises(ConfigError):
            ChatTemplate(BuiltinTokenizer(), path)


def test_a_missing_template_engine_is_told_at_the_first_chat(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "jinja2", None)
    tokenizer = BuiltinTokenizer()
    tokenizer.settings["chat_template"] = "own"
    template = ChatTemplate(tokenizer, None)
    with pytest.raises(ApiError, match="prefixbench\\[chat\\]") as refusal:
        template.render(MESSAGES)
    assert refusal.value.status == 501
