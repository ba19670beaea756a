"""Errors that say what, where and what now.

Every error a user can meet is a `PrefixBenchError`: one sentence, a context (where), a hint
(what to do), a stable `code` and the exit code of the command line (contract: 0 done, 2
configuration, 3 target or data set, 4 tokenizer, corpus, collision, 5 endpoint or metrics, 6 too
many failed requests, 1 anything else).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar


class Stage(StrEnum):
    """The stages that logs and errors name (RFC 3.4.3)."""

    CONFIG = "config"
    LENGTHS = "lengths"
    PLAN = "plan"
    CONTENT = "content"
    COLLISION = "collision"
    SIMULATE = "simulate"
    RUN = "run"
    METRICS = "metrics"
    REPORT = "report"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorContext:
    """Where an error happened; what does not apply is None and is not printed."""

    stage: Stage
    dataset_id: str | None = None
    request_id: str | None = None
    prefix_group_id: str | None = None
    retry: int | None = None
    field: str | None = None
    run_dir: str | None = None

    def items(self) -> list[tuple[str, Any]]:
        return [(key, value) for key, value in asdict(self).items() if value is not None]


class PrefixBenchError(Exception):
    """Base of all errors that a user can meet.

    >>> print(PrefixBenchError("no", context=ErrorContext(stage=Stage.PLAN), hint="yes").render())
    no
      at: stage=plan
      hint: yes
    """

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, *, context: ErrorContext, hint: str) -> None:
        super().__init__(message)
        self.message = message
        self.context = context
        self.hint = hint

    def render(self) -> str:
        where = " ".join(f"{key}={value}" for key, value in self.context.items())
        return f"{self.message}\n  at: {where}\n  hint: {self.hint}"

    def to_json(self) -> dict[str, Any]:
        return {
            "code": self.code,
            "message": self.message,
            "context": dict(self.context.items()),
            "hint": self.hint,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigProblem:
    """One thing wrong in a configuration."""

    path: str
    message: str
    given: str | None = None
    allowed: str | None = None
    nearest: str | None = None


class ConfigError(PrefixBenchError):
    """The configuration or the command line is wrong; carries every problem at once."""

    code = "config"
    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        context: ErrorContext,
        hint: str,
        problems: Sequence[ConfigProblem] = (),
    ) -> None:
        super().__init__(message, context=context, hint=hint)
        self.problems = tuple(problems)

    def to_json(self) -> dict[str, Any]:
        problems = [
            {key: value for key, value in asdict(problem).items() if value is not None}
            for problem in self.problems
        ]
        return super().to_json() | {"problems": problems}


class LengthError(PrefixBenchError):
    """A request has no legal length, or does not fit the model's context."""

    code = "length"
    exit_code = 2


class UnreachableTargetError(PrefixBenchError):
    """No plan meets the target; `hint` names a change that was computed to reach it."""

    code = "target_unreachable"
    exit_code = 3


class ValidationFailedError(PrefixBenchError):
    """A plan or a data set misses its target by more than the tolerance."""

    code = "validation_failed"
    exit_code = 3


class DatasetChangedError(PrefixBenchError):
    """Files on disk no longer are what the manifest or the validation report says."""

    code = "dataset_changed"
    exit_code = 3


class TokenizerError(PrefixBenchError):
    """The tokenizer cannot be loaded, or its texts cannot be made exact."""

    code = "tokenizer"
    exit_code = 4


class CorpusError(PrefixBenchError):
    """The corpus is missing, malformed or too small."""

    code = "corpus"
    exit_code = 4


class CollisionError(PrefixBenchError):
    """Unplanned equal blocks remain after the allowed retries."""

    code = "collision"
    exit_code = 4


class EndpointError(PrefixBenchError):
    """The server cannot be reached or does not speak the expected protocol."""

    code = "endpoint"
    exit_code = 5


class MetricsError(PrefixBenchError):
    """The metrics address cannot be read or has no usable counters."""

    code = "metrics"
    exit_code = 5


class TooManyFailuresError(PrefixBenchError):
    """The run finished, with more failed requests than the configured rate."""

    code = "too_many_failures"
    exit_code = 6


class StorageError(PrefixBenchError):
    """A file could not be written or read (disk full, not empty, no permission)."""

    code = "storage"
    exit_code = 1


class InputPathError(StorageError):
    """A path that was given names nothing that can be read: the command line is wrong."""

    code = "input_path"
    exit_code = 2


class OutputExistsError(StorageError):
    """The output folder is not empty and neither resume nor overwrite was asked for."""

    code = "output_exists"
    exit_code = 2
