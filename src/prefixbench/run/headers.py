"""The headers of every request: those the user gives, and the server's key. No value is shown."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from prefixbench.config.base import duplicates
from prefixbench.core.errors import ConfigError, ErrorContext, Stage

_AUTHORIZATION = "authorization"

#: A name of RFC 9110 (5.6.2), and what no value may hold (5.5).
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")

#: These describe a body, which the user does not write.
_OF_BODIES = frozenset({"content-length", "content-type", "transfer-encoding"})


def resolve_headers(
    given: Sequence[tuple[str, str]], api_key_env: str | None, urls: Sequence[str]
) -> dict[str, str]:
    """All headers by name; raises ConfigError for what no server could be sent."""
    for problem in _problems(given):
        raise _refused(problem, "--header", "give 'NAME: VALUE', each name once")
    headers = dict(given)
    if api_key_env is not None:
        headers["Authorization"] = f"Bearer {_key_in(api_key_env)}"
    _check_single_credentials([*given], api_key_env, urls)
    return headers


def _problems(given: Sequence[tuple[str, str]]) -> Iterator[str]:
    for name, value in given:
        if not _NAME.fullmatch(name):
            yield "a header has a name that no request can carry"
        elif name.lower() in _OF_BODIES:
            yield f"the header {name} is written by the client itself"
        elif _CONTROL.search(value):
            yield f"the header {name} has a line break or a control character in its value"
    for name in duplicates(name.lower() for name, _ in given):
        yield f"the header {name} is given twice"


def _key_in(variable: str) -> str:
    key = os.environ.get(variable, "").strip()
    if not key:
        raise _refused(
            "the environment variable named by --api-key-env is not set",
            "--api-key-env",
            "export the key under this name, or leave the option out",
        )
    if _CONTROL.search(key):
        raise _refused(
            "the key named by --api-key-env has a line break or a control character in it",
            "--api-key-env",
            "export the key alone, in one line",
        )
    return key


def _check_single_credentials(
    given: Sequence[tuple[str, str]], api_key_env: str | None, urls: Sequence[str]
) -> None:
    sources = {
        "--api-key-env": api_key_env is not None,
        "--header Authorization": any(name.lower() == _AUTHORIZATION for name, _ in given),
        "an address": any(urlsplit(url).username is not None for url in urls),
    }
    used = [name for name, is_used in sources.items() if is_used]
    if len(used) > 1:
        raise _refused(
            f"credentials are given by {' and by '.join(used)}",
            "--api-key-env" if api_key_env is not None else "--header",
            "a request can carry one of them: leave out the others",
        )


def _refused(message: str, option: str, hint: str) -> ConfigError:
    return ConfigError(message, context=ErrorContext(stage=Stage.RUN, field=option), hint=hint)
