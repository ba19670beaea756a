"""What may be written down of addresses, command lines and errors."""

from __future__ import annotations

import pytest

from prefixbench.run.redact import (
    ERROR_CHARS,
    endpoint_labels,
    is_loopback,
    redact_command,
    redact_url,
    safe_error,
)

PROMPT = "The gupo came then. Omar keeps a small list of everything that is needed there."


@pytest.mark.parametrize(
    ("url", "label"),
    [
        ("http://gpu-7.cluster.example.com:8000/v1/completions", "http://gpu-7:8000"),
        ("https://user:pass@llm.example.com/v1?key=abc", "https://llm:443"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("http://localhost/metrics", "http://localhost:80"),
        ("http://[::1]:9", "http://[::1]:9"),
        ("http://gpu:99999", "[address]"),
        ("http://[gpu", "[address]"),
    ],
)
def test_an_address_keeps_scheme_host_label_and_port(url: str, label: str) -> None:
    assert redact_url(url) == label


def test_other_ip_addresses_are_told_apart_and_not_shown() -> None:
    one, other = redact_url("http://10.20.30.40:80"), redact_url("http://10.20.30.41:80")
    assert one != other
    assert "10.20" not in one


def test_two_addresses_never_share_a_label() -> None:
    urls = ["http://a.one:80", "http://a.two:80", "http://a.one:80"]
    labels = endpoint_labels(urls)
    assert list(labels) == urls[:2]
    assert len(set(labels.values())) == 2


def test_loopback() -> None:
    assert is_loopback("http://127.9.9.9:1")
    assert is_loopback("http://localhost:1")
    assert not is_loopback("http://10.0.0.1:1")
    assert not is_loopback("http://localhost.example.com")


def test_a_command_line_shows_no_secret_address_or_folder() -> None:
    command = redact_command(
        [
            "prefixbench",
            "run",
            "--dataset",
            "/home/me/secret-project/set",
            "--url",
            "http://gpu.internal.example:8000/v1",
            "--header",
            "X-Key: hunter2",
            "--header=X-Other: hunter3",
            "--api-key-env",
            "MY_KEY",
            "--concurrency=4",
        ]
    )
    text = " ".join(command)
    for secret in ("hunter", "MY_KEY", "internal", "secret-project"):
        assert secret not in text
    assert command[3] == "set"
    assert command[5] == "http://gpu:8000"
    assert command[-1] == "--concurrency=4"


@pytest.mark.parametrize("lead", ["", "invalid prompt: '", "x" * 1990])
@pytest.mark.parametrize("start", [0, 5, 30])
def test_no_stretch_of_the_prompt_survives_in_an_error(lead: str, start: int) -> None:
    shown = safe_error(lead + PROMPT[start:], prompt=PROMPT)
    echoes = [PROMPT[n : n + 12] for n in range(len(PROMPT) - 11) if PROMPT[n : n + 12] in shown]
    assert echoes == []


@pytest.mark.parametrize("broken", ["http://gpu.internal:99999/v1", "http://[gpu.internal"])
def test_an_address_that_is_none_hides_in_errors_and_commands(broken: str) -> None:
    assert "internal" not in safe_error(f"no route to {broken} today")
    assert redact_command(["run", "--url", broken]) == ["run", "--url", "[address]"]


@pytest.mark.parametrize("url", ["HTTP://me:pass'word@gpu.internal:8/v1", "ftp://me:pass@h/x"])
def test_credentials_in_an_address_are_never_shown(url: str) -> None:
    shown = redact_command(["run", f"--url={url}", url])
    assert "pass" not in " ".join(shown)


@pytest.mark.parametrize(
    "changed",
    [
        PROMPT.upper(),
        PROMPT.replace(" ", "   "),
        PROMPT.replace(" ", "\n"),
        repr(PROMPT.replace(".", '."')),
        PROMPT.replace(" ", "%20"),
        "İ" * 9 + PROMPT,
    ],
)
def test_a_changed_echo_is_one_still(changed: str) -> None:
    shown = safe_error(f"400 bad prompt: {changed}", prompt=PROMPT)
    letters = "".join(filter(str.isalpha, shown)).lower()
    assert shown.startswith("400 bad prompt:")
    for stretch in ("keepsasmalllist", "everythingthatis", "cametheno"):
        assert stretch not in letters


def test_an_error_without_an_echo_is_kept_and_cut() -> None:
    assert safe_error("model   overloaded\n", prompt=PROMPT) == "model overloaded"
    assert len(safe_error("e" * 5000, prompt=PROMPT)) == ERROR_CHARS


def test_keys_addresses_and_token_ids_are_cut_out_of_errors() -> None:
    text = "bad key sk-123 at http://gpu.internal.example:8000/v1 for [101, 2, 33, 4, 5]"
    shown = safe_error(text, secrets=["sk-123"])
    assert "sk-123" not in shown
    assert "internal" not in shown
    assert "33" not in shown
