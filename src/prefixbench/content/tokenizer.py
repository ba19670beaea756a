"""Tokenizers: what the content rooms need of one, and how one is loaded from disk.

No tokenizer is downloaded and no `transformers` is imported: every file is read into the
`tokenizers` library, the built-in one is made by code. The engine is only made when something is
encoded; what a warm start needs is remembered (`disk_memo`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import orjson

from prefixbench.content.disk_memo import remembered
from prefixbench.content.tokenizer_files import KINDS, read_tokenizer_file
from prefixbench.content.tokenizer_json import byte_level, definition
from prefixbench.content.vocabulary import END_OF_TEXT, builtin_vocabulary, byte_letters
from prefixbench.core.errors import ErrorContext, Stage, TokenizerError

if TYPE_CHECKING:
    from tokenizers import AddedToken
    from tokenizers import Tokenizer as Engine

BUILTIN = "builtin"

_SPACE_LETTER = "▁".encode()  # SentencePiece vocabularies write a space so


@runtime_checkable
class TokenizerProtocol(Protocol):
    """What plans, texts and proofs ask of a tokenizer."""

    @property
    def name(self) -> str:
        """A word for manifests: no path."""

    @property
    def version(self) -> str: ...

    @property
    def fingerprint(self) -> str:
        """SHA-256 of what defines the tokenizer: equal fingerprints give equal ids."""

    @property
    def vocab_size(self) -> int:
        """Entries, added tokens included."""

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids that no text may contain: BOS, EOS, PAD, template marks."""

    @property
    def added_token_texts(self) -> tuple[str, ...]:
        """Texts that the tokenizer parses as one added token wherever they occur."""

    def pieces(self) -> Iterator[tuple[int, str]]:
        """Every entry of the vocabulary with its id, as the text it stands for."""

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        """Ids of a text; with special tokens: as a server's text endpoint sees it."""

    def encode_batch(
        self, texts: Sequence[str], add_special_tokens: bool = False
    ) -> list[list[int]]: ...

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids, special tokens included."""

    def __hash__(self) -> int:
        """Tokenizers are told apart by identity; what is found out about one is kept."""


class Tokenizer:
    """A `tokenizers` engine with the settings that its folder adds."""

    def __init__(
        self,
        define: Callable[[], bytes],
        *,
        name: str,
        fingerprint: str,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        """`define` gives a `tokenizer.json`; `settings` are those of a `tokenizer_config.json`."""
        self.name = name
        self.fingerprint = fingerprint
        self.settings = dict(settings or {})
        self.define = define

    @classmethod
    def of(cls, raw: bytes, *, name: str, settings: Mapping[str, Any] | None = None) -> Tokenizer:
        """The tokenizer of a `tokenizer.json`."""
        return Tokenizer(
            lambda: raw, name=name, fingerprint=sha256(raw).hexdigest(), settings=settings
        )

    @cached_property
    def _engine(self) -> Engine:
        from tokenizers import Tokenizer as Engine

        engine = Engine.from_buffer(self.define())
        engine.no_truncation()
        engine.no_padding()
        return engine

    @property
    def version(self) -> str:
        """Files of tokenizers carry no version of their own; their content tells them apart."""
        return self.fingerprint[:12]

    @cached_property
    def vocab_size(self) -> int:
        """Remembered: a file that was read to the end once need not be read to be named."""
        return remembered("vocab_size", self.fingerprint, self._count_entries)

    def _count_entries(self) -> int:
        return self._engine.get_vocab_size(with_added_tokens=True)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        return frozenset(token_id for token_id, token in self._added_tokens if token.special)

    @cached_property
    def added_token_texts(self) -> tuple[str, ...]:
        """Special texts and marks such as `<think>`; not added runs of spaces or plain words,
        which are ordinary vocabulary and which the guard of the pool judges."""
        texts = (
            token.content
            for _, token in self._added_tokens
            if token.special or not _is_ordinary(token.content)
        )
        return tuple(sorted(text for text in texts if text))

    @property
    def _added_tokens(self) -> list[tuple[int, AddedToken]]:
        return list(self._engine.get_added_tokens_decoder().items())

    @cached_property
    def frame_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Ids that `add_special_tokens` puts before and after a text.

        `tokenizer_config.json` decides where it speaks, else the post-processor
        (contract section 2, `add_special_tokens: auto`).
        """
        before, after = self._post_processor_ids()
        return (
            self._configured_ids("bos_token", "add_bos_token", before),
            self._configured_ids("eos_token", "add_eos_token", after),
        )

    def _post_processor_ids(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain = self._engine.encode("The", add_special_tokens=False).ids
        framed = self._engine.encode("The", add_special_tokens=True).ids
        for start in range(len(framed) - len(plain) + 1):
            if framed[start : start + len(plain)] == plain:
                return tuple(framed[:start]), tuple(framed[start + len(plain) :])
        raise _unusable(self.name, "its post-processor changes the ids of the text itself")

    def _configured_ids(
        self, token_key: str, switch_key: str, otherwise: tuple[int, ...]
    ) -> tuple[int, ...]:
        switch = self.settings.get(switch_key)
        if not isinstance(switch, bool):
            return otherwise
        if not switch:
            return ()
        text = self.special_text(token_key)
        token_id = None if text is None else self._engine.token_to_id(text)
        if token_id is None:
            raise _unusable(self.name, f"{switch_key} is true, but {token_key} names no token")
        return (token_id,)

    def special_text(self, key: str) -> str | None:
        """The text of `bos_token`, `eos_token`, ... in the settings, or None."""
        value = self.settings.get(key)
        return value.get("content") if isinstance(value, dict) else value

    @property
    def chat_template(self) -> str | None:
        """The Jinja source of the (default) chat template, if the folder has one."""
        template = self.settings.get("chat_template")
        if isinstance(template, list):
            named = {entry["name"]: entry["template"] for entry in template}
            template = named.get("default")
        return template

    def pieces(self) -> Iterator[tuple[int, str]]:
        added = {token.content for _, token in self._added_tokens}
        as_text = self._piece_reader()
        for piece, piece_id in self._engine.get_vocab(with_added_tokens=True).items():
            yield piece_id, piece if piece in added else as_text(piece)

    def _piece_reader(self) -> _PieceReader:
        engine = self._engine
        parts = [_state(part) for part in (engine.pre_tokenizer, engine.decoder, engine.normalizer)]
        if any(b'"ByteLevel"' in part for part in parts[:2]):
            return _ByteLevelReader()
        return _SpaceLetterReader() if any(_SPACE_LETTER in part for part in parts) else str

    def encode(self, text: str, add_special_tokens: bool = False) -> list[int]:
        ids = self._engine.encode(text, add_special_tokens=False).ids
        return self._framed(ids) if add_special_tokens else ids

    def encode_batch(
        self, texts: Sequence[str], add_special_tokens: bool = False
    ) -> list[list[int]]:
        encodings = self._engine.encode_batch_fast(list(texts), add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        return [self._framed(ids) for ids in rows] if add_special_tokens else rows

    def _framed(self, ids: list[int]) -> list[int]:
        before, after = self.frame_ids
        return [*before, *ids, *after]

    def decode(self, ids: Sequence[int]) -> str:
        return self._engine.decode(list(ids), skip_special_tokens=False)


class _PieceReader(Protocol):
    def __call__(self, piece: str, /) -> str: ...


class _ByteLevelReader:
    """Reads byte-level letters; bytes that are no text become U+FFFD, which is no space."""

    def __init__(self) -> None:
        self._bytes = {ord(letter): chr(byte) for byte, letter in enumerate(byte_letters())}

    def __call__(self, piece: str, /) -> str:
        try:
            return piece.translate(self._bytes).encode("latin-1").decode(errors="replace")
        except UnicodeEncodeError:  # not written in byte-level letters
            return piece


class _SpaceLetterReader:
    def __call__(self, piece: str, /) -> str:
        return piece.replace(_SPACE_LETTER.decode(), " ")


def _state(part: Any) -> bytes:
    """A part of an engine as JSON; empty if there is none."""
    return b"" if part is None else bytes(part.__getstate__())


def _is_ordinary(text: str) -> bool:
    return text.isspace() or text.isalnum()


class BuiltinTokenizer(Tokenizer):
    """The built-in byte-level BPE: no download, no licence, the same on every machine."""

    def __init__(self) -> None:
        raw = _builtin_definition()
        super().__init__(lambda: raw, name=BUILTIN, fingerprint=sha256(raw).hexdigest())


@cache
def _builtin() -> BuiltinTokenizer:
    """One for the whole process: what was learnt about it (word atoms) is kept with it."""
    return BuiltinTokenizer()


def _builtin_definition() -> bytes:
    vocabulary, merges = builtin_vocabulary()
    return definition(
        {"type": "BPE", "vocab": vocabulary, "merges": merges},
        specials=[(len(vocabulary), END_OF_TEXT)],
        pre_tokenizer=byte_level(splits=True),
        decoder=byte_level(splits=True),
    )


def load_tokenizer(spec: str | Path) -> Tokenizer:
    """The built-in tokenizer (`builtin`), a file that defines one, or a folder that holds one."""
    if str(spec) == BUILTIN:
        return _builtin()
    path = Path(spec).expanduser()
    try:
        file = read_tokenizer_file(path)
        tokenizer = Tokenizer(
            file.definition,
            name=file.name,
            fingerprint=file.fingerprint,
            settings=_read_settings(file.path.parent),
        )
        _ = tokenizer.vocab_size  # a file that was never seen before is read to the end
    except FileNotFoundError as error:
        raise _unusable(path.name, "no such file") from error
    except OSError as error:
        raise _unusable(path.name, (error.strerror or "it cannot be read").lower()) from error
    except Exception as error:  # the engine raises plain Exception for a malformed definition
        raise _unusable(path.name, f"not a usable tokenizer ({_first_line(error)})") from error
    return tokenizer


def _read_settings(folder: Path) -> dict[str, Any]:
    """`tokenizer_config.json`, with the chat template that newer folders keep in its own file."""
    settings: dict[str, Any] = {}
    config_path = folder / "tokenizer_config.json"
    if config_path.is_file():
        settings = orjson.loads(config_path.read_bytes())
    template_path = folder / "chat_template.jinja"
    if template_path.is_file():
        settings["chat_template"] = template_path.read_text(encoding="utf-8")
    return settings


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120]


def _unusable(name: str, reason: str) -> TokenizerError:
    return TokenizerError(
        f"tokenizer {name!r} cannot be loaded: {reason}",
        context=ErrorContext(stage=Stage.CONTENT, field="tokenizer"),
        hint=f"name {KINDS}, or {BUILTIN!r}",
    )
