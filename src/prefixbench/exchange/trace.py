"""What every trace reader gives: requests, and what is known of them all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from prefixbench.core.errors import ConfigError, ErrorContext, Stage
from prefixbench.simulator.hit_definition import ALL_REQUESTS
from prefixbench.simulator.trace import BlockIds, TraceRequest


class TraceFormat(StrEnum):
    """Forms a trace comes in; `runs` is this project's own compact one."""

    MOONCAKE = "mooncake"
    BAILIAN = "bailian"
    WEKA = "weka"
    AZURE = "azure"
    REQUESTS = "requests"
    RUNS = "runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadOptions:
    """What a file does not say itself; None leaves it to the format.

    `tokenizer` is for text alone. `sub_agents`: conversations with the requests of their
    sub-agents.
    """

    block_size: int | None = None
    tokenizer: str | None = None
    sub_agents: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A trace as it is read: `requests` streams, and can be gone through once.

    `block_size` in tokens, and `ids`, are None where the trace tells nothing of what its requests
    share. `chosen` says in words which requests of the source these are; `notes` what else a
    reader of the results should know.
    """

    name: str
    requests: Iterator[TraceRequest]
    block_size: int | None
    ids: BlockIds | None
    chosen: str = ALL_REQUESTS
    notes: tuple[str, ...] = ()


def broken_trace(message: str, *, hint: str) -> ConfigError:
    """A file that is no trace of the format it is said to have."""
    return ConfigError(
        message, context=ErrorContext(stage=Stage.SIMULATE, field="trace"), hint=hint
    )
