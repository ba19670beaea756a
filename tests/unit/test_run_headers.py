"""Headers and keys: what may be sent, and that nothing of it is shown."""

from __future__ import annotations

import pytest

from prefixbench.core.errors import ConfigError
from prefixbench.run.headers import resolve_headers

URLS = ("http://h:1", "http://h:1/metrics")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("KEY", "sk-1\n")  # as `echo $KEY > file` leaves it
    return "KEY"


def test_headers_and_key_are_joined(key: str) -> None:
    headers = resolve_headers([("X-Team", "größe")], key, URLS)
    assert headers == {"X-Team": "größe", "Authorization": "Bearer sk-1"}
    assert resolve_headers([], None, ["http://me:secret@h"]) == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([("Bad Name", "v")], "a name that no request can carry"),
        ([("X-ä", "v")], "a name that no request can carry"),
        ([("X-A", "secret\nHost: other")], "X-A has a line break"),
        ([("Content-Length", "3")], "Content-Length is written by the client"),
        ([("transfer-encoding", "chunked")], "transfer-encoding is written by the client"),
        ([("X-A", "1"), ("x-a", "2")], "x-a is given twice"),
    ],
)
def test_headers_that_no_server_could_be_sent_are_refused(
    given: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_headers(given, None, URLS)
    assert "secret" not in caught.value.render()


@pytest.mark.parametrize(
    ("given", "uses_key", "urls", "message"),
    [
        ([("authorization", "b")], True, URLS, "by --api-key-env and by --header Authorization"),
        ([], True, ["http://me:secret@h"], "by --api-key-env and by an address"),
        ([("Authorization", "b")], False, ["http://h", "http://me@h/metrics"], "and by an address"),
    ],
)
def test_credentials_come_from_one_place(
    given: list[tuple[str, str]], uses_key: bool, urls: list[str], message: str, key: str
) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        resolve_headers(given, key if uses_key else None, urls)
    assert "secret" not in caught.value.render()


@pytest.mark.parametrize("value", ["", " \n", "one\ntwo", "\x00"])
def test_a_key_is_one_line(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setattr("os.environ", {"KEY": value})
    with pytest.raises(ConfigError, match="--api-key-env"):
        resolve_headers([], "KEY", URLS)
