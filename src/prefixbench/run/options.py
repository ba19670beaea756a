"""What a run is asked for, and what it will do: the command line over the data set's settings."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar

from prefixbench.config.execution import ExecutionMode, Isolation, is_address
from prefixbench.config.prompt_format import PromptFormat
from prefixbench.config.sessions import Answers
from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.core.records import CacheScope
from prefixbench.dataset.manifest import DatasetManifest
from prefixbench.run.addresses import Address, resolve_addresses
from prefixbench.run.families import ADAPTERS
from prefixbench.run.headers import resolve_headers
from prefixbench.run.schedule import Gate, phases_of

_Word = TypeVar("_Word", ExecutionMode, Isolation)

#: `return_token_ids`: vLLM from 0.10.2 on, SGLang (its pull request 30917). A text without its
#: special tokens, which a model that may not end writes too, is another prompt
#: (`skip_special_tokens`: vLLM, SGLang, MindIE).
_ANSWER_FIELDS: Mapping[PromptFormat, Mapping[str, Any]] = {
    PromptFormat.TOKEN_IDS: {"return_token_ids": True},
    PromptFormat.TEXT: {"skip_special_tokens": False},
}

DEFAULT_TIMEOUT_S = 600.0
DEFAULT_IDLE_TIMEOUT_S = 30.0
DEFAULT_STARTUP_TIMEOUT_S = 10.0
DEFAULT_MAX_FAILURE_RATE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """Options of `prefixbench run` (contract section 1); None is "as the data set says".

    `timeout_s` is for one request from sending to its last byte, `idle_timeout_s` for waiting
    until the server has nothing to do, `startup_timeout_s` for waiting until a server that refuses
    connections is up (0: not at all). `output` None is the next free `outputs/run_NNN`.
    `tokenizer` and `corpus` compose the prompts of a data set that holds recipes.
    `command` is the command line as typed; it is redacted before it is written.
    """

    dataset: Path
    urls: tuple[str, ...] = ()
    metrics_urls: tuple[str, ...] = ()
    output: Path | None = None
    model: str | None = None
    tokenizer: str | None = None
    corpus: str | None = None
    adapter: str | None = None
    mode: str | None = None
    concurrency: int | None = None
    request_rate: float | None = None
    rounds: int = 1
    warmup_rounds: int | None = None
    isolation: str | None = None
    timeout_s: float = DEFAULT_TIMEOUT_S
    idle_timeout_s: float = DEFAULT_IDLE_TIMEOUT_S
    startup_timeout_s: float = DEFAULT_STARTUP_TIMEOUT_S
    api_key_env: str | None = None
    headers: tuple[tuple[str, str], ...] = ()
    proxy: str | None = None
    server_profile: Path | None = None
    max_failure_rate: float = DEFAULT_MAX_FAILURE_RATE
    metrics_optional: bool = False
    calibrate: bool = False
    resume: bool = False
    overwrite: bool = False
    command: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The options with the data set's settings filled in; every value is decided.

    `concurrency` None is no limit: only in an open loop, where nobody asked for one. `answers` None
    is a data set without sessions.
    """

    mode: ExecutionMode
    isolation: Isolation
    warmup_rounds: int
    rounds: int
    concurrency: int | None
    request_rate: float | None
    gate: Gate
    addresses: tuple[Address, ...]
    metrics_urls: tuple[str, ...]
    labels: Mapping[str, str]
    instances: int
    dp_size: int
    cache_scope: CacheScope
    prompt_format: PromptFormat
    answers: Answers | None
    headers: Mapping[str, str] = field(repr=False)

    @property
    def answer_fields(self) -> Mapping[str, Any]:
        """Fields of a body that make answers such that later turns can go on from them."""
        return _ANSWER_FIELDS.get(self.prompt_format, {}) if self.is_served else {}

    @property
    def is_served(self) -> bool:
        """Whether later turns hold the server's own answers."""
        return self.answers is Answers.SERVED

    @property
    def needs_token_ids(self) -> bool:
        """Whether turns go on from ids that the server has to tell."""
        return self.is_served and self.prompt_format is PromptFormat.TOKEN_IDS


