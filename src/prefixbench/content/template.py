"""Frames: the tokens around a content that are equal in every request.

    head: BOS, the template's head, the opening word | content | tail: the template's tail

The head belongs to the prefix, the tail to the suffix; all lengths count from token 0 of the
sequence the server sees. A frame is found by two probes: what their ids have in common at both
ends, checked against the ids of the contents.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, assert_never

from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.certificate import require_exact_text, scan_vocabulary
from prefixbench.content.disk_memo import remembered
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import opening_text, word_atoms
from prefixbench.core.errors import ConfigError, ErrorContext, Stage, TokenizerError


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """Head and tail of every request; `opening` is the text with which every content begins."""

    prompt_format: PromptFormat
    head_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    opening: str

    @property
    def head_len(self) -> int:
        return len(self.head_ids)

    @property
    def tail_len(self) -> int:
        return len(self.tail_ids)


def shortest_possible(frame: Frame) -> int:
    """Tokens of the shortest request: head, one marker, tail."""
    return frame.head_len + 1 + frame.tail_len


def make_frame(
    tokenizer: TokenizerProtocol,
    prompt_format: PromptFormat | str = PromptFormat.TEXT,
    chat_template: str | None = None,
) -> Frame:
    """The frame of a prompt format; for chat of this template, or of the tokenizer's own."""
    prompt_format = PromptFormat(prompt_format)
    settings = sorted(getattr(tokenizer, "settings", {}).items())
    kept = remembered(
        "frame",
        (tokenizer.fingerprint, settings, prompt_format.value, chat_template),
        lambda: asdict(_find_frame(tokenizer, prompt_format, chat_template)),
    )
    return Frame(
        prompt_format=prompt_format,
        head_ids=tuple(kept["head_ids"]),
        tail_ids=tuple(kept["tail_ids"]),
        opening=kept["opening"],
    )


def _find_frame(
    tokenizer: TokenizerProtocol, prompt_format: PromptFormat, chat_template: str | None
) -> Frame:
    if prompt_format is not PromptFormat.TOKEN_IDS:
        require_exact_text(scan_vocabulary(tokenizer))
    match prompt_format:
        case PromptFormat.TEXT:
            return _probe(tokenizer, prompt_format, lambda content: tokenizer.encode(content, True))
        case PromptFormat.CHAT:
            see = _refusals_told(chat_renderer(tokenizer, chat_template))
            return _probe(tokenizer, prompt_format, lambda content: tokenizer.encode(see(content)))
        case PromptFormat.TOKEN_IDS:
            return _id_frame(tokenizer)
        case other:
            assert_never(other)


def _id_frame(tokenizer: TokenizerProtocol) -> Frame:
    """BOS, if the tokenizer begins texts with one, and the opening word; nothing at the end."""
    opening = opening_text(tokenizer)
    plain = tokenizer.encode(opening)
    framed = tokenizer.encode(opening, add_special_tokens=True)
    start = next(
        place for place in range(len(framed)) if framed[place : place + len(plain)] == plain
    )
    return Frame(
        prompt_format=PromptFormat.TOKEN_IDS,
        head_ids=tuple(framed[: start + len(plain)]),
        tail_ids=(),
        opening=opening,
    )


def _probe(
    tokenizer: TokenizerProtocol, prompt_format: PromptFormat, see: Callable[[str], list[int]]
) -> Frame:
    opening = opening_text(tokenizer)
    atoms = word_atoms(tokenizer)
    contents = ((atoms[0], atoms[1]), (atoms[1], atoms[0]))
    (first, second) = (see(opening + "".join(atom.text for atom in pair)) for pair in contents)
    head_len = _common_length(first, second)
    tail_len = _common_length(first[::-1], second[::-1])
    head, tail = first[:head_len], first[len(first) - tail_len :]
    for ids, pair in zip((first, second), contents, strict=True):
        if ids != [*head, *(atom.id for atom in pair), *tail]:
            raise TokenizerError(
                f"tokenizer {tokenizer.name!r}: the {prompt_format} frame changes the ids of what"
                " it surrounds",
                context=ErrorContext(stage=Stage.CONTENT, field="prompt_format"),
                hint="use prompt_format: token_ids, or another chat template",
            )
    return Frame(
        prompt_format=prompt_format,
        head_ids=tuple(head),
        tail_ids=tuple(tail),
        opening=opening,
    )


def _common_length(first: list[int], second: list[int]) -> int:
    length = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        length += 1
    return length


def chat_renderer(
    tokenizer: TokenizerProtocol, chat_template: str | None = None
) -> Callable[[str], str]:
    """A function from the content of one user message to the text that the model sees."""
    render = messages_renderer(tokenizer, chat_template)
    return lambda content: render([{"role": "user", "content": content}])


def messages_renderer(
    tokenizer: TokenizerProtocol, chat_template: str | None = None
) -> Callable[[Sequence[Mapping[str, str]]], str]:
    """A function from the messages of a chat to the text that the model sees.

    The text ends with what opens the answer. The template may raise what it likes for messages
    that it refuses.
    """
    source = chat_template or getattr(tokenizer, "chat_template", None)
    if source is None:
        raise ConfigError(
            f"tokenizer {tokenizer.name!r} has no chat template",
            context=ErrorContext(stage=Stage.CONTENT, field="prompt_format"),
            hint="name a folder whose tokenizer_config.json has one, or use prompt_format: text",
        )
    template = _compile(source)
    specials = _special_texts(tokenizer)

    def render(messages: Sequence[Mapping[str, str]]) -> str:
        return str(template.render(messages=messages, add_generation_prompt=True, **specials))

    return render


def _refusals_told(render: Callable[[str], str]) -> Callable[[str], str]:
    """The renderer, with a ConfigError for whatever the template raises."""

    def told(content: str) -> str:
        try:
            return render(content)
        except Exception as error:  # a template is code of its own
            raise ConfigError(
                f"the chat template refuses a single user message: {error}",
                context=ErrorContext(stage=Stage.CONTENT, field="chat_template"),
                hint="use a template that takes a chat without a system message",
            ) from error

    return told


def _compile(source: str) -> Any:
    try:
        from jinja2 import TemplateError
        from jinja2.sandbox import ImmutableSandboxedEnvironment
    except ImportError:
        raise ConfigError(
            "chat prompts need a template engine that is not installed",
            context=ErrorContext(stage=Stage.CONTENT, field="prompt_format"),
            hint="install the extra: pip install 'prefixbench[chat]'",
        ) from None

    def refuse(reason: str) -> None:
        raise TemplateError(reason)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.globals["raise_exception"] = refuse
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise ConfigError(
            f"the chat template cannot be read: {error}",
            context=ErrorContext(stage=Stage.CONTENT, field="chat_template"),
            hint="check the template with the engine that serves it",
        ) from error


def _special_texts(tokenizer: TokenizerProtocol) -> dict[str, str]:
    special_text = getattr(tokenizer, "special_text", None)
    if special_text is None:
        return {}
    names = ("bos_token", "eos_token", "pad_token", "unk_token")
    return {name: text for name in names if (text := special_text(name))}
