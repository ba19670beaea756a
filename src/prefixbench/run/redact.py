"""What may be written down of addresses, command lines and error texts (RFC 3.4.1).

An address keeps its scheme, the first label of its host name and its port. A key or a header's
value is never kept, nor is any stretch of a prompt that a server repeats in an error.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from pathlib import PurePath
from urllib.parse import parse_qsl, urlsplit

#: Longest error text that is kept, in characters.
ERROR_CHARS = 200

#: A stretch of this many letters found in the prompt counts as a part of it, however
#: a server has changed their case and what stands between them.
_ECHO_CHARS = 12

#: Of a long error text this much is looked at.
_ERROR_SCAN_CHARS = 2000

#: Shorter values of an address' query are no secrets, and stand in many words.
_PRIVATE_CHARS = 4

_TOKEN_IDS = re.compile(r"\d+(?:\s*,\s*\d+){3,},?")
_ADDRESS = re.compile(r"https?://[^\s'\"<>]+", re.IGNORECASE)
_HIDDEN = "***"
_SECRET_OPTIONS = frozenset({"--header", "--api-key-env", "--proxy"})


def redact_url(url: str) -> str:
    """Scheme, host label and port.

    >>> redact_url("http://gpu-7.cluster.example:8000/v1/completions")
    'http://gpu-7:8000'
    >>> redact_url("http://127.0.0.1:8000")
    'http://127.0.0.1:8000'
    """
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:  # of a server's own text, or a slip of the user
        return "[address]"
    return f"{parts.scheme}://{_host_label(parts.hostname or '')}:{port}"


def private_parts(url: str) -> list[str]:
    """What an address holds beside its label and a server's own routes.

    >>> private_parts("http://gpu-7.cluster.example:8000/team/v1/completions?tenant=acme")
    ['gpu-7.cluster.example', '/team', 'acme']
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    route = parts.path.partition("/v1/")[0]
    values = [value for _, value in parse_qsl(parts.query) if len(value) >= _PRIVATE_CHARS]
    named = host if "." in host and not is_loopback(url) else ""
    return [part for part in (named, route, *values) if part.strip("/")]


def is_loopback(url: str) -> bool:
    """Whether an address is this machine's own.

    >>> is_loopback("http://[::1]:8000"), is_loopback("http://10.0.0.1")
    (True, False)
    """
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def endpoint_labels(urls: Sequence[str]) -> dict[str, str]:
    """A redacted label for each address; two addresses never share one.

    >>> list(endpoint_labels(["http://a.one:80", "http://a.two:80"]).values())
    ['http://a:80', 'http://a:80#2']
    """
    labels: dict[str, str] = {}
    uses: dict[str, int] = {}
    for url in dict.fromkeys(urls):
        label = redact_url(url)
        uses[label] = uses.get(label, 0) + 1
        labels[url] = label if uses[label] == 1 else f"{label}#{uses[label]}"
    return labels


def redact_command(arguments: Iterable[str]) -> list[str]:
    """A command line without addresses, header values, environment names and folders.

    >>> redact_command(["run", "--header", "K: V", "--url=http://a.b:1/v1", "/home/me/set"])
    ['run', '--header', '***', '--url=http://a:1', 'set']
    """
    redacted: list[str] = []
    hide_next = False
    for argument in arguments:
        option, equals, value = argument.partition("=")
        if hide_next:
            redacted.append(_HIDDEN)
        elif option in _SECRET_OPTIONS and equals:
            redacted.append(f"{option}={_HIDDEN}")
        elif option.startswith("--") and equals:
            redacted.append(f"{option}={_redact_word(value)}")
        else:
            redacted.append(_redact_word(argument))
        hide_next = option in _SECRET_OPTIONS and not equals
    return redacted


def safe_error(text: str, *, prompt: str = "", secrets: Iterable[str] = ()) -> str:
    """An error text that can be kept: no prompt, no token ids, no secret, no address; cut.

    >>> safe_error("bad input: once upon a time", prompt="so: once upon a time there was")
    'bad input: [prompt text]'
    """
    shown = text[:_ERROR_SCAN_CHARS]
    for secret in secrets:
        if secret:
            shown = shown.replace(secret, _HIDDEN)
    shown = _ADDRESS.sub(lambda match: redact_url(match[0]), shown)
    shown = _TOKEN_IDS.sub("[token ids]", _without_echoes(shown, prompt))
    return " ".join(shown.split())[:ERROR_CHARS]


def _host_label(host: str) -> str:
    try:
        address = ip_address(host)
    except ValueError:
        return host.partition(".")[0]
    if address.is_loopback:
        return f"[{host}]" if address.version == 6 else host
    return "ip-" + blake2b(host.encode(), digest_size=3).hexdigest()


def _redact_word(word: str) -> str:
    if "://" in word:
        return redact_url(word)
    return PurePath(word).name if "/" in word or "\\" in word else word


def _without_echoes(text: str, prompt: str) -> str:
    """The text with every stretch that also stands in the prompt cut out."""
    known, _ = _bare(prompt)
    bare, places = _bare(text)
    kept = list(text)
    for start in range(len(bare) - _ECHO_CHARS + 1):
        if bare[start : start + _ECHO_CHARS] in known:
            first, last = places[start], places[start + _ECHO_CHARS - 1]
            kept[first : last + 1] = "\0" * (last + 1 - first)
    return re.sub("\0+", "[prompt text]", "".join(kept))


def _bare(text: str) -> tuple[str, list[int]]:
    """Letters of a text in lower case, and the place of each."""
    places = [place for place, char in enumerate(text) if char.isalpha()]
    return "".join(text[place].lower()[0] for place in places), places