def resolve_settings(options: RunOptions, manifest: DatasetManifest) -> RunSettings:
    """Decide every setting; raise ConfigError for what cannot be done."""
    _check_numbers(options)
    _check_choices(options)
    execution = _section(manifest, "execution")
    mode = _word(ExecutionMode, options.mode or execution.get("mode"), "--mode")
    isolation = _word(
        Isolation, options.isolation or execution.get("isolation") or "auto", "--isolation"
    )
    if isolation is Isolation.RESTART and len(phases_of(mode, options.rounds)) > 1:
        raise _refused(
            "isolation by restart is possible for one phase alone: nobody restarts the server"
            " between phases",
            "--isolation",
            "choose --isolation auto, or run each phase on its own",
        )
    request_rate = options.request_rate or execution.get("request_rate")
    urls = options.urls or tuple(execution.get("urls") or ())
    metrics_urls = options.metrics_urls or tuple(execution.get("metrics_urls") or ())
    routing = _section(manifest, "routing")
    prompt_format = PromptFormat(manifest.config.get("prompt_format") or PromptFormat.TEXT)
    instances = int(routing.get("instances") or 1)
    addresses = resolve_addresses(
        urls, metrics_urls, is_chat=prompt_format is PromptFormat.CHAT, instances=instances
    )
    return RunSettings(
        mode=mode,
        isolation=isolation,
        warmup_rounds=_warmup_rounds(options, execution, mode),
        rounds=options.rounds,
        concurrency=_concurrency(options, execution, request_rate),
        request_rate=request_rate,
        gate=_gate(_section(manifest, "request_order")),
        addresses=addresses.requests,
        metrics_urls=addresses.metrics_urls,
        labels=addresses.labels,
        instances=instances,
        dp_size=int(routing.get("dp_size") or 1),
        cache_scope=CacheScope(routing.get("cache_scope") or CacheScope.GLOBAL),
        prompt_format=prompt_format,
        answers=_answers(_section(manifest, "sessions")),
        headers=resolve_headers(
            options.headers, options.api_key_env, [*urls, *addresses.metrics_urls]
        ),
    )


def _section(manifest: DatasetManifest, name: str) -> Mapping[str, Any]:
    section = manifest.config.get(name)
    return section if isinstance(section, Mapping) else {}


def _warmup_rounds(options: RunOptions, execution: Mapping[str, Any], mode: ExecutionMode) -> int:
    if not mode.is_warmed:
        if options.warmup_rounds:
            raise _refused(
                f"--warmup-rounds {options.warmup_rounds} contradicts --mode {mode},"
                " which starts cold",
                "--warmup-rounds",
                "leave --warmup-rounds out, or choose --mode warmup, hot or compare",
            )
        return 0
    asked = options.warmup_rounds
    if asked is None and _is_warmed(execution):
        asked = execution.get("warmup_rounds")  # of a cold mode it says nothing about a warmed one
    if asked == 0 and mode is not ExecutionMode.HOT:
        raise _refused(
            f"--warmup-rounds 0 contradicts --mode {mode}, which measures a warmed cache",
            "--warmup-rounds",
            "leave --warmup-rounds out, or choose --mode cold, hot or progressive_prefix_fill",
        )
    return 1 if asked is None else int(asked)


def _is_warmed(execution: Mapping[str, Any]) -> bool:
    planned = execution.get("mode")
    return planned is not None and ExecutionMode(planned).is_warmed


def _concurrency(
    options: RunOptions, execution: Mapping[str, Any], request_rate: float | None
) -> int | None:
    """The default of 1 is the closed loop's; an open loop is limited only where someone says so."""
    if options.concurrency is not None:
        return options.concurrency
    planned = int(execution.get("concurrency") or 1)
    return None if request_rate and planned == 1 else planned


def _gate(request_order: Mapping[str, Any]) -> Gate:
    if request_order.get("preserve_group_dependency"):
        return Gate.PREDECESSOR
    if request_order.get("leaders") == "barrier":
        return Gate.LEADER
    return Gate.NONE


def _answers(sessions: Mapping[str, Any]) -> Answers | None:
    return Answers(sessions["answers"]) if sessions else None


def _check_numbers(options: RunOptions) -> None:
    for name, value in (
        ("--concurrency", options.concurrency),
        ("--request-rate", options.request_rate),
        ("--rounds", options.rounds),
        ("--timeout", options.timeout_s),
    ):
        _check_number(name, value, above=0)
    _check_number("--warmup-rounds", options.warmup_rounds, least=0)
    _check_number("--max-failure-rate", options.max_failure_rate, least=0, most=1)


def _check_number(
    name: str,
    value: float | None,
    *,
    above: float | None = None,
    least: float = 0,
    most: float = sys.float_info.max,
) -> None:
    """NaN is in no range."""
    if value is None or (least <= value <= most and value != above):
        return
    allowed = f"above {above}" if above is not None else f"at least {least}"
    limit = f" and at most {most:g}" if most < sys.float_info.max else ""
    raise _refused(f"{name} must be {allowed}{limit}", name, "give a number in this range")


def _check_choices(options: RunOptions) -> None:
    if options.adapter is not None and options.adapter not in ADAPTERS:
        raise _refused(
            f"there is no adapter {options.adapter!r}",
            "--adapter",
            _choices(options.adapter, ADAPTERS),
        )
    if options.proxy is not None and not is_address(options.proxy):
        raise _refused("the proxy cannot be used", "--proxy", "write http://HOST:PORT")


def _word(kind: type[_Word], word: Any, option: str) -> _Word:
    try:
        return kind(word)
    except ValueError:
        words = [member.value for member in kind]
        raise _refused(
            f"{word!r} is no value of {option}", option, _choices(str(word), words)
        ) from None


def _choices(given: str, allowed: Any) -> str:
    nearest = get_close_matches(given, list(allowed), n=1)
    meant = f"; did you mean {nearest[0]}?" if nearest else ""
    return f"choose one of {', '.join(allowed)}{meant}"


def _refused(message: str, option: str, hint: str) -> ConfigError:
    return ConfigError(message, context=ErrorContext(stage=Stage.RUN, field=option), hint=hint)
