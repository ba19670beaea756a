"""Turns the messages of a chat into the text that the model reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from prefixbench.content.template import messages_renderer
from prefixbench.content.tokenizer import Tokenizer
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.server.api_error import ApiError

Messages = Sequence[Mapping[str, str]]
Renderer = Callable[[Messages], str]


class ChatTemplate:
    """The template of a server: a file, else the tokenizer's own, else plain ChatML.

    A file is read and compiled at once, so that a wrong one stops the start. The tokenizer's own
    is compiled for the first chat: a server without a template engine still completes texts.
    """

    def __init__(self, tokenizer: Tokenizer, path: Path | None) -> None:
        self._tokenizer = tokenizer
        self._renderer: Renderer | None = None
        if path is not None:
            self._renderer = messages_renderer(tokenizer, _read(path))
        elif tokenizer.chat_template is None:
            self._renderer = render_chatml

    def render(self, messages: Messages) -> str:
        """The text of a chat; ApiError when the template refuses the messages."""
        renderer = self._compiled()
        try:
            return renderer(messages)
        except Exception:  # templates raise what they like: roles, types, attributes
            message = "the chat template refuses these messages"
            raise ApiError(400, message, param="messages") from None

    def _compiled(self) -> Renderer:
        if self._renderer is None:
            try:
                self._renderer = messages_renderer(self._tokenizer)
            except ConfigError as error:
                raise ApiError(501, f"{error.message}; {error.hint}") from error
        return self._renderer


def render_chatml(messages: Messages) -> str:
    """ChatML, with the opening of the answer behind the last message.

    >>> render_chatml([{"role": "user", "content": "Hi"}])
    '<|im_start|>user\\nHi<|im_end|>\\n<|im_start|>assistant\\n'
    """
    turns = (
        f"<|im_start|>{message['role']}\n{message['content']}<|im_end|>\n" for message in messages
    )
    return "".join(turns) + "<|im_start|>assistant\n"


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"the chat template {path.name} cannot be read: {error.strerror}",
            context=ErrorContext(stage=Stage.CONFIG, field="--chat-template"),
            hint="name a file with a Jinja chat template",
        ) from error
