"""What is known of a server before a data set is made for it: a profile file, start parameters."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from prefixbench.core.errors import ConfigError, ErrorContext, Stage

#: Start parameters that set the tokens of a block: vLLM, SGLang, TensorRT-LLM, LMDeploy
#: (engine-semantics, section 2).
BLOCK_SIZE_PARAMETERS = frozenset(
    {"block-size", "page-size", "tokens-per-block", "cache-block-seq-len"}
)

_SIZES = ("block_size", "hit_granularity")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerStatement:
    """Tokens in a block and in the smallest step of hits, by one source; None: it does not say."""

    source: str
    block_size: int | None = None
    hit_granularity: int | None = None


def read_server_profile(path: Path | None) -> Mapping[str, Any]:
    """What a probe wrote down of a server; empty without a file."""
    if path is None:
        return {}
    try:
        profile = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError) as error:
        raise _wrong_profile(f"the server profile {path.name} cannot be read") from error
    if not isinstance(profile, dict):
        raise _wrong_profile(f"the server profile {path.name} is not a JSON object")
    for name in _SIZES:
        if profile.get(name) is not None and not _is_size(profile[name]):
            raise _wrong_profile(f"{name} in the server profile {path.name} is no number of tokens")
    return profile


def statement_of_profile(path: Path) -> ServerStatement:
    """The sizes in a server profile."""
    profile = read_server_profile(path)
    return ServerStatement(source="server_profile", **{name: profile.get(name) for name in _SIZES})


def statement_of_arguments(text: str) -> ServerStatement:
    """The block size in the server's start parameters, as `--block-size 16` or `--block-size=16`.

    >>> statement_of_arguments("serve m --block-size 32 -tp 2").block_size
    32
    """
    words = _words(text)
    given = None
    for word, following in zip(words, [*words[1:], ""], strict=False):
        name, equals, value = word.partition("=")
        if name.lstrip("-").replace("_", "-") in BLOCK_SIZE_PARAMETERS:
            given = value if equals else following
    if given is None:
        return ServerStatement(source="server_args")
    if not given.isdecimal() or not _is_size(int(given)):
        raise _wrong_arguments("the block size in --server-args is no number of tokens")
    return ServerStatement(source="server_args", block_size=int(given))


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise _wrong_arguments(f"--server-args cannot be read: {error}") from error


def _is_size(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _wrong_arguments(message: str) -> ConfigError:
    return ConfigError(
        message,
        context=ErrorContext(stage=Stage.CONFIG, field="--server-args"),
        hint="quote the server's start parameters: --server-args '--block-size 16'",
    )


def _wrong_profile(message: str) -> ConfigError:
    return ConfigError(
        message,
        context=ErrorContext(stage=Stage.CONFIG, field="--server-profile"),
        hint="name a JSON file with block_size and hit_granularity",
    )
