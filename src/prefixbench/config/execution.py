"""How a data set is run against a server (RFC 3.1.5)."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, Strict

from prefixbench.config.base import Count, NonNegative, Positive, Section, broken_rule
from prefixbench.core.errors import ConfigProblem


class ExecutionMode(StrEnum):
    """What is done before and while the requests are measured."""

    COLD = "cold"
    WARMUP = "warmup"
    HOT = "hot"
    COMPARE = "compare"
    PROGRESSIVE_PREFIX_FILL = "progressive_prefix_fill"

    @property
    def is_warmed(self) -> bool:
        """Whether its headline phase finds the prefixes cached beforehand."""
        return self in (ExecutionMode.WARMUP, ExecutionMode.HOT, ExecutionMode.COMPARE)


class Isolation(StrEnum):
    """How a run is kept apart from what the cache held before."""

    AUTO = "auto"
    SALT = "salt"
    RESET = "reset"
    CONTENT = "content"
    RESTART = "restart"
    NONE = "none"


def is_address(text: str) -> bool:
    """Whether requests can be sent there: a scheme, a host that can be looked up, a port."""
    try:
        parts = urlsplit(text)
        host = parts.hostname or ""
        host.encode("idna")
        return parts.scheme in ("http", "https") and bool(host) and parts.port != 0
    except ValueError:
        return False


def _usable(address: str) -> str:
    if not is_address(address):
        raise broken_rule(
            "is no usable address",
            allowed="http://HOST:PORT or https://HOST/PATH",
            given="an address (not shown)",
        )
    return address


Address = Annotated[str, Strict(), AfterValidator(_usable)]


class ExecutionConfig(Section):
    """How requests are sent; the command line of `run` wins over it."""

    mode: ExecutionMode = Field(
        default=ExecutionMode.PROGRESSIVE_PREFIX_FILL,
        description="cold: isolated, nothing cached; warmup: prefixes are cached first; hot: as"
        " warmup, on whatever the cache held; compare: cold, then warmed; progressive_prefix_fill:"
        " isolated, planned order, no warm-up. `warmup` where the target is a static_prefix_ratio.",
    )
    warmup_rounds: NonNegative = Field(
        default=0, description="Rounds of warm-up requests; 1 in warmed modes unless given."
    )
    concurrency: Count = Field(default=1, description="Requests in flight at most.")
    request_rate: Positive | None = Field(
        default=None, description="Requests sent a second (open loop); without it, a closed loop."
    )
    urls: tuple[Address, ...] = Field(
        default=(), description="Addresses of the server's instances."
    )
    metrics_urls: tuple[Address, ...] = Field(
        default=(), description="Addresses of their metrics; the origin + /metrics unless given."
    )
    isolation: Isolation = Field(
        default=Isolation.AUTO,
        description="auto: salt where the server accepts it, else reset, else content.",
    )

    def dependent_defaults(self) -> dict[str, Any]:
        return {"warmup_rounds": 1 if self.mode.is_warmed else 0}

    def disagreements(self) -> Iterator[ConfigProblem]:
        if self.warmup_rounds and not self.mode.is_warmed:
            yield ConfigProblem(
                path="warmup_rounds",
                message=f"is {self.warmup_rounds}, but execution.mode: {self.mode} starts cold",
                given=str(self.warmup_rounds),
                allowed="warmup_rounds: 0, or mode: warmup, hot or compare",
            )
        needs_warmup = self.mode in (ExecutionMode.WARMUP, ExecutionMode.COMPARE)
        if self.warmup_rounds == 0 and needs_warmup:
            yield ConfigProblem(
                path="warmup_rounds",
                message=f"is 0, but execution.mode: {self.mode} measures a warmed cache",
                given="0",
                allowed="warmup_rounds: 1 or more, or mode: cold or progressive_prefix_fill",
            )
