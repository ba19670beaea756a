"""Frames: the tokens around a content that are equal in every request.

    head: BOS, the template's head, the opening word | content | tail: the template's tail

The head belongs to the prefix, the tail to the suffix; all lengths count from token 0 of the
sequence the server sees. A frame is found by two probes: what their ids have in common at both
ends, checked against the ids of the contents.

A chat whose system prompt holds the prefix has two contents, with a boundary between them:

    head | prefix, divergence block | boundary: end of one message, begin of the next | text | tail
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, assert_never

from prefixbench.config.prefix import Carrier
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.content.certificate import require_exact_text, scan_vocabulary
from prefixbench.content.disk_memo import remembered
from prefixbench.content.tape import Tape, escape
from prefixbench.content.tokenizer import TokenizerProtocol
from prefixbench.content.words import opening_text, word_atoms
from prefixbench.core.errors import ConfigError, ErrorContext, Stage, TokenizerError

#: In JSON, from the end of one message's content to the begin of the next one's.
_NEXT_MESSAGE = b'"},{"role":"user","content":"'


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What is equal in every request; `opening` is the text with which every content begins.

    `boundary_ids` stand between the two contents of a chat with a system prompt.
    """

    prompt_format: PromptFormat
    head_ids: tuple[int, ...]
    tail_ids: tuple[int, ...]
    opening: str
    boundary_ids: tuple[int, ...] = ()

    @property
    def head_len(self) -> int:
        return len(self.head_ids)

    @property
    def tail_len(self) -> int:
        """Equal tokens behind the prefix: the tail, and the boundary if there is one."""
        return len(self.tail_ids) + len(self.boundary_ids)

    @property
    def boundary(self) -> Tape | None:
        """The boundary as one piece, between the contents of two messages in JSON."""
        if not self.boundary_ids:
            return None
        return Tape.of([self.boundary_ids], [_NEXT_MESSAGE + escape(self.opening)])

    @property
    def messages_behind(self) -> list[dict[str, str]]:
        """The shortest messages behind the one that holds the prefix."""
        return [{"role": "user", "content": self.opening}] if self.boundary_ids else []


def shortest_possible(frame: Frame) -> int:
    """Tokens of the shortest request: head, one marker, tail."""
    return frame.head_len + 1 + frame.tail_len


def make_frame(
    tokenizer: TokenizerProtocol,
    prompt_format: PromptFormat | str = PromptFormat.TEXT,
    chat_template: str | None = None,
    *,
    carrier: Carrier = Carrier.USER,
) -> Frame:
    """The frame of a prompt format; for chat of this template, or of the tokenizer's own."""
    prompt_format = PromptFormat(prompt_format)
    settings = sorted(getattr(tokenizer, "settings", {}).items())
    kept = remembered(
        "frame",
        (tokenizer.fingerprint, settings, prompt_format.value, chat_template, carrier.value),
        lambda: asdict(_find_frame(tokenizer, prompt_format, chat_template, carrier)),
    )
    return Frame(
        prompt_format=prompt_format,
        head_ids=tuple(kept["head_ids"]),
        tail_ids=tuple(kept["tail_ids"]),
        opening=kept["opening"],
        boundary_ids=tuple(kept["boundary_ids"]),
    )


def _find_frame(
    tokenizer: TokenizerProtocol,
    prompt_format: PromptFormat,
    chat_template: str | None,
    carrier: Carrier,
) -> Frame:
    if prompt_format is not PromptFormat.TOKEN_IDS:
        require_exact_text(scan_vocabulary(tokenizer))
    match prompt_format:
        case PromptFormat.TEXT:
            return _probe(tokenizer, prompt_format, lambda content: tokenizer.encode(content, True))
        case PromptFormat.CHAT:
            see = _refusals_told(messages_renderer(tokenizer, chat_template))
            if carrier is Carrier.SYSTEM:
                return _probe_system_prompt(tokenizer, see)
            return _probe(
                tokenizer, prompt_format, lambda content: tokenizer.encode(see([_user(content)]))
            )
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
            raise _frame_error(tokenizer, prompt_format)
    return Frame(
        prompt_format=prompt_format,
        head_ids=tuple(head),
        tail_ids=tuple(tail),
        opening=opening,
    )


def _probe_system_prompt(
    tokenizer: TokenizerProtocol, see: Callable[[Sequence[Mapping[str, str]]], str]
) -> Frame:
    """As `_probe`, with two contents."""
    opening = opening_text(tokenizer)
    atoms = word_atoms(tokenizer)
    pairs = ((atoms[0], atoms[1]), (atoms[1], atoms[0]))
    probes = []
    for pair in pairs:
        content = opening + "".join(atom.text for atom in pair)
        messages = [{"role": "system", "content": content}, _user(content)]
        probes.append(tokenizer.encode(see(messages)))
    first, second = probes
    head_len = _common_length(first, second)
    tail_len = _common_length(first[::-1], second[::-1])
    head, tail = first[:head_len], first[len(first) - tail_len :]
    boundary = first[head_len + 2 : len(first) - tail_len - 2]
    for ids, pair in zip(probes, pairs, strict=True):
        own = [atom.id for atom in pair]
        if ids != [*head, *own, *boundary, *own, *tail]:
            raise _frame_error(tokenizer, PromptFormat.CHAT)
    return Frame(
        prompt_format=PromptFormat.CHAT,
        head_ids=tuple(head),
        tail_ids=tuple(tail),
        opening=opening,
        boundary_ids=tuple(boundary),
    )


def _user(content: str) -> dict[str, str]:
    return {"role": "user", "content": content}


def _frame_error(tokenizer: TokenizerProtocol, prompt_format: PromptFormat) -> TokenizerError:
    return TokenizerError(
        f"tokenizer {tokenizer.name!r}: the {prompt_format} frame changes the ids of what"
        " it surrounds",
        context=ErrorContext(stage=Stage.CONTENT, field="prompt_format"),
        hint="use prompt_format: token_ids, or another chat template",
    )


def _common_length(first: list[int], second: list[int]) -> int:
    length = 0
    for left, right in zip(first, second, strict=False):
        if left != right:
            break
        length += 1
    return length


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


def _refusals_told(
    render: Callable[[Sequence[Mapping[str, str]]], str],
) -> Callable[[Sequence[Mapping[str, str]]], str]:
    """The renderer, with a ConfigError for whatever the template raises."""

    def told(messages: Sequence[Mapping[str, str]]) -> str:
        try:
            return render(messages)
        except Exception as error:  # a template is code of its own
            refused = "a system message" if len(messages) > 1 else "a single user message"
            without = "with" if len(messages) > 1 else "without"
            raise ConfigError(
                f"the chat template refuses {refused}: {error}",
                context=ErrorContext(stage=Stage.CONTENT, field="chat_template"),
                hint=f"use a template that takes a chat {without} a system message",
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
